"""Lock servers: what a killed and a frozen holder do to the next one, on real servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.stopped import lock_servers
from bench.stopped.lock_servers import LANDS, LEASE_S, REFUSED, compare
from lab.models import LabLock
from seckill_site.redis.ledger_connection import ledger_connection
from tests.bench.stopped.servers import server_of
from tests.support.patience import MOMENT_S, Stalls

pytestmark = pytest.mark.django_db(transaction=True)

OURS, ROW, GET_LOCK, ZOOKEEPER, ETCD = lock_servers.FORMS


def measured(monkeypatch: pytest.MonkeyPatch, title: str) -> list[object]:
    """Return the row of one lock; nothing is left of it."""
    monkeypatch.setattr(lock_servers, "FORMS", {title: lock_servers.FORMS[title]})
    monkeypatch.setattr(lock_servers, "HAND_OVERS", 2)
    (row,) = compare()
    assert not LabLock.objects.exists()
    assert not ledger_connection().keys("lab:*")
    return list(row)


@pytest.mark.concurrency
@pytest.mark.parametrize(
    ("title", "tells"),
    [
        pytest.param(ROW, False, marks=pytest.mark.slow),
        pytest.param(OURS, True, marks=pytest.mark.faults),
        pytest.param(ZOOKEEPER, True, marks=pytest.mark.faults),
        pytest.param(ETCD, True, marks=pytest.mark.faults),
    ],
)
def test_late_write_of_a_frozen_holder_is_refused_by_its_token_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, title: str, tells: bool
) -> None:
    stalls = Stalls()
    with server_of(lock_servers.FORMS[title].setting, tmp_path):
        row = measured(monkeypatch, title)
    _, *costs, after_kill_s, after_freeze_s, notice, unchecked, checked = row
    assert all(isinstance(it, float) and it > 0 for it in costs)
    for seconds in (after_kill_s, after_freeze_s):
        assert isinstance(seconds, float)
        assert 0.3 * LEASE_S < seconds < 2 * LEASE_S + 1 + stalls.seconds()
    assert isinstance(notice, float) if tells else notice == "never"
    assert (unchecked, checked) == (LANDS, REFUSED)


@pytest.mark.slow
@pytest.mark.concurrency
def test_get_lock_of_a_killed_holder_is_free_and_of_a_frozen_one_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stalls = Stalls()
    *_, after_kill_s, after_freeze, notice, unchecked, checked = measured(monkeypatch, GET_LOCK)
    assert isinstance(after_kill_s, float)
    assert after_kill_s < MOMENT_S + stalls.seconds()
    assert (after_freeze, notice, unchecked, checked) == ("keeps it", None, None, None)


@pytest.mark.parametrize("title", [ZOOKEEPER, ETCD])
def test_absent_server_has_a_row_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, title: str
) -> None:
    monkeypatch.delenv(lock_servers.FORMS[title].setting, raising=False)
    name, absent, *others = measured(monkeypatch, title)
    assert name == title
    assert str(absent).startswith("install ")
    assert others == [None] * 7
