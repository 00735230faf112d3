"""The tally: how a sale's order requests were answered, second by second.

Each process counts in memory and adds its counts to Redis twice a second, so that counting costs a
request no round trip. A process that ends waits for its last flush, and one that is killed takes
half a second with it: the tally is for boards and reports, and no decision rests on it. Beat stores
it in rows.
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import re
import secrets
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from django.db import DatabaseError
from redis.exceptions import ResponseError

from locks.lua_script import Argument
from seckill_site.failpoints import failpoint
from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable, ledger_errors, ledger_script
from vouchers.models import AnswerCount, SeckillVoucher

logger = logging.getLogger(__name__)

ACCEPTED = "accepted"
"""The answer that is no refusal; the others are the codes of the HTTP contract."""

FLUSH_S = 0.5
AGAIN_S = 2.0
"""How long a process waits before it tries again to reach Redis."""

MOST_COUNTS = 50_000
"""So many different counts a process keeps while Redis is away; then it begins again."""

CLOSED_AFTER = dt.timedelta(seconds=30)
"""Nobody adds to a second that is so long over, unless Redis was away: it may be stored."""

KEPT = dt.timedelta(days=14)
NUMBER_KEPT_S = 3600

SECOND, MINUTE = dt.timedelta(seconds=1), dt.timedelta(minutes=1)
BY_SECONDS = (-MINUTE, 10 * MINUTE)
"""From when to when, counted from the begin, whole minutes are stored by their seconds."""

_ADD = ledger_script("add_counts")
_FIELD = re.compile(r"([0-9]{1,11}):([a-z_]{1,16})")

Key = tuple[int, int, str]
"""Of one count: sale, second since 1970, answer."""

Latest = dict[tuple[dt.datetime, str], int]
"""The tally of one sale as it is in Redis: so many of each answer in each second."""


@dataclass(frozen=True)
class Tallied:
    """So many requests answered so, in the ``seconds`` (1 or 60) that begin at ``at``."""

    at: dt.datetime
    answer: str
    count: int
    seconds: int = 1


class _Counts:
    """What this process has counted and not yet added to Redis."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Begin with nothing, under a name of its own: the process is new."""
        self._lock = threading.Lock()  # held for a moment, around the counts
        self._sending = threading.Lock()  # held for a round trip
        self._process = secrets.token_hex(8)
        self._number = 0
        self._counts: Counter[Key] = Counter()
        self._unsure: Counter[Key] = Counter()
        """A batch that was sent, while nobody knows whether it arrived."""
        self._timer: threading.Timer | None = None

    def add(self, key: Key) -> None:
        with self._lock:
            self._counts[key] += 1
        if self._timer is None:
            self._flush_in(FLUSH_S, daemon=False)

    def flush(self) -> None:
        with self._sending:
            timer, self._timer = self._timer, None
            if timer:
                timer.cancel()  # where it is not this very call
            try:
                self._send()
                with self._lock:
                    self._unsure, self._counts = self._counts, Counter()
                self._number += 1
                self._send()
            except LedgerUnavailable as error:
                self._keep(error)

    def _send(self) -> None:
        """Send the batch; again under the same number, so that it is added once."""
        if self._unsure:
            _add_to_redis(self._unsure, process=self._process, number=self._number)
            self._unsure = Counter()

    def _keep(self, error: Exception) -> None:
        """Try again later, also where no further request comes; too much is let go."""
        with self._lock:
            if len(self._counts) > MOST_COUNTS:
                self._counts.clear()
                logger.warning("the tally of this process is dropped: %s", error)
        self._flush_in(AGAIN_S, daemon=True)  # no process waits for a Redis that is away

    def _flush_in(self, seconds: float, *, daemon: bool) -> None:
        timer = threading.Timer(seconds, self.flush)
        timer.daemon = daemon
        with self._lock:
            if self._timer is not None:
                return
            self._timer = timer
        try:
            timer.start()
        except RuntimeError:  # there is no thread to be had; the next request asks for one
            self._timer = None


_counts = _Counts()
os.register_at_fork(after_in_child=_counts.forget)  # the parent's counts are the parent's to add


def count_answer(*, sale_id: int, answer: str) -> None:
    """Count one answer to an order request, now by this process's clock; raises nothing."""
    _counts.add((sale_id, int(time.time()), answer))


def flush() -> None:
    """Add what this process has counted to Redis at once; what does not arrive is kept."""
    _counts.flush()


def _add_to_redis(counts: Counter[Key], *, process: str, number: int) -> None:
    """Add a batch to the tallies of its sales in one round trip; what Redis refuses is lost.

    :raises LedgerUnavailable: unknown; the same batch may be sent again under its number.
    """
    kept: list[Argument] = [number, int(KEPT.total_seconds()), NUMBER_KEPT_S]
    arguments: dict[int, list[Argument]] = {}
    for (sale_id, second, answer), count in counts.items():
        arguments.setdefault(sale_id, kept.copy()).extend([f"{second}:{answer}", count])
    keys = {sale_id: LedgerKeys(sale_id).tally for sale_id in arguments}
    with ledger_errors():
        calls = [([keys[it], f"{keys[it]}:{process}"], args) for it, args in arguments.items()]
        replies = _ADD.run_each(ledger_connection(), calls)
    for sale_id, reply in zip(arguments, replies, strict=True):
        if isinstance(reply, ResponseError):
            logger.warning("some of the tally of sale %s is lost: %s", sale_id, reply)


