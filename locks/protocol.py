"""The protocol between locks and Redis: owners, servers, keys, requests, answers, bounds."""

import os
import re
import secrets
import socket
import threading
from collections.abc import Hashable
from enum import Enum
from functools import cache
from typing import NamedTuple

from redis import Redis
from redis.asyncio import Redis as AsyncRedis

AnyRedis = Redis | AsyncRedis

CHANNEL = "locks:released"
"""The channel of releases that may concern many: the sender, then one topic per line.

A release that wakes a single process goes to the channel of that process instead.
"""

FENCE_LIMIT = 2**53 - 1
"""Fencing tokens stay below this, since an integer in Lua is a double."""

_NAME = re.compile(r"[^\n{}]+|[^\n{]*\{[^\n}]+\}[^\n]*")

RELEASED_MS = 5_000
"""The time for which a release can be repeated: longer than any client retries."""


class AcquireResult(Enum):
    """The codes of the scripts that acquire."""

    GRANTED = 1
    BUSY = 2
    ENDED = 3


class ReleaseResult(Enum):
    """The codes of the scripts that release."""

    RELEASED = 1
    NOT_OWNED = 2


class LookResult(Enum):
    """The codes of ``look.lua``."""

    FREE = 1
    OURS = 2
    TAKEN = 3


class RenewResult(Enum):
    """The codes of ``renew.lua``."""

    RENEWED = 1
    LOST = 2


class WakeResult(Enum):
    """The codes of ``pass_wake_up_on.lua``."""

    DONE = 1
    WAKE_HERE = 2


class WaitNote(NamedTuple):
    """The number of threads of this process that wait after a request, noted for ``ttl_ms``.

    If it is negative, nothing is noted. ``waker`` is the name by which they are woken, by default
    that of the process.
    """

    if_busy: int = -1
    if_granted: int = -1
    ttl_ms: int = 1
    waker: str = ""


NO_NOTE = WaitNote()


class Fence(NamedTuple):
    """The key of the fencing counter, and the floor that all tokens exceed."""

    key: str | None = None
    floor: int = 0


NO_FENCE = Fence()


class Request(NamedTuple):
    """A request for a lock.

    The lock counts only once ``replicas`` replicas have it; they get ``replicas_ms`` for that.
    """

    owner: str
    lease_ms: int
    fence: Fence = NO_FENCE
    replicas: int = 0
    replicas_ms: int = 0
    note: WaitNote = NO_NOTE


class Answer(NamedTuple):
    """The answer of a script that acquires.

    ``left_ms`` is the time left of the present holder's lease, ``replicas`` the number of replicas
    that are known to have the lock.
    """

    result: AcquireResult
    token: int | None = None
    left_ms: int = 0
    names: tuple[str, ...] = ()
    replicas: int = 0


@cache
def process_name() -> str:
    """Return the name of this process: ``host/pid/random``; a forked child has its own."""
    # Lock values are split at spaces, so a host name must not contain any.
    return f"{socket.gethostname().replace(' ', '-')}/{os.getpid()}/{secrets.token_hex(4)}"


def new_owner() -> str:
    """Return a token that no other acquisition has: ``host/pid/thread/random``."""
    place = process_name().rpartition("/")[0]
    return f"{place}/{threading.get_ident()}/{secrets.token_hex(8)}"


os.register_at_fork(after_in_child=process_name.cache_clear)


def server_of(client: AnyRedis) -> Hashable:
    """Return a value that is the same for all clients of one database on one server."""
    options = client.connection_pool.connection_kwargs
    address = options.get("path") or options.get("host")
    if address is None:  # a sentinel's client, for example, has no lasting address
        return client.connection_pool
    return (address, options.get("port"), options.get("db") or 0)


def side_key(name: str, suffix: str) -> str:
    """Return an auxiliary key of a lock, in the same cluster slot as its name.

    :raises ValueError: the name has braces, but no hash tag
    """
    return f"{_tagged(name)}:{suffix}"


def process_channel(process: str) -> str:
    """Return the channel on which one process is woken."""
    return f"{CHANNEL}:{process}"


def readers_key(name: str) -> str:
    """Return the key of the readers of a lock."""
    return side_key(name, "readers")


def fair_topic(name: str, owner: str) -> str:
    """Return the topic under which a waiter in the queue of a fair lock is woken."""
    return f"{name} {owner}"


def check_client(client: AnyRedis, *, retries: bool = True) -> None:
    """Refuse a client that does not decode replies, or that retries although it must not.

    :raises ValueError: the client is unsuitable
    """
    options = client.connection_pool.connection_kwargs
    if not options.get("decode_responses"):
        raise ValueError("locks need a client with decode_responses=True")
    retry = options.get("retry")
    if not retries and retry is not None and retry.get_retries() != 0:
        raise ValueError("a quorum needs clients without retries: retry=Retry(NoBackoff(), 0)")


def check_name(name: str) -> None:
    """Refuse an invalid name of a lock.

    :raises ValueError: it is empty, or has a line break, or braces without a hash tag
    """
    if _NAME.fullmatch(name):  # a batch checks hundreds
        return
    if not name or "\n" in name:
        raise ValueError(f"a lock's name is a key of one line, not {name!r}")
    _tagged(name)


def check_fence(value: int) -> None:
    """Refuse a token that is out of the range in which Lua can count.

    :raises ValueError: the value is negative or not below 2^53 - 1
    """
    if not 0 <= value < FENCE_LIMIT:
        raise ValueError(f"a fencing token is at least 0 and below 2^53 - 1, not {value}")


def check_options(client: AnyRedis, name: str, options: Request) -> Request:
    """Return the options of a lock as a request without an owner, or refuse what cannot be met.

    :raises ValueError: an unsuitable client, an invalid name, a lease or a wait for replicas below
        1 ms, or a floor that no token can be above
    """
    check_client(client)
    check_name(name)
    check_fence(options.fence.floor)
    check_lease(options.lease_ms)
    if options.replicas_ms < 1:  # to Redis, 0 means forever
        raise ValueError(f"replicas are waited for at least 1 ms, not {options.replicas_ms}")
    return options


def check_lease(lease_ms: int) -> int:
    """Return a lease, or refuse one that would end at once.

    :raises ValueError: it is below 1 ms
    """
    if lease_ms < 1:
        raise ValueError(f"a lease is at least 1 ms, not {lease_ms}")
    return lease_ms


def _tagged(name: str) -> str:
    if "{" not in name and "}" not in name:
        return f"{{{name}}}"
    _, _, rest = name.partition("{")
    if rest.find("}") < 1:
        raise ValueError(f"braces, but no hash tag, in the lock's name {name!r}")
    return name
