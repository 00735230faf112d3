"""A part that is stopped, not gone, costs an error in time and never a thread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper

from seckill_site.settings import database_options
from tests.support.patience import GENEROUS_S
from tests.support.proxy import FaultProxy

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "mysql", reason="SQLite is no server"),
]


@contextmanager
def through_proxy() -> Iterator[tuple[BaseDatabaseWrapper, FaultProxy]]:
    """Connect as the site does, but through a proxy."""
    site = connection.settings_dict
    upstream = site["OPTIONS"].get("unix_socket") or (site["HOST"], int(site["PORT"]))
    copied = connection.copy()
    with FaultProxy(upstream) as proxy:
        copied.settings_dict["OPTIONS"].pop("unix_socket", None)
        copied.settings_dict.update(HOST="127.0.0.1", PORT=str(proxy.port))
        copied.settings_dict["OPTIONS"].update(read_timeout=1, write_timeout=1, connect_timeout=1)
        try:
            yield copied, proxy
        finally:
            proxy.heal()
            copied.close()


def test_database_timeout_follows_its_setting(settings: object) -> None:
    options = database_options(connection.settings_dict["ENGINE"])  # not those of the tests
    wanted = settings.SECKILL_DATABASE_TIMEOUT_S  # type: ignore[attr-defined]
    assert (options["read_timeout"], options["write_timeout"]) == (wanted, wanted)
    assert 0 < options["connect_timeout"] <= 3


def test_silent_database_times_out_and_recovers() -> None:
    with through_proxy() as (database, proxy):
        with database.cursor() as cursor:
            cursor.execute("SELECT 1")
            proxy.stall()
            began = time.monotonic()
            with pytest.raises(OperationalError):
                cursor.execute("SELECT 2")
            assert time.monotonic() - began < GENEROUS_S
        database.close()
        proxy.heal()
        with database.cursor() as cursor:
            cursor.execute("SELECT 3")
            assert cursor.fetchone() == (3,)
