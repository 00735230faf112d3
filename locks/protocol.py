"""The words in which locks and Redis talk: keys, requests, answers, and their bounds."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

CHANNEL = "locks:released"
"""Where releases are made known that may concern many: the process, then a topic in each line.

One that shall wake a single process goes to the channel of that process instead.
"""

FENCE_LIMIT = 2**53 - 1
"""Fencing tokens stay below this, since an integer in Lua is a double."""

RELEASED_MS = 5_000
"""How long a release can be asked for again: longer than a client goes on trying."""


class AcquireResult(Enum):
    """The answers of the scripts that acquire."""

    GRANTED = 1
    BUSY = 2
    ENDED = 3


class ReleaseResult(Enum):
    """The answers of the scripts that release."""

    RELEASED = 1
    NOT_OWNED = 2


class LookResult(Enum):
    """The answers of ``look.lua``."""

    FREE = 1
    OURS = 2
    TAKEN = 3


class RenewResult(Enum):
    """The answers of ``renew.lua``."""

    RENEWED = 1
    LOST = 2


class Take(Enum):
    """How ``acquire_many.lua`` chooses."""

    FREE = "free"
    ALL = "all"


class Waiting(NamedTuple):
    """How many threads of this process wait after a request, to be noted for ``stay_ms``.

    Where it is negative, no note is taken.
    """

    if_busy: int = -1
    if_had: int = -1
    stay_ms: int = 1


NOT_WAITING = Waiting()


class Fence(NamedTuple):
    """Where fencing tokens are counted, and above which number at least."""

    key: str | None = None
    floor: int = 0


NO_FENCE = Fence()


class Request(NamedTuple):
    """Who asks for a lock, for how long, and what goes with it.

    ``replicas`` is how many of them shall have the lock before it counts, and ``replicas_ms`` how
    long they are waited for.
    """

    owner: str
    lease_ms: int
    fence: Fence = NO_FENCE
    replicas: int = 0
    replicas_ms: int = 0
    waiting: Waiting = NOT_WAITING


class Answer(NamedTuple):
    """What a script that acquires says.

    ``left_ms`` is how long the present holder has it at most, ``replicas`` how many are known to
    have noted what was written.
    """

    result: AcquireResult
    token: int | None = None
    left_ms: int = 0
    names: tuple[str, ...] = ()
    replicas: int = 0


def beside(name: str, suffix: str) -> str:
    """Return the key of something that belongs to a lock, in the cluster slot of its name.

    :raises ValueError: the name has braces, but no hash tag
    """
    return f"{_tagged(name)}:{suffix}"


def channel_of(process: str) -> str:
    """Return the channel on which one process is woken."""
    return f"{CHANNEL}:{process}"


def readers_key(name: str) -> str:
    """Return the key of those who read."""
    return beside(name, "readers")


def fair_topic(name: str, owner: str) -> str:
    """Return the topic under which one who waits in the queue of a fair lock is woken."""
    return f"{name} {owner}"


def check_name(name: str) -> None:
    """Refuse what cannot be the name of a lock.

    :raises ValueError: it is empty, or has a line break, or braces without a hash tag
    """
    if not name or "\n" in name:
        raise ValueError(f"a lock's name is a key of one line, not {name!r}")
    _tagged(name)


def check_fence(value: int) -> None:
    """Refuse what Lua cannot count on from.

    :raises ValueError: the value is negative or not below 2^53 - 1
    """
    if not 0 <= value < FENCE_LIMIT:
        raise ValueError(f"a fencing token is at least 0 and below 2^53 - 1, not {value}")


def check_lease(lease_ms: int) -> int:
    """Refuse a lease that would be over at once.

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
