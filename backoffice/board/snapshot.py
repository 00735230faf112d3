"""The board: everything that moves in one sale, at one moment, in a fixed number of questions.

However large the sale, one look is one statement for the row, one for the last minutes' answers and
one round trip to Redis for each of ledger and tally. What has to read every order is counted apart,
in one pass for everybody who looks, and kept the longer the more it costs.
"""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from django.conf import settings
from django.core.cache import cache
from django.db.models import Count, Q

from orders.models import OrderStatus, VoucherOrder
from seckill_site.clock import epoch_ms, from_epoch_ms
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.request_stats import ACCEPTED, RequestCount, read_request_counts
from vouchers.inventory.sale_state import Snapshot, snapshots
from vouchers.models import SaleState, SeckillVoucher

WINDOW_S = 120
"""So many seconds of answers the board shows."""

RATE_S = 5
"""Over so many seconds what is called a rate now is measured."""

OPEN_S = 2
"""The last seconds are left out: web processes still add to them."""

KEPT_TIMES = 20
"""Counts are kept so many times as long as they took: counting takes 5 % of one connection."""

KEPT_S = (1.0, 60.0)
"""But at least and at most so long."""

STALE_S = 3600
COUNTING_S = 30
"""After so long another may count, as whoever did has died or failed."""


@dataclass(frozen=True)
class SaleSum:
    """What the units of a sale should add up to: left and pending in Redis, live in the database.

    Redis is read first. An order that is committed and confirmed in between is counted twice, as
    pending and as live: so many units too many are *in flight* and no difference.
    """

    total: int
    left: int
    pending: int
    live: int

    @property
    def difference(self) -> int:
        """Units that are nowhere; below none, units that are in two places."""
        return self.total - self.left - self.pending - self.live

    @property
    def in_flight(self) -> bool:
        """Whether pending entries that became orders meanwhile can be all that is too many."""
        return -self.pending <= self.difference < 0


@dataclass(frozen=True)
class Pace:
    """How order requests were answered lately: seconds from ``first_s``, and sums by answer."""

    first_s: int
    requests: list[float]
    accepted: list[float]
    answers: dict[str, int]

    @property
    def requests_now(self) -> float:
        return sum(self.requests[-RATE_S:]) / RATE_S

    @property
    def accepted_now(self) -> float:
        return sum(self.accepted[-RATE_S:]) / RATE_S


@dataclass(frozen=True)
class Counts:
    """What takes reading every row of a sale: its orders by status, all its answers."""

    statuses: dict[str, int]
    answers: dict[str, int]
    counted_at_ms: int


@dataclass(frozen=True)
class Board:
    """A sale at one moment; what is None nobody can tell now.

    ``now`` is by the clock of Redis where it tells. ``ledger_answers`` is also true where the sale
    is not loaded.
    """

    sale: SeckillVoucher
    now: dt.datetime
    ledger_answers: bool
    found: Snapshot | None
    pace: Pace | None
    counts: Counts | None

    @property
    def state(self) -> SaleState:
        return self.found.state if self.found else self.sale.state_at(self.now)

    @property
    def sum(self) -> SaleSum | None:
        """The sum with the row's own count of live orders, which costs nothing to read."""
        if self.found is None:
            return None
        sale, found = self.sale, self.found
        return SaleSum(sale.stock, found.remaining, found.pending, sale.sold)

    @property
    def oldest_pending_age_ms(self) -> int | None:
        """How long the oldest pending entry has been waiting to become an order."""
        if self.found is None or self.found.oldest_pending_ms is None:
            return None
        return max(0, self.found.now_ms - self.found.oldest_pending_ms)

    @property
    def is_late(self) -> bool:
        """Whether an entry is pending for so long that it is sent again."""
        return bool((self.oldest_pending_age_ms or 0) > settings.SECKILL_SWEEP_AGE_MS)

    @property
    def is_behind(self) -> bool:
        """Whether orders are written so late that nobody new is accepted."""
        return bool((self.oldest_pending_age_ms or 0) > settings.SECKILL_BEHIND_MS)


