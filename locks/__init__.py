"""Distributed locks in Redis; ``locks/README.md`` says what they guarantee and what they do not.

Further kinds are in modules of their own: ``read_write_lock``, ``quorum_lock``, ``aio``.
"""

from locks.hold import LockNotOwned
from locks.multi_lock import MultiLock
from locks.redis_lock import FairLock, LockBusy, NotReplicated, RedisLock
from locks.scripts import cap_leases, raise_fence

__all__ = [
    "FairLock",
    "LockBusy",
    "LockNotOwned",
    "MultiLock",
    "NotReplicated",
    "RedisLock",
    "cap_leases",
    "raise_fence",
]
