"""The forms of the course's lock, and those in the database: how each is taken and released."""

from __future__ import annotations

import datetime as dt
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import OperationalError, connection, connections
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from lab import locks
from lab.engine.database import cut_connection
from lab.keys import LabKeys
from lab.locks import (
    LEASE_MS,
    ConnectionLock,
    NamedLock,
    OwnedLock,
    RowLock,
    ThreadIdLock,
    UuidLock,
    WatchdogLock,
    is_held,
)
from lab.models import LabLock
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.patience import GENEROUS_S, MOMENT_S, wait_for

NAME = LabKeys(1).lock_of(7)
EPOCH = dt.datetime(2000, 1, 1, tzinfo=dt.UTC)


@pytest.fixture
def long_lease_ms(monkeypatch: pytest.MonkeyPatch) -> int:
    """Set a lease that a watchdog renews in time even if the machine stalls for a second."""
    monkeypatch.setattr(locks, "LEASE_MS", 2_000)
    return locks.LEASE_MS


@pytest.fixture
def client() -> Redis:
    return ledger_connection()


def held(form: type[NamedLock]) -> NamedLock:
    """Return a lock of this form that is taken."""
    lock = form(NAME)
    assert lock.take()
    return lock


def watchdogs() -> list[threading.Thread]:
    return [it for it in threading.enumerate() if it.name == "lab-watchdog"]


@pytest.fixture(autouse=True)
def no_watchdog_left() -> None:
    """Wait for the watchdogs of earlier tests."""
    for thread in watchdogs():
        thread.join(MOMENT_S)
        assert not thread.is_alive()


def test_owner_renews_only_its_own_lock(client: Redis) -> None:
    lock = OwnedLock(NAME)
    assert lock.take()
    client.pexpire(NAME, LEASE_MS // 2)
    assert lock.renew()
    assert client.pttl(NAME) > LEASE_MS // 2
    client.set(NAME, "another's", px=LEASE_MS // 2)
    assert not lock.renew()
    assert client.pttl(NAME) <= LEASE_MS // 2


@pytest.mark.parametrize(("form", "is_kept"), [(ThreadIdLock, False), (UuidLock, True)])
def test_thread_of_another_process_with_the_same_id(
    form: type[NamedLock], is_kept: bool, monkeypatch: pytest.MonkeyPatch, client: Redis
) -> None:
    late = held(form)
    client.delete(NAME)  # its lease is over
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    held(form)
    late.release()
    assert client.exists(NAME) == is_kept


@pytest.mark.parametrize("form", [ThreadIdLock, UuidLock])
def test_other_threads_of_a_process_have_other_ids(form: type[NamedLock]) -> None:
    held(form)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: form(NAME).release()).result(GENEROUS_S)
    assert not form(NAME).take()
    form(NAME).release()
    assert form(NAME).take()


def test_watchdog_ends_with_its_lock() -> None:
    lock = held(WatchdogLock)
    (thread,) = watchdogs()
    lock.release()
    thread.join(MOMENT_S)
    assert not thread.is_alive()


def test_failed_take_starts_no_watchdog() -> None:
    lock = held(OwnedLock)
    assert not WatchdogLock(NAME).take()
    assert watchdogs() == []
    lock.release()


def test_watchdog_gives_up_anothers_lock(client: Redis) -> None:
    held(WatchdogLock)
    (thread,) = watchdogs()
    client.set(NAME, "another's")
    thread.join(MOMENT_S)
    assert not thread.is_alive()
    assert client.get(NAME) == "another's"


@pytest.mark.slow
@pytest.mark.usefixtures("long_lease_ms")
def test_watchdog_survives_a_failed_renewal(monkeypatch: pytest.MonkeyPatch) -> None:
    renew, tries = OwnedLock.renew, []

    def renew_but_once(lock: OwnedLock) -> bool:
        tries.append(lock)
        if len(tries) == 1:
            raise RedisConnectionError("gone")
        return renew(lock)

    monkeypatch.setattr(OwnedLock, "renew", renew_but_once)
    lock = held(WatchdogLock)
    wait_for(lambda: len(tries) >= 3, what="the third renewal")
    assert not WatchdogLock(NAME).take()
    lock.release()


# --- In the database ------------------------------------------------------------------------------


@pytest.fixture
def other_connection() -> Iterator[Callable[[Callable[[], object]], object]]:
    """A function that calls another in a thread with a connection of its own."""
    with ThreadPoolExecutor(1) as pool:
        yield lambda call: pool.submit(call).result(GENEROUS_S)
        pool.submit(connections.close_all).result(GENEROUS_S)


@pytest.mark.django_db(transaction=True)
def test_row_lock_gives_rising_tokens() -> None:
    tokens = []
    for _ in range(3):
        lock = held(RowLock)
        tokens.append(lock.token)
        lock.release()
    assert tokens == [1, 2, 3]


@pytest.mark.django_db(transaction=True)
def test_get_lock_ends_with_its_connection(
    other_connection: Callable[[Callable[[], object]], object],
) -> None:
    assert other_connection(ConnectionLock(NAME).take)
    assert not ConnectionLock(NAME).take()
    other_connection(connections.close_all)
    assert ConnectionLock(NAME).take_within(GENEROUS_S)


@pytest.mark.django_db(transaction=True)
def test_write_of_a_cut_get_lock_holder_fails() -> None:
    """Lock and write share a connection: whoever has lost one cannot do the other."""
    connection.ensure_connection()
    assert ConnectionLock(NAME).take()
    with connection.cursor() as cursor:
        cursor.execute("SELECT CONNECTION_ID()")
        (number,) = cursor.fetchone()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(cut_connection, number).result(GENEROUS_S)
        wait_for(lambda: not pool.submit(is_held, NAME).result(GENEROUS_S))
        pool.submit(connections.close_all).result(GENEROUS_S)
    with pytest.raises(OperationalError):
        LabLock.objects.create(name="late", token=1, expires_at=EPOCH)
    connection.close()
    assert not LabLock.objects.exists()
