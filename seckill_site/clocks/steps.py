"""Whatever ends, expires or is deleted asks two clocks, and waits after one of them was set.

Note [Two clocks]
~~~~~~~~~~~~~~~~~
The clock of Redis or of the database may be set while the shop runs: a wrong time server, a virtual
machine that slept. An hour ahead, one clock alone would end every unpaid order. So what takes
something from a buyer, or deletes rows, waits until both clocks say that its time is over; each
compares times that it gave itself, so clocks that always differ hold nothing back.

Both may be set at once, if they are one machine's. The monotonic clock of a machine is never set:
between two readings, all three must advance by the same. After a step nothing is taken for a
minute. If both stepped, what is older gets its full time anew.

Readings and the last step are kept in Redis, so that every process knows what one has seen. The
wall clocks of processes are never read (``docs/adr/0021``).
"""

import datetime as dt
import logging
import secrets
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from redis.exceptions import RedisError, ResponseError

from seckill_site.clocks.database import database_now
from seckill_site.clocks.ledger import HOLD_S, STEP_MS, in_ms, ledger_now_ms
from seckill_site.clocks.machine import epoch_ms, from_epoch_ms
from seckill_site.process_memory import Latest
from seckill_site.redis.ledger_connection import ledger_connection

logger = logging.getLogger(__name__)

STEPPED = "seckill:clocks:stepped"
"""The key of the last step: what ``_Step`` has, as numbers."""

READINGS = "seckill:clocks:read:"
"""With the name of a machine, the key of its last reading: what ``_Reading`` has, as numbers."""

READING_KEPT_S = 365 * 86_400
"""A clock that is set far ahead must not delete what would show it."""

HOLD_MS = int(HOLD_S * 1000)

TOGETHER_MS = 3_600_000
"""Both clocks were set if one followed the other within this time: each machine sets its own."""

MOST_DRIFT = 0.0005
"""How much faster or slower a clock may run, which is no step: what time servers correct by."""

SLOWEST_MS = 1_000
"""Clocks that took longer to read were not read at the same time."""


class ClocksUnsettled(Exception):
    """A clock was set within the last minute, or Redis did not tell its time: take nothing now."""


class Clocks(NamedTuple):
    """The times of the database and of Redis, read together.

    After both were set, what began before ``anew_since``, by the database, gets its time anew.
    """

    database: dt.datetime
    ledger: dt.datetime
    anew_since: dt.datetime | None = None

    @property
    def earlier(self) -> dt.datetime:
        return min(self.database, self.ledger)


class _Reading(NamedTuple):
    """What a machine has read; ``known`` names the last step that it knew of then."""

    monotonic_ms: int
    database_ms: int
    ledger_ms: int
    known: int = 0


class _Step(NamedTuple):
    """When a step was noticed, and which clocks were set within the hour before (1, else 0).

    ``anew_ms`` is the time of the database when both had been set, the last time; or 0.
    """

    database_ms: int
    ledger_ms: int
    database_set: int
    ledger_set: int
    anew_ms: int

    def is_recent(self, now: _Reading, *, within_ms: int) -> bool:
        ages = (now.database_ms - self.database_ms, now.ledger_ms - self.ledger_ms)
        return any(0 <= age < within_ms for age in ages)


_told = Latest(None, for_s=60.0)
_NO_STEP = _Step(0, 0, 0, 0, 0)


def settled_clocks() -> Clocks:
    """Read both clocks, for what takes something from a buyer or deletes rows.

    :raises ClocksUnsettled: a clock was set within the last minute, or Redis did not respond.
    :raises django.db.Error: the database did not respond.
    """
    try:
        return _settled_clocks()
    except RedisError as error:
        _tell_once_a_minute(f"Redis did not tell its time: {error!r}")
        raise ClocksUnsettled from error
    except ClocksUnsettled as error:
        _tell_once_a_minute(str(error))
        raise


