"""The figures of Today, the home page of the back office.

Each viewer's page costs a fixed number of statements, and one more for each running sale that is
shown. They read ranges of an index; what has to read all changes of the day is kept in the cache.
"""

import datetime as dt
from dataclasses import asdict, dataclass, field
from typing import Any

from django.db.models import Count, F, Min, Q, QuerySet, Sum
from django.utils import timezone

from api.webhooks.endpoints import needing_attention
from backoffice.board.snapshot import Board, read_boards
from backoffice.revenue import PAYMENT, REFUND, Revenue
from backoffice.slow_counts import kept_counts
from backoffice.today.queues import late_queues
from orders.models import (
    JobStatus,
    OrderEvent,
    OrderJob,
    OrderStatus,
    Payment,
    PaymentStatus,
    RefusalReason,
    Rehearsal,
    VoucherOrder,
)
from orders.payments.settlement import open_differences
from orders.payments.unused import due_this_month
from seckill_site.broker.heartbeats import Heartbeat, read_heartbeats
from seckill_site.health import current_errors, current_parts
from seckill_site.web.url_converters import LARGEST_ID
from vouchers.models import SaleStage, SeckillVoucher

SHOWN_SALES = 5
"""The most running sales on the page; the list of sales has the others."""

WATCHED_SALES = 30
"""The most sales, running or just over, that are looked at for problems."""

SET_ASIDE_FOR = dt.timedelta(days=7)
"""How long the page asks for a decision about an order that was set aside."""

SLOW_AFTER = dt.timedelta(minutes=10)
"""A refund or a job without progress for that long needs attention."""

OVERDUE_AFTER = dt.timedelta(minutes=1)
"""An unpaid order that is past its time to pay for that long should have expired."""

REFUSED_FOR = dt.timedelta(days=1)
"""How long the page names a payment that its provider refused to open."""

MOST = 100
"""Problems are counted up to this number."""


@dataclass(frozen=True)
class Next:
    """The next sale to start; ``is_loaded`` is None if Redis did not respond."""

    sale: SeckillVoucher
    is_loaded: bool | None
    rehearsal: Rehearsal | None


@dataclass(frozen=True)
class Trade:
    """What buyers did in a day: orders written, paid, refunded and redeemed, and the sums in cents.

    A redemption that was undone does not count.
    """

    orders: int
    paid: int
    paid_cents: int
    refunded: int
    refunded_cents: int
    redeemed: int

    @property
    def revenue(self) -> Revenue:
        return Revenue(self.paid_cents, self.refunded_cents)


@dataclass(frozen=True)
class Worries:
    """The number of things that need attention, by kind.

    ``boards`` are of sales with a problem, ``parts`` are the servers that do not respond,
    ``beats`` are of what ought to run behind the shop, and ``checks`` are what the start-up checks
    find. ``late`` are queues, by how many seconds.
    """

    boards: list[Board] = field(default_factory=list)
    set_aside: int = 0
    overdue: int = 0
    payments: int = 0
    refused: int = 0
    refunds: int = 0
    disputes: int = 0
    decisions: int = 0
    differences: int = 0
    mails: int = 0
    webhooks: int = 0
    jobs: int = 0
    parts: list[str] = field(default_factory=list)
    beats: list[Heartbeat] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    late: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Rights:
    """Which parts of the page a member of staff may see."""

    sales: bool = False
    orders: bool = False
    payments: bool = False
    system: bool = False


@dataclass(frozen=True)
class Today:
    """The page at one moment. What a viewer may not see, and what is unknown, is None."""

    now: dt.datetime
    ledger_answers: bool
    running: list[Board] | None
    more_running: int
    next: Next | None
    trade: Trade | None
    refunds: dict[str, tuple[int, int]] | None
    worries: Worries


def read_today(*, now: dt.datetime, rights: Rights) -> Today:
    """Return the figures for a viewer with these rights."""
    watched = watched_sales(now) if rights.sales else []
    coming = _coming(now) if rights.sales else None
    boards = read_boards(sales=[*watched, *([coming] if coming else [])], now=now)
    ledger_answers = all(it.ledger_answers for it in boards)
    next_board = boards.pop() if coming else None
    running = [it for it in boards if it.sale.begins_at <= now < it.sale.ends_at]
    return Today(
        now=now,
        ledger_answers=ledger_answers,
        running=running[:SHOWN_SALES] if rights.sales else None,
        more_running=max(0, len(running) - SHOWN_SALES),
        next=_next(next_board) if next_board else None,
        trade=read_trade(now=now) if rights.orders else None,
        refunds=_read_refunds(now) if rights.orders else None,
        worries=_worries(boards, now=now, rights=rights),
    )