def look_at(*, sale_id: int, now: dt.datetime) -> Board:
    """Return what the board of a sale shows.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    """
    found, ledger_answers = _snapshot(sale_id)  # before the row: see SaleSum
    sale = SeckillVoucher.objects.select_related("voucher").get(pk=sale_id)
    pace = _pace(sale, now) if ledger_answers else None
    return Board(
        sale=sale,
        now=from_epoch_ms(found.now_ms) if found else now,
        ledger_answers=ledger_answers,
        found=found,
        pace=pace,
        counts=_counts(sale, now) if ledger_answers else _kept_counts(sale),
    )


def _snapshot(sale_id: int) -> tuple[Snapshot | None, bool]:
    """Return the sale as the ledger has it, and whether the ledger answered."""
    try:
        return snapshots(sale_ids=[sale_id])[sale_id], True
    except LedgerUnavailable:
        return None, False


# --- The pace -------------------------------------------------------------------------------------


def _pace(sale: SeckillVoucher, now: dt.datetime) -> Pace | None:
    last_s = int(now.timestamp()) - OPEN_S
    first_s = last_s - WINDOW_S + 1
    # From the minute on: what is stored by minutes is known by the begin of each.
    since = dt.datetime.fromtimestamp(first_s - first_s % 60, tz=dt.UTC)
    try:
        return _spread(read_request_counts(sale=sale, since=since), first_s, last_s)
    except LedgerUnavailable:
        return None


def _spread(rows: Iterable[RequestCount], first_s: int, last_s: int) -> Pace:
    """Lay the counts out second by second; one of a whole minute evenly."""
    requests, accepted = ([0.0] * (last_s - first_s + 1) for _ in range(2))
    answers: Counter[str] = Counter()
    for row in rows:
        begins = int(row.at.timestamp())
        share = row.count / row.seconds
        shown = range(max(begins, first_s), min(begins + row.seconds, last_s + 1))
        answers[row.answer] += round(share * len(shown))
        for second in shown:
            requests[second - first_s] += share
            if row.answer == ACCEPTED:
                accepted[second - first_s] += share
    return Pace(first_s, requests, accepted, dict(+answers))


# --- Counts ---------------------------------------------------------------------------------------


def _counts(sale: SeckillVoucher, now: dt.datetime) -> Counts | None:
    """Count, unless it was done lately or somebody is at it; None where nobody ever has."""
    key = _key(sale)
    kept = cache.get(key)
    if kept and epoch_ms(now) < kept["until_ms"]:
        return Counts(**kept["counts"])
    if not cache.add(f"{key}:counting", 1, timeout=COUNTING_S):
        return Counts(**kept["counts"]) if kept else None
    # Where counting fails, the board goes on without for a while, as the key stays.
    began = time.monotonic()
    counts = _count(sale, now)
    kept_s = min(max(KEPT_S[0], KEPT_TIMES * (time.monotonic() - began)), KEPT_S[1])
    until_ms = epoch_ms(now) + int(kept_s * 1000)
    cache.set(key, {"counts": asdict(counts), "until_ms": until_ms}, timeout=STALE_S)
    cache.delete(f"{key}:counting")
    return counts


def _kept_counts(sale: SeckillVoucher) -> Counts | None:
    kept = cache.get(_key(sale))
    return Counts(**kept["counts"]) if kept else None


def _count(sale: SeckillVoucher, now: dt.datetime) -> Counts:
    # Not grouped: a million orders are then read once, and not sorted through a second index.
    sums = {status: Count("pk", filter=Q(status=status)) for status in OrderStatus.values}
    statuses = VoucherOrder.objects.filter(seckill_voucher=sale).aggregate(**sums)
    answers: Counter[str] = Counter()
    try:
        for row in read_request_counts(sale=sale):
            answers[row.answer] += row.count
    except LedgerUnavailable:
        answers.clear()
    return Counts(statuses, dict(answers), epoch_ms(now))


def _key(sale: SeckillVoucher) -> str:
    return f"board:{sale.pk}"