def _tell_once_a_minute(why: str) -> None:
    if _told.claim():
        logger.warning("nothing expires or is deleted now: %s", why)


def earlier_of_both(database_now: dt.datetime) -> dt.datetime:
    """Return the time of the database, or that of Redis if it is behind, without asking Redis."""
    return min(database_now, from_epoch_ms(ledger_now_ms()))


def _settled_clocks() -> Clocks:
    client, key = ledger_connection(), READINGS + _machine()
    began = monotonic()
    database = database_now()
    with client.pipeline(transaction=False) as pipe:
        pipe.time().get(key).get(STEPPED)
        time, before_text, step_text = pipe.execute(raise_on_error=False)
    ended = monotonic()
    if (ended - began) * 1000 > SLOWEST_MS:
        raise ClocksUnsettled("the clocks took too long to read")
    if isinstance(time, Exception):
        raise time
    now = _Reading(int(ended * 1000), epoch_ms(database), in_ms(time))
    before = _Reading(*numbers) if (numbers := _numbers(before_text, count=4)) else None
    known = _Step(*numbers) if (numbers := _numbers(step_text, count=5)) else _NO_STEP
    step = _with_step_between(before, now, known) if before else known
    if step.anew_ms > now.database_ms:  # the database was set back since
        step = step._replace(anew_ms=now.database_ms)
    with suppress(ResponseError):  # a full Redis: the next reading is compared with an older one
        if step != known:
            client.set(STEPPED, _text(step))
        client.set(key, _text(now._replace(known=step.database_ms)), ex=READING_KEPT_S)
    if step.is_recent(now, within_ms=HOLD_MS):
        raise ClocksUnsettled("a clock was set within the last minute")
    anew_since = from_epoch_ms(step.anew_ms) if step.anew_ms else None
    return Clocks(database, from_epoch_ms(now.ledger_ms), anew_since)


def _with_step_between(before: _Reading, now: _Reading, known: _Step) -> _Step:
    """Return the last step: between two readings of this machine, or the one that is known."""
    elapsed = now.monotonic_ms - before.monotonic_ms
    database_ms = now.database_ms - before.database_ms - elapsed
    ledger_ms = now.ledger_ms - before.ledger_ms - elapsed
    most_ms = STEP_MS + abs(elapsed) * MOST_DRIFT
    database_set, ledger_set = int(abs(database_ms) > most_ms), int(abs(ledger_ms) > most_ms)
    is_new = known.database_ms != before.known
    noted_since = is_new and known.is_recent(now, within_ms=elapsed + STEP_MS)
    if noted_since and database_set <= known.database_set and ledger_set <= known.ledger_set:
        return known  # by another machine
    if not database_set and not ledger_set:
        return known
    logger.warning(
        "a clock was set: the database by %+.1f s, Redis by %+.1f s; nothing ends for a minute",
        database_ms / 1000,
        ledger_ms / 1000,
    )
    if known.is_recent(now, within_ms=TOGETHER_MS):
        database_set, ledger_set = database_set | known.database_set, ledger_set | known.ledger_set
    anew_ms = now.database_ms if database_set and ledger_set else known.anew_ms
    return _Step(now.database_ms, now.ledger_ms, database_set, ledger_set, anew_ms)


def _numbers(text: object, *, count: int) -> list[int]:
    """Return the numbers of a key, or none if it is missing or has something else."""
    words = text.split() if isinstance(text, str) else []
    numbers = [int(it) for it in words if it.isascii() and it.isdigit()]
    return numbers if len(numbers) == len(words) == count else []


def _text(numbers: tuple[int, ...]) -> str:
    return " ".join(map(str, numbers))


@cache
def _machine() -> str:
    """Return what processes share whose monotonic clocks agree: a boot, and a namespace of time."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return f"process {secrets.token_hex(8)}"
    namespace = Path("/proc/self/ns/time")  # since Linux 5.6
    return f"{boot} {namespace.readlink()}" if namespace.is_symlink() else boot
