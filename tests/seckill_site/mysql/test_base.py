"""The database's breaker: failed connects are not repeated by everybody; slow statements are.

And how long a process waits for a connection at all.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import MySQLdb
import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction

from seckill_site.mysql import base
from seckill_site.mysql.base import DatabaseWrapper
from seckill_site.redis import breaker
from tests.support.orders import at_once, make_buyers, race
from tests.support.patience import GENEROUS_S, wait_for
from tests.support.stack import ROOT

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def patient_breaker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A breaker of the test's own, whose pause lasts as long as the test likes."""
    monkeypatch.setattr(
        base, "breaker", breaker.Breaker(MySQLdb.OperationalError, pause_s=GENEROUS_S)
    )


@pytest.fixture
def unreachable(tmp_path: Any) -> Iterator[DatabaseWrapper]:
    """A connection to a server that is not there, and the number of its attempts."""
    options = {**connection.settings_dict["OPTIONS"], "unix_socket": str(tmp_path / "nobody.sock")}
    wrapper = DatabaseWrapper({**connection.settings_dict, "OPTIONS": options}, "other")
    yield wrapper
    wrapper.close()


def test_connect_is_not_repeated_at_once(unreachable: DatabaseWrapper) -> None:
    with pytest.raises(OperationalError, match="2002"):
        unreachable.ensure_connection()
    with pytest.raises(OperationalError, match="not tried again yet"):
        unreachable.ensure_connection()


def test_open_breaker_refuses_new_connections_of_all_threads(
    unreachable: DatabaseWrapper, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OperationalError):
        unreachable.ensure_connection()
    copy = connection.copy()
    with pytest.raises(OperationalError, match="not tried again yet"):
        copy.ensure_connection()
    monkeypatch.setattr(breaker, "monotonic", lambda: time.monotonic() + 2 * GENEROUS_S)
    copy.ensure_connection()
    copy.close()


def test_failed_statement_leaves_the_breaker_closed() -> None:
    with connection.cursor() as cursor, pytest.raises(OperationalError):
        cursor.execute("SET STATEMENT max_statement_time = 0.05 FOR SELECT SLEEP(5)")
    assert not base.breaker.open


def _waits_for_a_row() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")
        [_, number] = cursor.fetchone()
    return int(number) > 0


@race
@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_statement_by_itself_survives_a_deadlock(
    guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        monkeypatch.setattr(base, "_MOST_ATTEMPTS", 1)
    users = User.objects.filter(pk__in=[it.pk for it in make_buyers(10)]).order_by("-pk")
    first, last = users.last(), users.first()
    assert first
    assert last
    holding = threading.Event()

    def other() -> None:
        with transaction.atomic():
            # With more changes than the other: InnoDB ends the transaction with the fewest.
            for user in users.exclude(pk=last.pk).order_by("pk"):
                User.objects.filter(pk=user.pk).update(last_name="other")
            holding.set()
            wait_for(_waits_for_a_row, what="a wait for a row")
            User.objects.filter(pk=last.pk).update(last_name="other")

    def by_itself() -> int:
        assert holding.wait(GENEROUS_S)
        return users.filter(pk__in=[first.pk, last.pk]).update(first_name="itself")

    ended, updated = at_once(other, by_itself)
    assert ended is None
    if guarded:
        assert updated == 2
        assert set(users.values_list("last_name", flat=True)) == {"other"}
    else:
        assert "Deadlock" in str(updated)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "timeout_s"),
    [
        ("import seckill_site.wsgi", 1),
        ("import seckill_site.asgi", 1),
        ("import seckill_site.celery, django; django.setup()", 3),
    ],
    ids=["wsgi", "asgi", "worker"],
)
def test_web_process_waits_a_second_for_a_connection(start: str, timeout_s: int) -> None:
    look = "from django.db import connection as it; it = it.get_connection_params()"
    command = [sys.executable, "-c", f"{start}; {look}; print(it['connect_timeout'])"]
    found = subprocess.run(
        command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=GENEROUS_S
    )
    assert found.stdout.split()[-1] == str(timeout_s)
