"""What a forked child has of its parent's locks: nothing."""

from __future__ import annotations

import os
import signal
import traceback
from collections.abc import Callable

import pytest
from redis import Redis

from locks import LockNotOwned, RedisLock
from tests.locks.waiters import NAME, watchdogs

FENCE = "lock:{t}:fence"
SHORT_MS = 300
"""A lease that shall run out."""
LEASE_MS = 2_500
"""A lease that shall be kept: long enough for a machine that is busy with other things."""


def forked(child: Callable[[], None]) -> int:
    """Run a function in a child that takes none of the test run's own exits, and cannot hang."""
    pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(60)
    try:
        child()
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def status(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_child_holds_none_of_its_parents_locks(
    redis_client: Redis, renewal: Callable[[str], bool]
) -> None:
    lock = RedisLock(redis_client, NAME, lease_ms=LEASE_MS, fence_key=FENCE)
    lock.acquire()

    def child() -> None:
        assert watchdogs() == 0
        assert lock.lost
        assert not lock.owned()
        assert lock.fencing_token is None
        for refused in (lock.release, lock.extend):
            with pytest.raises(LockNotOwned):
                refused()
        own = RedisLock(redis_client, "lock:{t}:child", lease_ms=LEASE_MS)
        with own:
            assert watchdogs() == 1
            assert renewal("lock:{t}:child")
            assert own.owned()
            assert not own.lost

    assert status(forked(child)) == 0
    assert lock.owned()
    assert not lock.lost
    lock.release()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_fork_does_not_renew_a_dead_parents_lock(
    redis_client: Redis, eventually: Callable[..., bool]
) -> None:
    ended, end = os.pipe()

    def grandchild() -> None:
        os.close(end)
        with RedisLock(redis_client, "lock:{t}:alive", lease_ms=LEASE_MS):
            assert os.read(ended, 1) == b""  # the test has seen enough
        assert redis_client.set("lock:{t}:grandchild", "done")

    def child() -> None:
        RedisLock(redis_client, NAME, lease_ms=SHORT_MS).acquire()
        held = RedisLock(redis_client, NAME + "2", lease_ms=SHORT_MS)
        held.acquire()
        forked(grandchild)

    try:
        assert status(forked(child)) == 0
        assert eventually(lambda: redis_client.exists("lock:{t}:alive"))
        assert eventually(lambda: not redis_client.exists(NAME, NAME + "2"))
        assert redis_client.exists("lock:{t}:alive")
    finally:
        os.close(ended)
        os.close(end)
    assert eventually(lambda: redis_client.get("lock:{t}:grandchild") == "done")
