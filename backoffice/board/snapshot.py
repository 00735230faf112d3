"""The live figures of one sale, read with a fixed number of statements.

A sale of any size costs one statement for the row, one for the answers of the last minutes, and one
round trip to Redis each for the ledger and the request statistics. Counts that read every order are
cached for all viewers; slow counts are cached for longer.
"""

import datetime as dt
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from django.conf import settings
from django.db.models import Count, Q, Sum

from backoffice.board.limits import LimitedRow, read_limited
from backoffice.revenue import EVER_PAID, REFUNDED_STATUSES
from backoffice.slow_counts import kept_counts
from orders.audience.refusal_log import count_refused
from orders.models import Notice, OrderStatus, VoucherOrder
from seckill_site.clocks.machine import epoch_ms, from_epoch_ms
from seckill_site.clocks.watch import wrong_clocks
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.request_stats import ACCEPTED, RequestCount, read_request_counts
from vouchers.inventory.sale_state import Snapshot, shown_snapshots, snapshots, stored_snapshot
from vouchers.models import SaleState, SeckillVoucher

WINDOW_S = 120
"""Seconds of answers that the board shows."""

RATE_S = 5
"""Seconds over which the current rate is measured."""

SETTLED_S = WINDOW_S + 60
"""Age of the answers that are kept with the counts. Later ones are read for every board, so that
"in all" is never less than "last minutes", which comes from the same rows."""

OPEN_S = 2
"""Most recent seconds to leave out, because web processes still add to them."""


@dataclass(frozen=True)
class SaleSum:
    """The units of a sale: left and pending in Redis, live in the database. They sum to the total.

    Redis is read first. An order committed and confirmed in between is counted twice, as pending
    and as live. Such units are *in flight* and not a difference.
    """

    total: int
    left: int
    pending: int
    live: int

    @property
    def difference(self) -> int:
        """Units that are missing; if negative, units that are counted twice."""
        return self.total - self.left - self.pending - self.live

    @property
    def in_flight(self) -> bool:
        """Whether pending entries that have become orders can explain the difference."""
        return -self.pending <= self.difference < 0


