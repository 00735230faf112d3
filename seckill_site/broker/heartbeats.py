"""Heartbeats: which workers, beat and periodic tasks run, which are late, which never started.

A worker's main process notes the queues that it takes from, beat notes itself, and a worker notes
each task of beat that ended without an error: all in one hash, by the clock of Redis. What ought to
run is in the settings, so what has never been there is missed, too (``docs/adr/0038``).
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Any

from celery import current_app
from django.conf import settings
from redis.exceptions import RedisError

from locks.lua_script import LuaScript
from seckill_site.broker.pace import MAY_WAIT, QUIET_PACE
from seckill_site.clocks.ledger import in_ms
from seckill_site.process_memory import Latest
from seckill_site.redis.ledger_connection import ledger_connection

HEARTBEATS = "seckill:heartbeats"
"""The key: what is alive -> when it last was. Its names are those of ``Heartbeat`` and these:"""

SINCE, QUIET = "since", "beat:quiet"
"""The first note of all, and the last of beat at its slower pace."""

EVERY_S = 10.0
LATE_AFTER_S = 30.0

_NOTE = LuaScript(Path(__file__).parent / "lua" / "note_alive.lua")


class State(StrEnum):
    """What a heartbeat says."""

    RUNS = "runs"
    LATE = "late"
    NEVER = "never"
    UNKNOWN = "unknown"
    """Its first time is not over, or something else that is missing explains its silence."""


@dataclass(frozen=True)
class Heartbeat:
    """``beat``, ``queue:<name>`` or ``task:<name>``; ``age_s`` is None if it is not noted."""

    name: str
    state: State = State.UNKNOWN
    age_s: float | None = None

    @property
    def is_missing(self) -> bool:
        return self.state in (State.LATE, State.NEVER)


# --- Noting ---------------------------------------------------------------------------------------

_beat = Latest(None, for_s=EVERY_S)
_finished = Latest[frozenset[str]](frozenset(), for_s=EVERY_S)
"""Tasks that are still to be noted, together."""


def _note(*names: str) -> None:
    with suppress(RedisError):  # its silence is told by itself
        _NOTE.run(ledger_connection(), keys=[HEARTBEATS], args=names)


def note_queues(*, sender: Any, **_: Any) -> None:
    """Have a worker's main process note its queues, as long as its event loop runs."""

    def note() -> None:
        _note(*(f"queue:{it}" for it in sender.app.amqp.queues.consume_from))

    note()
    sender.timer.call_repeatedly(EVERY_S, note)


def note_beat(*, is_quiet: bool) -> None:
    """Note beat and its pace, at most every ten seconds."""
    if _beat.claim():
        _note("beat", *([QUIET] if is_quiet else []))


def note_task(*, sender: Any, **_: Any) -> None:
    """Note what messages of beat have done, in one call at most every ten seconds."""
    if sender.name in {it["task"] for it in settings.CELERY_BEAT_SCHEDULE.values()}:
        _finished.value |= {f"task:{sender.name}"}
    is_in_group = sender.request.is_eager  # which ends later
    if _finished.value and not is_in_group and _finished.claim():
        _note(*_finished.value)
        _finished.value = frozenset()


# --- Reading --------------------------------------------------------------------------------------


def read_heartbeats(parts: Mapping[str, bool]) -> list[Heartbeat]:
    """Return what ought to run, and whether it does: queues, beat, and each task of beat.

    ``parts`` says which servers respond (``current_parts``). What only follows from another thing
    that is missing is unknown, so that an alert names the cause alone.
    """
    gone, beats = {name for name, responds in parts.items() if not responds}, []
    try:
        ages_s = {} if "redis" in gone else _ages_s()
    except RedisError:
        ages_s, gone = {}, {*gone, "redis"}
    was_quiet = ages_s.get(QUIET, inf) <= LATE_AFTER_S  # so what was slow has time to catch up
    for name, interval_s, needs in _expected(quiet_pace=QUIET_PACE if was_quiet else 1):
        age_s, since_s = ages_s.get(name), ages_s.get(SINCE, inf)
        if (since_s if age_s is None else age_s) <= max(LATE_AFTER_S, 2 * interval_s):
            state = State.UNKNOWN if age_s is None else State.RUNS
        elif gone & needs:
            state = State.UNKNOWN
        else:
            state = State.NEVER if age_s is None else State.LATE
            gone.add(name)
        beats.append(Heartbeat(name, state, age_s))
    return beats


def _ages_s() -> dict[str, float]:
    """Return how long ago each name was noted; a time to come counts as old."""
    with ledger_connection().pipeline(transaction=False) as pipe:
        time, noted = pipe.time().hgetall(HEARTBEATS).execute()
    now_ms = in_ms(time)
    return {name: abs(now_ms - int(ms)) / 1000 for name, ms in noted.items() if ms.isdigit()}


def _expected(*, quiet_pace: int) -> Iterator[tuple[str, float, set[str]]]:
    """Yield what ought to run, its interval, and what it needs, which comes before it."""
    for queue in settings.CELERY_TASK_QUEUES:
        yield f"queue:{queue.name}", EVERY_S, {"redis", "broker"}
    yield "beat", EVERY_S, {"redis"}
    for name, entry in settings.CELERY_BEAT_SCHEDULE.items():
        interval_s = entry["schedule"] * (quiet_pace if name in MAY_WAIT else 1)
        queue = current_app.amqp.router.route({}, entry["task"])["queue"].name
        needs = {"redis", "broker", "database", "beat", f"queue:{queue}"}
        yield f"task:{entry['task']}", interval_s, needs
