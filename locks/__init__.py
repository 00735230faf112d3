"""Distributed locks in Redis; see ``locks/README.md`` for what they promise and what not."""

from locks.hold import LockNotOwned
from locks.multi_lock import MultiLock
from locks.redis_lock import LockBusy, RedisLock
from locks.scripts import raise_fence

__all__ = ["LockBusy", "LockNotOwned", "MultiLock", "RedisLock", "raise_fence"]
