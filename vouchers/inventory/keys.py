"""The ledger in Redis: the keys of a sale, its scripts, how a call is sent and how it can fail.

``docs/ledger.md`` says what each key holds. All keys of a sale share one hash tag, so they are in
one slot of a cluster and one script may touch them all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from redis.exceptions import RedisError

from locks.lua_script import Argument, LuaScript, ScriptCall
from seckill_site.front_door.ledger_node import ledger_node
from seckill_site.redis.ledger_connection import ledger_connection

logger = logging.getLogger(__name__)

T = TypeVar("T")

STATE = "state"
"""The field of ``buyers`` that is no buyer: Note [Epoch and state] in ``rebuild.py``."""

ASIDE_MS = 10**14
"""Added to the time of a pending entry that is set aside: still pending, but no worker takes it."""

CONTENTS = ("buyers", "pending", "ended", "tries", "barred", "waiting")
"""The keys of the ledger itself, in the order of ``lua/include/read_ledger.lua``."""

BUILT = (*CONTENTS, "sale", "room", "entries")
"""The keys whose content a build of the ledger makes again."""


class LedgerUnavailable(Exception):
    """Redis did not respond: the call may or may not have run. It is safe to repeat.

    Every function of this package that calls Redis may raise this, even if its docstring does not
    say so.
    """


class NotLoaded(Exception):
    """The ledger of a sale is not in Redis, or is incomplete."""


class NewerFormat(LedgerUnavailable):
    """A newer release has made the ledger of a sale: this one changes nothing in it."""


class OtherSale(NotLoaded):
    """The ledger is that of another sale with this id, which a restored backup gave again."""


def ledger_script(name: str) -> LuaScript:
    """Return the script ``lua/<name>.lua``."""
    return LuaScript(Path(__file__).parent / "lua" / f"{name}.lua")


@contextmanager
def ledger_errors() -> Iterator[None]:
    """Turn errors of the Redis client into :class:`LedgerUnavailable`."""
    try:
        yield
    except RedisError as error:
        raise LedgerUnavailable(str(error)) from error


def send(call: ScriptCall[T]) -> T:
    """Send a call to the ledger's Redis and return its result."""
    with ledger_errors():
        return call.run(ledger_connection())


async def ask(call: ScriptCall[T]) -> T:
    """Send a call from a coroutine, as :func:`send` does from a thread."""
    try:  # as ledger_errors(), which costs every order more than the error does
        return await ledger_node(with_then=bool(call.then)).run(call)
    except RedisError as error:
        raise LedgerUnavailable(str(error)) from error


def run_script(
    script: LuaScript, keys: Sequence[str], *args: Argument, read: Callable[[Any], T]
) -> T:
    """Run a script on the ledger's Redis and return its result."""
    return send(ScriptCall(script=script, keys=keys, args=args, read=read))


def send_many(calls: Sequence[ScriptCall[T]]) -> list[T]:
    """Send calls of one script in one round trip and return their results."""
    if not calls:
        return []
    with ledger_errors():
        pairs = [(call.keys, call.args) for call in calls]
        replies = calls[0].script.run_many(ledger_connection(), pairs)
    return [call.settle([reply]) for call, reply in zip(calls, replies, strict=True)]


def log_wrong_types(*, sale_id: int, keys: Sequence[str]) -> None:
    """Name the keys of a sale that had a wrong type and were deleted, if there are any."""
    if keys:
        logger.error("sale %s: deleted keys of a wrong type: %s", sale_id, ", ".join(keys))


class _Key:
    """A key of :class:`LedgerKeys`: its name, with ``%d`` for the sale, and its type in Redis."""

    def __init__(self, name: str, kind: str = "string") -> None:
        self._name, self.kind = name, kind

    def __get__(self, keys: LedgerKeys, owner: type[LedgerKeys]) -> str:
        return self._name % keys.sale_id


@dataclass(frozen=True)
class LedgerKeys:
    """The keys of one sale."""

    sale_id: int

    sale = _Key("seckill:{%d}:sale", "hash")
    buyers = _Key("seckill:{%d}:buyers", "hash")
    pending = _Key("seckill:{%d}:pending", "zset")
    ended = _Key("seckill:{%d}:ended", "hash")
    tries = _Key("seckill:{%d}:tries", "hash")
    barred = _Key("seckill:{%d}:barred", "hash")
    waiting = _Key("seckill:{%d}:waiting", "zset")
    room = _Key("seckill:{%d}:room", "hash")
    visits = _Key("seckill:{%d}:visits", "hash")
    entries = _Key("seckill:{%d}:entries", "hash")
    price = _Key("seckill:{%d}:price")
    fresh = _Key("seckill:{%d}:fresh", "zset")

    kick = _Key("seckill:{%d}:kick")
    loading = _Key("seckill:{%d}:loading")
    trying = _Key("seckill:{%d}:trying")
    backoff = _Key("seckill:{%d}:backoff")
    failures = _Key("seckill:{%d}:failures")
    pace = _Key("seckill:{%d}:pace")
    limits = _Key("seckill:{%d}:limits", "hash")
    limited = _Key("seckill:{%d}:limited", "zset")
    swept = _Key("seckill:{%d}:swept", "hash")
    tally = _Key("seckill:{%d}:tally", "hash")
    junk = _Key("seckill:{%d}:junk", "list")
    changing = _Key("seckill:{%d}:changing", "zset")

    sale_lock = _Key("lock:seckill:{%d}:sale")
    fence = _Key("lock:seckill:{%d}:fence")

    @property
    def contents(self) -> list[str]:
        """The keys of the ledger itself, in the order of ``CONTENTS``."""
        prefix = f"seckill:{{{self.sale_id}}}:"
        return [prefix + name for name in CONTENTS]

    @property
    def movable(self) -> list[str]:
        """``sale`` and the contents, followed by the figures; without locks and their fence."""
        side = [self.kick, self.trying, self.swept, self.tally, self.changing, self.room]
        side += [self.visits, self.limits, self.limited, self.entries, self.fresh, self.price]
        return [self.sale, *self.contents, *side, *self.copies]

    @property
    def types(self) -> dict[str, str]:
        """The type of each key; those in ``BUILT`` come first, in that order."""
        own = {name: key for name, key in vars(LedgerKeys).items() if isinstance(key, _Key)}
        names = [*BUILT, *(name for name in own if name not in BUILT)]
        types = {getattr(self, name): own[name].kind for name in names}
        return types | dict.fromkeys(self.copies, "hash")

    @property
    def copies(self) -> list[str]:
        """The two hashes of copies, which rotate (``lua/include/cache_rows.lua``)."""
        return [f"seckill:{{{self.sale_id}}}:copies:{turn}" for turn in (0, 1)]

    def side(self, name: str, build: str) -> str:
        """Return the key under which one build of the ledger prepares ``name``."""
        return f"seckill:{{{self.sale_id}}}:{name}:{build}"

    def user_lock(self, user_id: int) -> str:
        return f"lock:seckill:{{{self.sale_id}}}:user:{user_id}"
