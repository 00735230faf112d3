"""The report on a sale: what was sold, to how many buyers, how fast, and how others were refused.

The number of statements does not depend on the number of orders.
"""

import datetime as dt
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from django.contrib.admin.models import LogEntry
from django.db.models import Count, F, Q, QuerySet, Sum

from backoffice.report.draw import DrawFigures, read_draw
from backoffice.report.durations import Durations, measure_durations
from backoffice.report.request_times import Span, peak_of, spans_of
from backoffice.report.room import RoomFigures, read_room
from backoffice.revenue import EVER_PAID, PAYMENT, REFUNDED_STATUSES, Revenue
from orders.audience.refusal_log import count_refused
from orders.models import OrderEvent, OrderStatus, VoucherOrder, WaitingEntry
from vouchers.catalogue.history import history_text
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.request_stats import read_request_counts, read_stored_counts
from vouchers.inventory.sale_state import Snapshot, shown_snapshots
from vouchers.models import SeckillVoucher

MAX_CHANGES = 200
"""The report lists the first changes of a sale, up to this number."""


@dataclass(frozen=True)
class Orders:
    """The number of orders in one state, and the sum of their prices."""

    status: OrderStatus
    count: int
    cents: int


@dataclass(frozen=True)
class WaitingListFigures:
    """Buyers who joined the waiting list, by outcome; those ``waiting`` have none yet."""

    joined: int
    waiting: int
    offered: int
    left: int
    over: int


@dataclass(frozen=True)
class Change:
    """One change of the sale by staff."""

    at: dt.datetime
    by: str
    what: str


@dataclass(frozen=True)
class SaleReport:
    """All figures of a sale at one moment.

    ``snapshot`` is None if the sale is not loaded or Redis did not respond. In the second case
    ``knows_latest`` is false: ``spans`` lacks the last minutes, which are not stored yet.
    """

    sale: SeckillVoucher
    at: dt.datetime
    snapshot: Snapshot | None
    knows_latest: bool
    orders: tuple[Orders, ...]
    refused: dict[str, int]
    refused_by_rules: dict[str, int]
    buyers: int
    sold_out_at: dt.datetime | None
    written: Durations
    paid: Durations
    waiting_list: WaitingListFigures
    room: RoomFigures | None
    draw: DrawFigures | None
    spans: tuple[Span, ...]
    changes: tuple[Change, ...]

    @property
    def is_over(self) -> bool:
        return self.at >= self.sale.ends_at

    @property
    def accepted(self) -> int:
        """Accepted order ids that have become rows, including refused orders."""
        return sum(it.count for it in self.orders)

    @property
    def conversion(self) -> float | None:
        return self.count(*EVER_PAID) / self.accepted if self.accepted else None

    @property
    def revenue(self) -> Revenue:
        return Revenue(self.cents(*EVER_PAID), self.cents(*REFUNDED_STATUSES))

    @property
    def sold_out_after(self) -> dt.timedelta | None:
        """Time from the start to the last unit sold; also None if the start was moved later."""
        if self.sold_out_at is None or self.sold_out_at < self.sale.begins_at:
            return None
        return self.sold_out_at - self.sale.begins_at

    @cached_property
    def answers(self) -> Counter[str]:
        """Order requests by answer."""
        sums: Counter[str] = Counter()
        for span in self.spans:
            sums.update(span.answers)
        return sums

    @cached_property
    def peak(self) -> Span | None:
        return peak_of(self.spans)

    def count(self, *statuses: OrderStatus) -> int:
        return sum(it.count for it in self.orders if it.status in statuses)

    def cents(self, *statuses: OrderStatus) -> int:
        return sum(it.cents for it in self.orders if it.status in statuses)


def report_sale(*, sale_id: int, now: dt.datetime) -> SaleReport:
    """Return the report on a running or ended sale, even without Redis.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    """
    sale = SeckillVoucher.objects.select_related("voucher", "draw").get(pk=sale_id)
    rows = VoucherOrder.objects.filter(seckill_voucher=sale).order_by()
    had_a_unit = rows.exclude(status=OrderStatus.REFUSED)
    snapshot, spans, knows_latest = _from_redis(sale)
    orders, refused = _orders(rows)
    paid_events = OrderEvent.objects.filter(PAYMENT, order__seckill_voucher=sale)
    return SaleReport(
        sale=sale,
        at=now,
        snapshot=snapshot,
        knows_latest=knows_latest,
        orders=orders,
        refused=refused,
        refused_by_rules=count_refused(sale_id=sale_id),
        buyers=had_a_unit.aggregate(buyers=Count("user", distinct=True))["buyers"],
        sold_out_at=sale.sold_out_at,
        written=measure_durations(
            rows,
            F("created_at") - F("accepted_at"),
            sampled={"pk__in": rows},
            count=sum(it.count for it in orders),
        ),
        paid=measure_durations(
            paid_events.order_by(),
            F("at") - F("order__accepted_at"),
            sampled={"order__in": rows},
            count=sum(it.count for it in orders if it.status in EVER_PAID),
        ),
        waiting_list=_waiting_list(sale),
        room=read_room(sale=sale),
        draw=read_draw(sale=sale),
        spans=tuple(spans),
        changes=_changes(sale),
    )


def _from_redis(sale: SeckillVoucher) -> tuple[Snapshot | None, list[Span], bool]:
    """Return the ledger's figures and the requests; without Redis only the stored requests."""
    try:
        snapshot = shown_snapshots(sales=[sale])[sale.pk]
        return snapshot, spans_of(read_request_counts(sale=sale)), True
    except LedgerUnavailable:
        return None, spans_of(read_stored_counts(sale=sale)), False


def _orders(rows: QuerySet[VoucherOrder]) -> tuple[tuple[Orders, ...], dict[str, int]]:
    """Return the orders of each state, and the number of refused ones by reason."""
    counts: Counter[str] = Counter()
    cents: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    sums = rows.values_list("status", "reason").annotate(Count("pk"), Sum("price_cents"))
    for status, reason, count, sum_cents in sums:
        counts[status] += count
        cents[status] += sum_cents
        if status == OrderStatus.REFUSED:
            refused[reason] += count
    return tuple(Orders(it, counts[it], cents[it]) for it in OrderStatus), dict(refused)


# --- Waiting list and changes ---------------------------------------------------------------------


def _waiting_list(sale: SeckillVoucher) -> WaitingListFigures:
    outcomes = WaitingEntry.Outcome
    sums = {it.value: Count("pk", filter=Q(outcome=it)) for it in outcomes}
    waiting = Count("pk", filter=Q(live=True))
    entries = WaitingEntry.objects.filter(seckill_voucher=sale)
    return WaitingListFigures(**entries.aggregate(joined=Count("pk"), waiting=waiting, **sums))


def _changes(sale: SeckillVoucher) -> tuple[Change, ...]:
    entries = LogEntry.objects.filter(
        content_type__app_label="vouchers",
        content_type__model="seckillvoucher",
        object_id=str(sale.pk),
    )
    oldest = entries.select_related("user").order_by("action_time", "pk")[:MAX_CHANGES]
    return tuple(Change(it.action_time, it.user.get_username(), history_text(it)) for it in oldest)