@dataclass(frozen=True)
class Pace:
    """Recent answers to order requests: values per second from ``first_s``, sums by answer."""

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
    """Figures that read every row of a sale: its orders by status, all its answers.

    ``settled`` are the answers from before ``settled_s``; None if Redis did not respond.
    ``notices`` has the readers who asked to be told, and those who were told, by kind.
    """

    statuses: dict[str, int]
    revenue: dict[str, int]
    settled: dict[str, int] | None
    settled_s: int
    counted_at_ms: int
    refused_by_rules: dict[str, int] = field(default_factory=dict)
    notices: dict[str, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Board:
    """A sale at one moment; unknown values are None.

    ``now`` is the time of Redis, if known. ``ledger_answers`` is also true if the sale is not
    loaded. ``wrong_clocks`` are those that differ from Redis, in seconds.
    """

    sale: SeckillVoucher
    now: dt.datetime
    ledger_answers: bool
    snapshot: Snapshot | None
    pace: Pace | None = None
    answers: dict[str, int] | None = None
    counts: Counts | None = None
    wrong_clocks: dict[str, float] = field(default_factory=dict)
    limited: list[LimitedRow] = field(default_factory=list)

    @property
    def state(self) -> SaleState:
        return self.snapshot.state if self.snapshot else self.sale.state_at(self.now)

    @property
    def sum(self) -> SaleSum | None:
        """The sum, with the row's own count of live orders."""
        if self.snapshot is None:
            return None
        sale, ledger = self.sale, self.snapshot
        return SaleSum(sale.stock, ledger.remaining, ledger.pending, sale.sold)

    @property
    def oldest_pending_age_ms(self) -> int | None:
        if self.snapshot is None or self.snapshot.oldest_pending_ms is None:
            return None
        return max(0, self.snapshot.now_ms - self.snapshot.oldest_pending_ms)

    @property
    def is_late(self) -> bool:
        """Whether an entry has been pending so long that the sweep sends it again."""
        return bool((self.oldest_pending_age_ms or 0) > settings.SECKILL_SWEEP_AGE_MS)

    @property
    def is_behind(self) -> bool:
        """Whether orders are written so late that new buyers may be refused."""
        return bool((self.oldest_pending_age_ms or 0) > settings.SECKILL_BEHIND_MS)


def read_board(*, sale_id: int, now: dt.datetime) -> Board:
    """Return the live figures of a sale.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    """
    snapshot, ledger_answers = None, True
    try:
        snapshot = snapshots(sale_ids=[sale_id])[sale_id]  # before the row: see SaleSum
    except LedgerUnavailable:
        ledger_answers = False
    sale = SeckillVoucher.objects.select_related("voucher", "draw").get(pk=sale_id)
    if sale.ledger_removed_at:
        snapshot = stored_snapshot(sale)
    counts = _counts(sale, now, may_count=ledger_answers)
    pace, answers = _answers(sale, now, counts) if ledger_answers else (None, None)
    return Board(
        sale=sale,
        now=from_epoch_ms(snapshot.now_ms) if snapshot else now,
        ledger_answers=ledger_answers,
        snapshot=snapshot,
        pace=pace,
        answers=answers,
        counts=counts,
        wrong_clocks=wrong_clocks() if ledger_answers else {},
        limited=read_limited(sale_id=sale_id) if ledger_answers else [],
    )


def read_boards(*, sales: Iterable[SeckillVoucher], now: dt.datetime) -> list[Board]:
    """Return the live figures of several sales without what reads every order of them.

    One round trip to Redis for all, and the pace of each that is running.
    """
    sales = list(sales)
    ledgers: dict[int, Snapshot | None] = {}
    ledger_answers = True
    try:
        ledgers = shown_snapshots(sales=sales)
    except LedgerUnavailable:
        ledger_answers = False
    return [
        Board(
            sale=sale,
            now=from_epoch_ms(snapshot.now_ms) if snapshot else now,
            ledger_answers=ledger_answers,
            snapshot=snapshot,
            pace=(
                _answers(sale, now, None)[0]
                if ledger_answers and sale.begins_at <= now < sale.ends_at
                else None
            ),
        )
        for sale, snapshot in ((sale, ledgers.get(sale.pk)) for sale in sales)
    ]


# --- The pace -------------------------------------------------------------------------------------


def _answers(
    sale: SeckillVoucher, now: dt.datetime, counts: Counts | None
) -> tuple[Pace | None, dict[str, int] | None]:
    """Return the recent answers and the sum of all, both from one reading."""
    last_s = int(now.timestamp()) - OPEN_S
    first_s = last_s - WINDOW_S + 1
    since_s = _minute(first_s)
    if counts:
        since_s = min(since_s, counts.settled_s)
    try:
        rows = read_request_counts(sale=sale, since=dt.datetime.fromtimestamp(since_s, tz=dt.UTC))
    except LedgerUnavailable:
        return None, None
    pace = _spread(rows, first_s, last_s)
    if counts is None or counts.settled is None:
        return pace, None
    answers = Counter(counts.settled)
    for row in rows:
        if row.at.timestamp() >= counts.settled_s:
            answers[row.answer] += row.count
    return pace, dict(answers)


def _minute(second: int) -> int:
    """Return the start of a minute: counts stored by the minute carry it."""
    return second - second % 60


def _spread(rows: Iterable[RequestCount], first_s: int, last_s: int) -> Pace:
    """Spread the counts over the seconds; spread those of a whole minute evenly."""
    requests, accepted = ([0.0] * (last_s - first_s + 1) for _ in range(2))
    answers: Counter[str] = Counter()
    for row in rows:
        start = int(row.at.timestamp())
        share = row.count / row.seconds
        shown = range(max(start, first_s), min(start + row.seconds, last_s + 1))
        answers[row.answer] += round(share * len(shown))
        for second in shown:
            requests[second - first_s] += share
            if row.answer == ACCEPTED:
                accepted[second - first_s] += share
    return Pace(first_s, requests, accepted, dict(+answers))


# --- Counts ---------------------------------------------------------------------------------------


def _counts(sale: SeckillVoucher, now: dt.datetime, *, may_count: bool) -> Counts | None:
    kept = kept_counts(
        f"board:{sale.pk}:counts", lambda: asdict(_count(sale, now)), now=now, may_count=may_count
    )
    return Counts(**kept) if kept else None


def _count(sale: SeckillVoucher, now: dt.datetime) -> Counts:
    # No GROUP BY: a million orders are read once and not sorted through a second index.
    sums = {status: Count("pk", filter=Q(status=status)) for status in OrderStatus.values}
    cents = {
        "gross_cents": Sum("price_cents", filter=Q(status__in=EVER_PAID), default=0),
        "refunded_cents": Sum("price_cents", filter=Q(status__in=REFUNDED_STATUSES), default=0),
    }
    counts = VoucherOrder.objects.filter(seckill_voucher=sale).aggregate(**sums, **cents)
    revenue = {name: int(counts.pop(name)) for name in cents}
    settled_s = _minute(int(now.timestamp()) - SETTLED_S)
    return Counts(
        statuses=counts,
        revenue=revenue,
        settled=_settled(sale, settled_s),
        settled_s=settled_s,
        counted_at_ms=epoch_ms(now),
        refused_by_rules=count_refused(sale_id=sale.pk),
        notices=_count_notices(sale),
    )


def _settled(sale: SeckillVoucher, until_s: int) -> dict[str, int] | None:
    answers: Counter[str] = Counter()
    try:
        for row in read_request_counts(sale=sale):
            if row.at.timestamp() < until_s:
                answers[row.answer] += row.count
    except LedgerUnavailable:
        return None
    return dict(answers)


def _count_notices(sale: SeckillVoucher) -> dict[str, list[int]]:
    kinds = Notice.objects.filter(seckill_voucher=sale).values("kind").order_by()
    rows = kinds.annotate(asked=Count("pk"), told=Count("told_at"))
    return {row["kind"]: [row["asked"], row["told"]] for row in rows}
