"""The four forms of the course's lock: how each is taken and released."""

from __future__ import annotations

import threading
import time

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from lab import locks
from lab.keys import LabKeys
from lab.locks import LEASE_MS, ExpiringLock, OwnedLock, SetnxLock, WatchdogLock
from seckill_site.ledger_connection import ledger_connection
from tests.support.patience import MOMENT_S, wait_for

NAME = LabKeys(1).lock_of(7)

FORMS = [SetnxLock, ExpiringLock, OwnedLock, WatchdogLock]
LEASED = [ExpiringLock, OwnedLock]

AnyLock = SetnxLock | ExpiringLock | OwnedLock | WatchdogLock


@pytest.fixture
def long_lease_ms(monkeypatch: pytest.MonkeyPatch) -> int:
    """Set a lease that a watchdog renews in time even if the machine stalls for a second."""
    monkeypatch.setattr(locks, "LEASE_MS", 2_000)
    return locks.LEASE_MS


@pytest.fixture
def client() -> Redis:
    return ledger_connection()


def held(form: type[AnyLock]) -> AnyLock:
    """Return a lock of this form that is taken."""
    lock = form(NAME)
    assert lock.take()
    return lock


def run_out(client: Redis) -> None:
    """End the lease now."""
    assert client.pexpire(NAME, 0)


def watchdogs() -> list[threading.Thread]:
    return [it for it in threading.enumerate() if it.name == "lab-watchdog"]


@pytest.fixture(autouse=True)
def no_watchdog_left() -> None:
    """Wait for the watchdogs of earlier tests."""
    for thread in watchdogs():
        thread.join(MOMENT_S)
        assert not thread.is_alive()


@pytest.mark.parametrize("form", FORMS)
def test_lock_has_one_holder_until_release(form: type[AnyLock]) -> None:
    lock = held(form)
    assert not form(NAME).take()
    lock.release()
    held(form).release()


@pytest.mark.parametrize("form", FORMS)
def test_buyers_have_separate_locks(form: type[AnyLock]) -> None:
    lock, other = held(form), form(LabKeys(1).lock_of(8))
    assert other.take()
    lock.release()
    other.release()


def test_setnx_lock_never_expires(client: Redis) -> None:
    held(SetnxLock)
    assert client.pttl(NAME) == -1


@pytest.mark.parametrize("form", LEASED)
def test_lease_expires(form: type[AnyLock], client: Redis) -> None:
    held(form)
    assert 0 < client.pttl(NAME) <= LEASE_MS
    another = form(NAME)
    wait_for(another.take, what="the end of the lease")
    another.release()


@pytest.mark.parametrize("form", [SetnxLock, ExpiringLock])
def test_plain_del_deletes_anothers_lock(form: type[AnyLock], client: Redis) -> None:
    late = held(form)
    client.delete(NAME)  # it expired, or somebody cleaned up
    held(form)
    late.release()
    assert form(NAME).take()  # although the second holder is still at work


@pytest.mark.parametrize("form", [OwnedLock, WatchdogLock])
def test_compared_del_keeps_anothers_lock(form: type[AnyLock], client: Redis) -> None:
    late = held(form)
    run_out(client)
    second = held(form)
    late.release()
    assert not form(NAME).take()
    second.release()
    assert client.exists(NAME) == 0


@pytest.mark.parametrize("form", LEASED)
def test_late_release_after_expiry_is_silent(form: type[AnyLock], client: Redis) -> None:
    first = held(form)
    run_out(client)
    held(form).release()
    first.release()


def test_owner_renews_only_its_own_lock(client: Redis) -> None:
    lock = OwnedLock(NAME)
    assert lock.take()
    client.pexpire(NAME, LEASE_MS // 2)
    assert lock.renew()
    assert client.pttl(NAME) > LEASE_MS // 2
    client.set(NAME, "another's", px=LEASE_MS // 2)
    assert not lock.renew()
    assert client.pttl(NAME) <= LEASE_MS // 2


def test_watchdog_keeps_a_lock_beyond_its_lease(client: Redis, long_lease_ms: int) -> None:
    lock = held(WatchdogLock)
    until = time.monotonic() + 1.5 * long_lease_ms / 1_000
    while time.monotonic() < until:
        assert not WatchdogLock(NAME).take()
        time.sleep(0.05)
    lock.release()
    assert client.exists(NAME) == 0


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