def tally(*, sale: SeckillVoucher, since: dt.datetime | None = None) -> list[Tallied]:
    """Return the counts of a sale, oldest first: what is stored, and what is not stored yet.

    :raises LedgerUnavailable: Redis did not answer.
    """
    # Redis first: what is stored between the two looks is then there twice, and counted once.
    latest = _in_redis([sale.pk])[sale.pk]
    stored = stored_tally(sale=sale, since=since)
    found = {(row.at, row.answer): row for row in stored}
    minutes = {key for key, row in found.items() if row.seconds > 1}
    for (at, answer), count in latest.items():
        if (since is None or at >= since) and (_minute(at), answer) not in minutes:
            found.setdefault((at, answer), Tallied(at, answer, count))
    return sorted(found.values(), key=lambda row: (row.at, row.answer))


def stored_tally(*, sale: SeckillVoucher, since: dt.datetime | None = None) -> list[Tallied]:
    """Return the counts that are in the database, oldest first."""
    rows = AnswerCount.objects.filter(seckill_voucher=sale)
    if since is not None:
        rows = rows.filter(at__gte=since)
    values = rows.order_by("at", "answer").values_list("at", "answer", "count", "seconds")
    return [Tallied(*row) for row in values]


def _in_redis(sale_ids: list[int]) -> dict[int, Latest]:
    """Return the tallies of several sales in one round trip.

    :raises LedgerUnavailable: Redis did not answer.
    """
    with ledger_errors(), ledger_connection().pipeline(transaction=False) as pipe:
        for sale_id in sale_ids:
            pipe.hgetall(LedgerKeys(sale_id).tally)
        found = pipe.execute(raise_on_error=False)
    return dict(zip(sale_ids, map(_parsed, found), strict=True))


def _parsed(fields: object) -> Latest:
    """Read one tally; what somebody else has written into it, or in its place, is passed over."""
    counts = {}
    for name, count in fields.items() if isinstance(fields, dict) else ():
        match = _FIELD.fullmatch(name)
        if match and count.isdecimal():
            counts[dt.datetime.fromtimestamp(int(match[1]), tz=dt.UTC), match[2]] = int(count)
    return counts


@dataclass
class _Bucket:
    """One count as it is to be stored: its seconds in Redis, and its row where there is one."""

    at: dt.datetime
    answer: str
    seconds: int
    stored: int | None
    count: int = 0
    fields: list[str] = field(default_factory=list)

    @property
    def ends_at(self) -> dt.datetime:
        return self.at + dt.timedelta(seconds=self.seconds)


def store_tallies(*, now: dt.datetime) -> None:
    """Move what is closed of every tally from Redis into the database; for beat."""
    sales = {it.pk: it for it in SeckillVoucher.objects.filter(ends_at__gt=now - KEPT)}
    try:
        for sale_id, latest in _in_redis(list(sales)).items():
            _store(sales[sale_id], latest, now)
    except LedgerUnavailable as error:
        logger.warning("the tallies are not stored now: %s", error)


def _store(sale: SeckillVoucher, latest: Latest, now: dt.datetime) -> None:
    if not latest:
        return
    try:
        stored = stored_tally(sale=sale, since=_minute(min(at for at, _ in latest)))
        closed = [it for it in _buckets(sale, stored, latest) if it.ends_at <= now - CLOSED_AFTER]
        _write(sale, closed)
    except DatabaseError as error:  # the sale was deleted meanwhile, say
        logger.warning("the tally of sale %s is not stored now: %s", sale.pk, error)
        return
    failpoint("tally.stored")
    # A row only grows, and its fields go in a later pass, once it has their count: so a pass that
    # died here is repeated without harm, and who was late by some seconds is counted too.
    done = [name for it in closed if it.count <= (it.stored or 0) for name in it.fields]
    if done:
        with ledger_errors():
            ledger_connection().hdel(LedgerKeys(sale.pk).tally, *done)


def _write(sale: SeckillVoucher, closed: list[_Bucket]) -> None:
    rows = [
        AnswerCount(
            seckill_voucher=sale, at=it.at, answer=it.answer, count=it.count, seconds=it.seconds
        )
        for it in closed
        if it.stored is None
    ]
    # Another pass may be storing the same: beat does not wait for one that takes long.
    AnswerCount.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)
    for it in closed:
        if it.stored is not None and it.count > it.stored:
            row = AnswerCount.objects.filter(seckill_voucher=sale, at=it.at, answer=it.answer)
            row.filter(count__lt=it.count).update(count=it.count)


def _buckets(sale: SeckillVoucher, stored: list[Tallied], latest: Latest) -> list[_Bucket]:
    """Add up what is in Redis as it is to be stored, beside what of it is stored already."""
    rows = {(row.at, row.answer): row.count for row in stored}
    # Where the begin was edited meanwhile, a minute goes on as it was begun.
    lengths = {_minute(row.at): row.seconds for row in stored}
    found: dict[tuple[dt.datetime, str], _Bucket] = {}
    for (second, answer), count in latest.items():
        seconds = lengths.get(_minute(second)) or _length_s(sale, _minute(second))
        at = second if seconds == 1 else _minute(second)
        new = _Bucket(at, answer, seconds, rows.get((at, answer)))
        bucket = found.setdefault((at, answer), new)
        bucket.count += count
        bucket.fields.append(f"{int(second.timestamp())}:{answer}")
    return list(found.values())


def _length_s(sale: SeckillVoucher, minute: dt.datetime) -> int:
    """Return how long the counts are that are stored of this minute."""
    first, last = BY_SECONDS
    is_near = minute + MINUTE > sale.begins_at + first and minute < sale.begins_at + last
    return 1 if is_near else 60


def _minute(moment: dt.datetime) -> dt.datetime:
    return moment.replace(second=0)
