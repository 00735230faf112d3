"""Distributed locks in Redis; ``locks/README.md`` says what they guarantee and what they do not."""

from locks.hold import LockNotOwned
from locks.multi_lock import MultiLock
from locks.quorum_lock import QuorumLock
from locks.read_write_lock import ReadWriteLock
from locks.redis_lock import FairLock, LockBusy, NotReplicated, RedisLock
from locks.scripts import cap_leases, raise_fence

__all__ = [
    "FairLock",
    "LockBusy",
    "LockNotOwned",
    "MultiLock",
    "NotReplicated",
    "QuorumLock",
    "ReadWriteLock",
    "RedisLock",
    "cap_leases",
    "raise_fence",
]
