"""Other servers than a single Redis: one with a replica, and a node of a Redis Cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from locks import FairLock, LockBusy, MultiLock, NotReplicated, RedisLock
from locks.protocol import side_key
from locks.read_write_lock import ReadWriteLock
from tests.locks.servers import HOST, Server, servers, wait_for
from tests.locks.waiters import AT_ONCE_S, HELD_MS, LONG_MS, NAME
from tests.support.proxy import FaultProxy
from tests.support.tiers import slow_after

Eventually = Callable[..., bool]
Elsewhere = Callable[..., Any]

FENCE = "lock:{t}:fence"
BARE, BARE_FENCE = "lock:sale", "{lock:sale}:fence"
ALL_SLOTS = 16_384
READY_MS = 8_000
"""How long a replica may take that does answer: far more than it needs."""


# --- Replicas ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def replicated() -> Iterator[tuple[Server, Server]]:
    """A server and its replica."""
    with servers(1) as (master,), servers(1, *_replica_of(master)) as (replica,):
        yield master, replica


def _replica_of(master: Server) -> list[str]:
    return ["--replicaof", HOST, str(master.port), "--repl-diskless-sync-delay", "0"]


@pytest.fixture
def master(replicated: tuple[Server, Server], eventually: Eventually) -> Iterator[Redis]:
    with replicated[0].client(timeout_s=10) as client:
        client.flushdb()
        assert eventually(lambda: client.wait(1, 100) == 1, within_s=30)
        yield client


@pytest.fixture
def replica(replicated: tuple[Server, Server], master: Redis) -> Iterator[Redis]:
    with replicated[1].client() as client:
        yield client


KINDS: dict[str, Callable[..., RedisLock]] = {
    "plain": RedisLock,
    "fair": FairLock,
    "read": lambda *args, **options: ReadWriteLock(*args, **options).read,
    "write": lambda *args, **options: ReadWriteLock(*args, **options).write,
}


@pytest.mark.parametrize("kind", slow_after(1, KINDS))
def test_granted_lock_is_on_the_replica(master: Redis, replica: Redis, kind: str) -> None:
    with KINDS[kind](master, NAME, replicas=1, replicas_ms=READY_MS) as lock:
        assert lock.owned()
        assert replica.exists(lock._key)


@pytest.mark.parametrize("kind", slow_after(1, KINDS))
def test_silent_replica_leaves_the_lock_free(
    replicated: tuple[Server, Server], master: Redis, elsewhere: Elsewhere, kind: str
) -> None:
    lock = KINDS[kind](master, NAME, replicas=1)
    replicated[1].stop()
    try:
        for wait_ms in (0, 1_000):
            with pytest.raises(NotReplicated, match="0 of 1"):
                lock.acquire(wait_ms=wait_ms)
        assert not lock.owned()
        assert not master.exists(lock._key)
        with KINDS[kind](master, NAME):
            assert not elsewhere(lock.owned)
    finally:
        replicated[1].go_on()
    with KINDS[kind](master, NAME, replicas=1, replicas_ms=READY_MS) as again:
        assert again.owned()


def test_missing_replica_refuses_the_lock(master: Redis) -> None:
    lock = RedisLock(master, NAME, replicas=2)
    with pytest.raises(NotReplicated, match="1 of 2"):
        lock.acquire()
    assert not master.exists(NAME)


def test_endless_replica_wait_is_refused(master: Redis) -> None:
    with pytest.raises(ValueError, match="at least 1 ms"):
        RedisLock(master, NAME, replicas=1, replicas_ms=0)


def test_unreplicated_grant_wakes_the_next_waiter(
    replicated: tuple[Server, Server],
    master: Redis,
    pool: ThreadPoolExecutor,
    eventually: Eventually,
) -> None:
    held = RedisLock(master, NAME)
    held.acquire(lease_ms=HELD_MS)
    replicated[1].stop()
    try:
        strict = pool.submit(RedisLock(master, NAME, replicas=1).acquire, wait_ms=LONG_MS)
        assert eventually(lambda: master.exists(side_key(NAME, "waiting")))
        easy = pool.submit(RedisLock(master, NAME).acquire, wait_ms=LONG_MS)
        held.release()
        with pytest.raises(NotReplicated):
            strict.result(60)
        easy.result(60)
    finally:
        replicated[1].go_on()


def test_acquire_with_replicas_is_one_request(
    replicated: tuple[Server, Server], master: Redis
) -> None:
    with (
        FaultProxy((HOST, replicated[0].port)) as proxy,
        Redis.from_url(proxy.url(), decode_responses=True, socket_timeout=10) as client,
    ):
        for _ in range(2):  # the first teaches the server the script
            before = [proxy.forwarded_requests(sent) for sent in (None, b"\r\nWAIT\r\n")]
            with RedisLock(client, NAME, replicas=1, replicas_ms=READY_MS):
                after = [proxy.forwarded_requests(sent) for sent in (None, b"\r\nWAIT\r\n")]
        assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1]


# --- A cluster -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster_node() -> Iterator[Redis]:
    """A cluster of one node, which refuses what touches two slots."""
    with servers(1, "--cluster-enabled", "yes") as (node,), node.client() as client:
        client.execute_command("CLUSTER ADDSLOTS", *range(ALL_SLOTS))
        wait_for(lambda: client.set("is it", "ready"))
        yield client


@pytest.fixture
def node(cluster_node: Redis) -> Redis:
    cluster_node.flushall()
    return cluster_node


def test_control_cluster_node_refuses_two_slots(node: Redis) -> None:
    with pytest.raises(ResponseError, match=r"CROSSSLOT|same slot"):
        RedisLock(node, BARE, fence_key="fence").acquire()


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("name", "fence"), [(NAME, FENCE), (BARE, BARE_FENCE)])
@pytest.mark.parametrize("kind", KINDS)
def test_each_lock_kind_works_on_a_cluster_node(
    node: Redis,
    pool: ThreadPoolExecutor,
    elsewhere: Elsewhere,
    eventually: Eventually,
    kind: str,
    name: str,
    fence: str,
) -> None:
    held = KINDS["write" if kind == "read" else kind](node, name, fence_key=fence)
    lock = KINDS[kind](node, name, fence_key=fence)
    held.acquire()
    held.extend()
    assert (held.fencing_token, held.owned(), held.locked()) == (1, True, True)
    with pytest.raises(LockBusy):
        elsewhere(lock.acquire, wait_ms=20)
    waiter = pool.submit(lock.acquire, wait_ms=LONG_MS)
    noted = side_key(name, "queue" if kind == "fair" else "waiting")
    assert eventually(lambda: node.exists(noted))
    released_at = time.monotonic()
    held.release()
    waiter.result(60)
    assert time.monotonic() - released_at < AT_ONCE_S
    assert node.get(fence) == ("1" if kind == "read" else "2")


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("names", [(BARE,), ("lock:{t}:a", "lock:{t}:b")])
def test_multi_lock_works_on_a_cluster_node(
    node: Redis, pool: ThreadPoolExecutor, eventually: Eventually, names: tuple[str, ...]
) -> None:
    held, lock = MultiLock(node, names), MultiLock(node, names)
    assert held.acquire_free() == set(names)
    waiter = pool.submit(lock.acquire_all, wait_ms=LONG_MS)
    assert eventually(lambda: node.exists(side_key(names[0], "waiting")))
    released_at = time.monotonic()
    held.release()
    waiter.result(60)
    assert time.monotonic() - released_at < AT_ONCE_S


@pytest.mark.slow
def test_locks_are_renewed_on_a_cluster_node(node: Redis, throughout: Callable[..., bool]) -> None:
    both = ReadWriteLock(node, BARE, lease_ms=2_500)
    with both.write, both.read, RedisLock(node, NAME, lease_ms=2_500) as lock:
        assert throughout(lambda: not (lock.lost or both.read.lost or both.write.lost), for_s=2.8)