def watched_sales(now: dt.datetime) -> list[SeckillVoucher]:
    """Return the sales that run or may still change by themselves, the latest start first."""
    sales = _public_sales().filter(SeckillVoucher.still_active(now), begins_at__lte=now)
    return list(sales.order_by("-begins_at", "-pk")[:WATCHED_SALES])


def _coming(now: dt.datetime) -> SeckillVoucher | None:
    sales = _public_sales().filter(ends_at__gt=now, begins_at__gt=now)
    return sales.order_by("begins_at", "pk").first()


def _public_sales() -> QuerySet[SeckillVoucher]:
    return SeckillVoucher.objects.select_related("voucher", "draw").filter(stage=SaleStage.PUBLIC)


def _next(board: Board) -> Next:
    rehearsals = Rehearsal.objects.filter(seckill_voucher=board.sale).defer("crowd")
    is_loaded = board.snapshot is not None if board.ledger_answers else None
    return Next(board.sale, is_loaded, rehearsals.order_by("-pk").first())


# --- The day's trade ------------------------------------------------------------------------------


def read_trade(*, now: dt.datetime) -> Trade | None:
    """Return what buyers have done since midnight in the shop's time zone; None if unknown.

    The history of orders says it, which only grows: the day is a range of its ids.
    """
    midnight = day_start(now)
    key = f"today:trade:{midnight:%Y%m%d}"
    kept = kept_counts(key, lambda: asdict(_trade(midnight)), now=now)
    return Trade(**kept) if kept else None


def day_start(now: dt.datetime) -> dt.datetime:
    """Return the last midnight in the shop's time zone."""
    return timezone.localtime(now).replace(hour=0, minute=0, second=0, microsecond=0)


def _trade(midnight: dt.datetime) -> Trade:
    events = OrderEvent.objects.filter(pk__gte=_first_event_id(midnight), at__gte=midnight)
    events = events.exclude(order__seckill_voucher__stage=SaleStage.REHEARSAL)
    events = events.exclude(before=F("after"))  # such an event only tells of an order
    used = Q(after=OrderStatus.USED, order__status=OrderStatus.USED)
    sums = events.order_by().aggregate(
        orders=Count("pk", filter=Q(after=OrderStatus.UNPAID)),
        paid=Count("pk", filter=PAYMENT),
        paid_cents=Sum("order__price_cents", filter=PAYMENT, default=0),
        refunded=Count("pk", filter=REFUND),
        refunded_cents=Sum("order__price_cents", filter=REFUND, default=0),
        redeemed=Count("order", filter=used, distinct=True),
    )
    return Trade(**{name: int(value) for name, value in sums.items()})


def _first_event_id(midnight: dt.datetime) -> int:
    """Return an id before which no event that counts is of this day.

    Ids follow time to within a transaction, so an hour is more than enough to spare.
    """
    counted = (OrderStatus.UNPAID, OrderStatus.PAID, OrderStatus.REFUNDING, OrderStatus.USED)
    since = midnight - dt.timedelta(hours=1)
    events = OrderEvent.objects.filter(after__in=counted, at__gte=since)  # by their index
    return events.aggregate(first=Min("pk"))["first"] or LARGEST_ID


def _read_refunds(now: dt.datetime) -> dict[str, tuple[int, int]] | None:
    """Return number and sum of the refunds ``under_way``, and ``due`` until the month ends."""
    today = timezone.localdate(now)
    under_way = VoucherOrder.objects.filter(status=OrderStatus.REFUNDING)
    shown = {"under_way": under_way, "due": due_this_month(today)}

    def count() -> dict[str, tuple[int, int]]:
        return {name: _count_and_cents(orders) for name, orders in shown.items()}

    return kept_counts(f"today:refunds:{today}", count, now=now)


def _count_and_cents(orders: QuerySet[VoucherOrder]) -> tuple[int, int]:
    orders = orders.exclude(seckill_voucher__stage=SaleStage.REHEARSAL).order_by()
    sums = orders.aggregate(count=Count("pk"), cents=Sum("price_cents", default=0))
    return sums["count"], int(sums["cents"])


