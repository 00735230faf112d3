"""The tally: how a sale's order requests were answered, second by second.

Each process counts in memory and adds its counts to Redis twice a second, so that counting costs a
request no round trip. A process that is killed takes its last half second with it: the tally is for
boards and reports, and no decision rests on it. Beat stores it in the database (``store_tally``).
"""

from __future__ import annotations

import atexit
import datetime as dt
import logging
import os
import threading
import time
from collections import Counter
from dataclasses import dataclass

from seckill_site.failpoints import failpoint
from seckill_site.lua import ledger_connection
from vouchers.ledger import LedgerKeys, LedgerUnavailable, ledger_errors
from vouchers.models import AnswerCount, SeckillVoucher

logger = logging.getLogger(__name__)

ACCEPTED = "accepted"
"""The answer that is no refusal; the others are the codes of the HTTP contract."""

FLUSH_S = 0.5
CLOSED_AFTER = dt.timedelta(seconds=30)
"""Nobody adds to a second that is so long over: it may be stored."""

KEPT_S = 14 * 24 * 3600
MOST_COUNTS = 50_000
"""So many different counts a process keeps while Redis is away; then it begins again."""

SECOND, MINUTE = dt.timedelta(seconds=1), dt.timedelta(minutes=1)
BY_SECONDS = (-MINUTE, 10 * MINUTE)
"""From when to when, counted from the begin, seconds are stored; minutes before and after."""


@dataclass(frozen=True)
class Tallied:
    """So many requests answered so, in the second or minute that begins at ``at``."""

    at: dt.datetime
    answer: str
    count: int


class _Counts:
    """What this process has counted and not yet added to Redis."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[tuple[int, int, str]] = Counter()
        self._timer: threading.Timer | None = None

    def add(self, sale_id: int, second: int, answer: str) -> None:
        with self._lock:
            self._counts[sale_id, second, answer] += 1
            if self._timer is None:
                self._timer = threading.Timer(FLUSH_S, self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        with self._lock:
            counts, self._counts = self._counts, Counter()
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
        try:
            _add_to_redis(counts)
        except LedgerUnavailable as error:
            self._put_back(counts, error)

    def _put_back(self, counts: Counter[tuple[int, int, str]], error: Exception) -> None:
        """Keep the counts for the next flush, which the next request begins."""
        with self._lock:
            self._counts.update(counts)
            if len(self._counts) > MOST_COUNTS:
                self._counts.clear()
                logger.warning("the tally of this process is dropped: %s", error)


_counts = _Counts()
atexit.register(_counts.flush)
os.register_at_fork(after_in_child=_counts.forget)  # the parent's counts are the parent's to add


def count_answer(*, sale_id: int, answer: str) -> None:
    """Count one answer to an order request, now by this process's clock."""
    _counts.add(sale_id, int(time.time()), answer)


def flush() -> None:
    """Add what this process has counted to Redis at once."""
    _counts.flush()


def tally(*, sale: SeckillVoucher, since: dt.datetime | None = None) -> list[Tallied]:
    """Return the counts of a sale, oldest first: what is stored, and what is not stored yet.

    :raises LedgerUnavailable: Redis did not answer.
    """
    # Redis first: what is stored between the two looks is then there twice, and counted once.
    latest = _in_redis(sale.pk)
    rows = AnswerCount.objects.filter(seckill_voucher=sale)
    if since is not None:
        rows = rows.filter(at__gte=since)
    stored = {(row.at, row.answer): row.count for row in rows}
    for (at, answer), count in latest.items():
        if (_bucket(sale, at), answer) not in stored and (since is None or at >= since):
            stored[at, answer] = count
    return [Tallied(at, answer, count) for (at, answer), count in sorted(stored.items())]


def store_tallies(*, now: dt.datetime) -> None:
    """Move what is closed of every tally from Redis into the database; for beat."""
    for sale in SeckillVoucher.objects.filter(SeckillVoucher.not_long_over(now)):
        try:
            store_tally(sale=sale, now=now)
        except LedgerUnavailable as error:
            logger.warning("the tally of sale %s is not stored now: %s", sale.pk, error)


def store_tally(*, sale: SeckillVoucher, now: dt.datetime) -> None:
    """Move the closed seconds and minutes of a sale's tally into the database. Safe to repeat.

    :raises LedgerUnavailable: Redis did not answer.
    """
    sums: Counter[tuple[dt.datetime, str]] = Counter()
    fields = []
    for (at, answer), count in _in_redis(sale.pk).items():
        bucket = _bucket(sale, at)
        if bucket + _length(sale, at) + CLOSED_AFTER <= now:
            sums[bucket, answer] += count
            fields.append(_field(int(at.timestamp()), answer))
    if not fields:
        return
    rows = [
        AnswerCount(seckill_voucher=sale, at=at, answer=answer, count=count)
        for (at, answer), count in sums.items()
    ]
    # What is closed does not change any more: a row that is there already has the same count.
    AnswerCount.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)
    failpoint("tally.stored")
    with ledger_errors():
        ledger_connection().hdel(LedgerKeys(sale.pk).tally, *fields)


def _length(sale: SeckillVoucher, at: dt.datetime) -> dt.timedelta:
    """Return how long the stored count is to which this second belongs."""
    first, last = BY_SECONDS
    # By whole minutes, so that no minute is stored of which some seconds are.
    begins = sale.begins_at.replace(second=0, microsecond=0)
    return SECOND if begins + first <= at < begins + last else MINUTE


def _bucket(sale: SeckillVoucher, at: dt.datetime) -> dt.datetime:
    return at if _length(sale, at) == SECOND else at.replace(second=0)


def _field(second: int, answer: str) -> str:
    return f"{second}:{answer}"


def _in_redis(sale_id: int) -> dict[tuple[dt.datetime, str], int]:
    with ledger_errors():
        fields = ledger_connection().hgetall(LedgerKeys(sale_id).tally)
    found = {}
    for field, count in fields.items():
        second, _, answer = field.partition(":")
        found[dt.datetime.fromtimestamp(int(second), tz=dt.UTC), answer] = int(count)
    return found


def _add_to_redis(counts: Counter[tuple[int, int, str]]) -> None:
    if not counts:
        return
    with ledger_errors(), ledger_connection().pipeline(transaction=False) as pipe:
        for (sale_id, second, answer), count in counts.items():
            pipe.hincrby(LedgerKeys(sale_id).tally, _field(second, answer), count)
        for sale_id in {sale_id for sale_id, _, _ in counts}:
            pipe.expire(LedgerKeys(sale_id).tally, KEPT_S)
        pipe.execute()
