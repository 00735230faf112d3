"""``QuorumLock`` over five real servers: some down, some slow, some killed while it is held."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from redis import Redis

from locks import LockBusy, LockNotOwned, RedisLock, watchdog
from locks.quorum_lock import QuorumLock
from tests.locks.servers import Server, client_of, servers
from tests.locks.test_redis_lock import most_inside_at_once

Eventually = Callable[..., bool]
Elsewhere = Callable[..., Any]

NAME = "lock:sale"
LEASE_MS = 2_500
TIMEOUT_S = 0.4
NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture(scope="module")
def five_servers() -> Iterator[list[Server]]:
    with servers(5) as five:
        yield five


@pytest.fixture(scope="module")
def five_clients(five_servers: list[Server]) -> Iterator[list[Redis]]:
    clients = [server.client(timeout_s=2) for server in five_servers]
    yield clients
    for client in clients:
        client.close()


@pytest.fixture
def five(five_clients: list[Redis]) -> list[Redis]:
    for client in five_clients:
        client.flushdb()
    return five_clients


def had_on(clients: Sequence[Redis]) -> int:
    return sum(client.exists(NAME) for client in clients)


def with_down(clients: list[Redis], count: int) -> list[Redis]:
    """Replace so many by servers that refuse connections."""
    return [client_of(NOWHERE) for _ in range(count)] + clients[count:]


# --- A quorum ------------------------------------------------------------------------------------


def test_quorum_lock_is_held_on_all_servers(five: list[Redis]) -> None:
    with QuorumLock(five, NAME) as lock:
        assert (had_on(five), lock.quorum, lock.lost) == (5, 3, False)
    assert had_on(five) == 0


def test_three_of_five_servers_are_enough(five: list[Redis]) -> None:
    with QuorumLock(with_down(five, 2), NAME) as lock:
        assert (had_on(five), lock.lost) == (3, False)
    assert had_on(five) == 0


def test_two_of_five_servers_are_not_enough(five: list[Redis]) -> None:
    lock = QuorumLock(with_down(five, 3), NAME)
    for wait_ms in (0, 100):
        with pytest.raises(LockBusy):
            lock.acquire(wait_ms=wait_ms)
    assert had_on(five) == 0
    with pytest.raises(LockNotOwned):
        lock.release()


@pytest.mark.parametrize(("taken", "is_had"), [(2, True), (3, False)])
def test_minority_held_by_others_does_not_block(
    five: list[Redis], elsewhere: Elsewhere, taken: int, is_had: bool
) -> None:
    others = [RedisLock(client, NAME) for client in five[:taken]]
    for other in others:
        elsewhere(other.acquire)
    lock = QuorumLock(five, NAME)
    if is_had:
        lock.acquire()
        assert had_on(five) == 5
        lock.release()
    else:
        with pytest.raises(LockBusy):
            lock.acquire()
    assert had_on(five) == taken
    for other in others:
        elsewhere(other.release)


def test_twenty_threads_exclude_each_other(five: list[Redis]) -> None:
    def held() -> Any:
        return QuorumLock(five, NAME).holding(wait_ms=25_000)

    assert most_inside_at_once(held, stay_s=0.005) == 1
    assert had_on(five) == 0


def two_sides(five: list[Redis]) -> list[QuorumLock]:
    """Return the locks of two who are cut off from each other."""
    nowhere = [client_of(NOWHERE) for _ in five]
    return [QuorumLock(up, NAME) for up in (five[:2] + nowhere[2:], nowhere[:2] + five[2:])]


def test_partition_leaves_the_lock_to_the_majority(five: list[Redis]) -> None:
    few, many = two_sides(five)
    with pytest.raises(LockBusy):
        few.acquire()
    with many:
        assert had_on(five) == 3


def test_control_without_majority_both_sides_hold_it(five: list[Redis]) -> None:
    few, many = two_sides(five)
    few.quorum = many.quorum = 2
    with few, many:
        assert had_on(five) == 5


def test_quorum_needs_a_server_and_a_lease(five: list[Redis]) -> None:
    with pytest.raises(ValueError, match="at least one server"):
        QuorumLock([], NAME)
    with pytest.raises(ValueError, match="lease"):
        QuorumLock(five, NAME, lease_ms=0)


# --- Threads -------------------------------------------------------------------------------------


def test_quorum_lock_is_reentrant(five: list[Redis], elsewhere: Elsewhere) -> None:
    lock = QuorumLock(five, NAME)
    with lock:
        with lock.holding():
            pass
        assert had_on(five) == 5
        with pytest.raises(LockBusy):
            elsewhere(lock.acquire)
    assert had_on(five) == 0
    with pytest.raises(LockNotOwned):
        lock.release()


def test_quorum_lock_is_released_by_its_thread_only(
    five: list[Redis], elsewhere: Elsewhere
) -> None:
    with QuorumLock(five, NAME) as lock:
        with pytest.raises(LockNotOwned):
            elsewhere(lock.release)
        with pytest.raises(LockNotOwned):
            QuorumLock(five, NAME).release()
        assert had_on(five) == 5


# --- Servers that go away ------------------------------------------------------------------------


@pytest.mark.slow
def test_quorum_lock_is_renewed(five: list[Redis], throughout: Callable[..., bool]) -> None:
    with QuorumLock(five, NAME, lease_ms=LEASE_MS) as lock:
        assert throughout(lambda: had_on(five) == 5 and not lock.lost, for_s=LEASE_MS / 1000 + 0.3)


@pytest.mark.slow
def test_quorum_lock_ends_when_a_majority_dies(
    throughout: Callable[..., bool], eventually: Eventually
) -> None:
    told: list[float] = []
    with servers(5) as own:
        clients = [server.client(timeout_s=TIMEOUT_S) for server in own]
        lock = QuorumLock(
            clients, NAME, lease_ms=LEASE_MS, on_lost=lambda: told.append(time.monotonic())
        )
        lock.acquire()
        for server in own[:2]:
            server.kill()
        assert throughout(lambda: not lock.lost and not told, for_s=LEASE_MS / 1000 + 0.3)
        for server in own[2:]:
            server.kill()
        killed_at = time.monotonic()
        assert eventually(lambda: lock.lost)
        assert time.monotonic() - killed_at < LEASE_MS / 1000 + 20
        assert eventually(lambda: told)
        assert throughout(lambda: len(told) == 1, for_s=0.5)
        with pytest.raises(LockNotOwned):
            lock.release()


def test_quorum_lock_is_lost_when_a_majority_forgets_it(five: list[Redis]) -> None:
    told = threading.Event()
    lock = QuorumLock(five, NAME, lease_ms=LEASE_MS, on_lost=told.set)
    lock.acquire()
    for client in five[:3]:
        client.flushdb()
    assert told.wait(20)
    assert lock.lost
    with pytest.raises(LockNotOwned):
        lock.release()
    assert had_on(five) == 0


def test_nothing_is_renewed_after_the_release(five: list[Redis], eventually: Eventually) -> None:
    for _ in range(3):
        with QuorumLock(five, NAME, lease_ms=LEASE_MS):
            pass
    names = [thread.name for thread in threading.enumerate()]
    assert names.count(watchdog.THREAD_NAME) <= 1
    assert eventually(
        lambda: watchdog.THREAD_NAME not in [thread.name for thread in threading.enumerate()]
    )


# --- Time ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_silent_servers_use_up_the_lease(five_servers: list[Server]) -> None:
    clients = [server.client(timeout_s=TIMEOUT_S) for server in five_servers]
    slow = five_servers[3:]
    for client in clients:
        client.flushdb()
    for server in slow:
        server.stop()
    try:
        with QuorumLock(clients, NAME, lease_ms=30_000) as lock:
            assert not lock.lost
        asking_ms = int(2 * TIMEOUT_S * 1000)
        with pytest.raises(LockBusy):
            QuorumLock(clients, NAME, lease_ms=asking_ms - 50).acquire()
        assert had_on(clients[:3]) == 0
    finally:
        for server in slow:
            server.go_on()


@pytest.mark.slow
def test_late_grants_of_stopped_servers_expire(five_servers: list[Server]) -> None:
    clients = [server.client(timeout_s=TIMEOUT_S) for server in five_servers]
    for client in clients:
        client.flushdb()
    stopped = five_servers[:3]
    for server in stopped:
        server.stop()
    try:
        with pytest.raises(LockBusy):
            QuorumLock(clients, NAME, lease_ms=800).acquire()
    finally:
        for server in stopped:
            server.go_on()
    assert had_on(clients[3:]) == 0
    with QuorumLock(clients, NAME).holding(wait_ms=5_000):
        assert had_on(clients) >= 3


def test_lease_ends_early_by_the_drift_bound(
    five: list[Redis], monkeypatch: pytest.MonkeyPatch
) -> None:
    lease_ms = 10_000
    lock = QuorumLock(five, NAME, lease_ms=lease_ms)
    began_at = time.monotonic()
    lock.acquire()
    asked_at = time.monotonic()
    bound_s = lease_ms / 1000 * 0.99 - 0.002  # as RedLock has it
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: began_at + bound_s - 0.001)
        lost_before = lock.lost
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: asked_at + bound_s + 0.001)
        assert (lost_before, lock.lost) == (False, True)
    with pytest.raises(LockNotOwned):
        lock.release()