# --- What needs attention -------------------------------------------------------------------------


def _worries(boards: list[Board], *, now: dt.datetime, rights: Rights) -> Worries:
    worries: dict[str, Any] = {"boards": [it for it in boards if has_problem(it)]}
    if rights != Rights():
        parts = current_parts()
        worries["parts"] = [name for name, answers in parts.items() if not answers]
        worries["beats"] = read_heartbeats(parts)
    if rights.orders:
        worries |= _order_worries(now)
    if rights.payments:
        worries |= _payment_worries(now)
    if rights.system:
        worries |= _system_worries(now)
    return Worries(**worries)


def has_problem(board: Board) -> bool:
    """Return whether a sale needs somebody: late or set-aside orders, or a wrong balance."""
    if board.snapshot is None:
        return False
    balance = board.sum
    is_off = balance is not None and balance.difference != 0 and not balance.in_flight
    return bool(board.snapshot.set_aside) or board.is_behind or board.is_late or is_off


def _order_worries(now: dt.datetime) -> dict[str, int]:
    refused = VoucherOrder.objects.filter(
        status=OrderStatus.REFUSED,
        reason=RefusalReason.FAILED,
        accepted_at__gte=now - SET_ASIDE_FOR,
    )
    unpaid = VoucherOrder.objects.filter(status=OrderStatus.UNPAID)
    return {
        "set_aside": _count(refused),
        "overdue": _count(unpaid.filter(pay_by__lt=now - OVERDUE_AFTER)),
        "mails": _count(unsent_mails()),
    }


def unsent_mails() -> QuerySet[OrderEvent]:
    """Return the changes of orders whose mail was not accepted and is tried again."""
    return OrderEvent.objects.filter(notified_at=None, notify_at__isnull=False)


def _payment_worries(now: dt.datetime) -> dict[str, int]:
    unsettled = Payment.objects.filter(status__in=[PaymentStatus.OPEN, PaymentStatus.REFUNDING])
    # Of a long list many wait for their first turn, and have done so since it began.
    asked = Q(asked__gt=0, ask_at__gt=now - SLOW_AFTER)
    slow = asked & Q(status=PaymentStatus.REFUNDING, changed_at__lt=now - SLOW_AFTER)
    silent = Q(status=PaymentStatus.OPEN, silent_since__lt=now - SLOW_AFTER)
    refused = Payment.objects.filter(
        status=PaymentStatus.REFUSED, created_at__gte=now - REFUSED_FOR
    )
    return {
        "payments": _count(unsettled.filter(silent)),
        "refused": _count(refused),
        "refunds": _count(unsettled.filter(slow)),
        "disputes": _count(Payment.objects.filter(status=PaymentStatus.DISPUTED)),
        "decisions": _count(undecided_refunds()),
        "differences": open_differences(),
    }


def undecided_refunds() -> QuerySet[Payment]:
    """Return refunds that wait for staff.

    A partial refund made at the provider does not count while the order goes on.
    """
    goes_on = Q(settles=True, order__status__in=(OrderStatus.PAID, OrderStatus.USED))
    stuck = ~goes_on & Q(status=PaymentStatus.PARTLY_REFUNDED)
    return Payment.objects.filter(stuck | Q(status=PaymentStatus.REFUND_FAILED))


def _system_worries(now: dt.datetime) -> dict[str, Any]:
    running = OrderJob.objects.filter(status=JobStatus.RUNNING)
    return {
        "jobs": _count(running.filter(changed_at__lt=now - SLOW_AFTER)),
        "webhooks": _count(needing_attention()),
        **_checks(current_parts(), now),
    }


def late_by_s(now: dt.datetime) -> dict[str, float]:
    return {name: it.total_seconds() for name, it in late_queues(now=now).items()}


def _checks(parts: dict[str, bool], now: dt.datetime) -> dict[str, Any]:
    """Return what the start-up checks find; they take a second, so the cache keeps it."""

    def findings() -> dict[str, Any]:
        return {"checks": [it.msg for it in current_errors(parts)], "late": late_by_s(now)}

    return kept_counts("today:checks", findings, now=now) or {}


def _count(rows: QuerySet[Any]) -> int:
    return rows.order_by()[:MOST].count()
