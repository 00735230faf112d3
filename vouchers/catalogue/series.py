"""Many sales at once: first a plan to review, then all of its sales are created or none.

A series keeps its time of day in the shop's time zone, even when daylight saving changes. All of
its sales are as long as the first.
"""

import datetime as dt
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from itertools import count, islice

from django.db import models, transaction
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from seckill_site.formatting import timestamp
from vouchers.catalogue.sales import SaleTerms, insert_sale, terms_of
from vouchers.catalogue.staff_texts import StaffRefusal
from vouchers.inventory.rebuild import load_after_commit
from vouchers.lock_objects import lock_vouchers
from vouchers.models import SaleStage, SeckillVoucher, Voucher

MOST_SALES = 100
"""The most sales that are created at once."""

DAY = dt.timedelta(days=1)

Window = SaleTerms | SeckillVoucher
"""Anything with a start and an end."""


class SameStart(StaffRefusal):
    """Another sale of this voucher already starts at that very moment."""

    def __init__(self, begins_at: dt.datetime) -> None:
        text = gettext(
            "Nothing was created: this voucher already has a sale that starts at "
            "%(begin)s. Was this series created before?"
        )
        super().__init__(text % {"begin": timestamp(begins_at)})


class SeriesUnit(models.TextChoices):
    """The unit in which a series counts."""

    HOURS = "hours", _("hours")
    DAYS = "days", _("days")
    WEEKS = "weeks", _("weeks")
    WEEKDAYS = "weekdays", _("the weekdays chosen below")


@dataclass(frozen=True)
class Rhythm:
    """The interval between the sales of a series, or its weekdays (0 is Monday)."""

    number: int
    unit: SeriesUnit
    weekdays: frozenset[int] = frozenset()


@dataclass(frozen=True)
class PlannedSale:
    """A sale that is not created yet.

    It overlaps with the stored sales in ``overlaps`` and, by number, with ``overlaps_planned``.
    """

    number: int
    voucher: Voucher
    terms: SaleTerms
    overlaps: tuple[SeckillVoucher, ...] = ()
    overlaps_planned: tuple[int, ...] = ()

    @property
    def same_start(self) -> SeckillVoucher | None:
        """The stored sale with the same start, which prevents this one."""
        begins_at = self.terms.begins_at
        return next((sale for sale in self.overlaps if sale.begins_at == begins_at), None)


def overlap(one: Window, other: Window) -> bool:
    """Return whether two windows overlap."""
    return one.begins_at < other.ends_at and other.begins_at < one.ends_at


def overlapping_sales(windows: Sequence[tuple[int, Window]]) -> list[list[SeckillVoucher]]:
    """Return the overlapping sales for each pair of voucher id and window, in one query.

    Rehearsals do not count.
    """
    if not windows:
        return []
    sales = SeckillVoucher.objects.exclude(stage=SaleStage.REHEARSAL).filter(
        voucher_id__in={voucher_id for voucher_id, _ in windows},
        begins_at__lt=max(window.ends_at for _, window in windows),
        ends_at__gt=min(window.begins_at for _, window in windows),
    )
    candidates = list(sales.order_by("begins_at", "pk"))
    return [
        [sale for sale in candidates if sale.voucher_id == voucher_id and overlap(sale, window)]
        for voucher_id, window in windows
    ]


def plan_series(
    *, voucher: Voucher, first: SaleTerms, rhythm: Rhythm, sales: int, zone: dt.tzinfo
) -> list[PlannedSale]:
    """Return the sales of a series from ``first`` on, in the order of their start."""
    starts = islice(_generate_starts(first.begins_at, rhythm, zone), sales)
    return _make_plan([(voucher, _move_to(first, begins_at)) for begins_at in starts])


def plan_copies(
    *, sales: Iterable[SeckillVoucher], now: dt.datetime, zone: dt.tzinfo
) -> list[PlannedSale]:
    """Return a draft copy of each sale, at least a day later and in the future.

    If a sale of the voucher starts at that moment, the copy moves to the next free day.
    """
    originals = sorted(sales, key=lambda sale: (sale.begins_at, sale.pk))
    coming = SeckillVoucher.objects.exclude(stage=SaleStage.REHEARSAL).filter(
        voucher_id__in={sale.voucher_id for sale in originals}, begins_at__gt=now
    )
    starts = set(coming.values_list("voucher_id", "begins_at"))
    copies = []
    for sale in originals:
        terms = copy_terms(sale=sale, now=now, zone=zone)
        while (sale.voucher_id, terms.begins_at) in starts:
            terms = _move_to(terms, _days_later(terms.begins_at, 1, zone))
        starts.add((sale.voucher_id, terms.begins_at))
        copies.append((sale.voucher, terms))
    return _make_plan(copies)


def copy_terms(*, sale: SeckillVoucher, now: dt.datetime, zone: dt.tzinfo) -> SaleTerms:
    """Return a draft's terms at the same time of day, at least a day later and in the future.

    A pause is not copied. The copy of a sale from before the rule about unused vouchers has it.
    """
    days = max(1, (now.astimezone(zone).date() - sale.begins_at.astimezone(zone).date()).days)
    begins_at = next(
        moment
        for moment in (_days_later(sale.begins_at, days + more, zone) for more in count())
        if moment > now
    )
    terms = replace(terms_of(sale), stage=SaleStage.DRAFT, paused=False)
    terms = replace(terms, refund_unused=terms.refund_unused is not False)
    return _move_to(terms, begins_at)


def digest(plan: Sequence[PlannedSale]) -> str:
    """Return a hash of the plan, so that only a plan that was shown is created."""
    text = repr([(sale.voucher.pk, *map(str, astuple(sale.terms))) for sale in plan])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def create_sales(*, plan: Sequence[PlannedSale]) -> list[SeckillVoucher]:
    """Create the sales of a plan, all or none, and load them after the commit.

    :raises SameStart: one of the vouchers has a sale with that start; nothing was created.
    :raises django.core.exceptions.ValidationError: a rule of the model is broken.
    """
    with transaction.atomic():
        # Locked until the commit, so that a plan that is sent twice is created once.
        lock_vouchers(voucher_ids={planned.voucher.pk for planned in plan})
        sales = []
        for planned in plan:
            _refuse_same_start(planned)
            sales.append(insert_sale(voucher=planned.voucher, terms=planned.terms))
        ids = [sale.pk for sale in sales]
        transaction.on_commit(partial(load_after_commit, sale_ids=ids))
    return sales


def _refuse_same_start(planned: PlannedSale) -> None:
    others = planned.voucher.sales.exclude(stage=SaleStage.REHEARSAL)
    if others.filter(begins_at=planned.terms.begins_at).exists():
        raise SameStart(planned.terms.begins_at)


def _generate_starts(first: dt.datetime, rhythm: Rhythm, zone: dt.tzinfo) -> Iterator[dt.datetime]:
    if rhythm.unit == SeriesUnit.HOURS:
        # In UTC, because within one zone Python calculates in wall-clock time.
        step_h = dt.timedelta(hours=rhythm.number)
        yield from (first.astimezone(dt.UTC) + n * step_h for n in count())
    elif rhythm.unit == SeriesUnit.WEEKDAYS:
        days = (_days_later(first, n, zone) for n in range(7 * MOST_SALES))
        yield from (day for day in days if day.astimezone(zone).weekday() in rhythm.weekdays)
    else:
        step = rhythm.number * (7 if rhythm.unit == SeriesUnit.WEEKS else 1)
        yield from (_days_later(first, n * step, zone) for n in count())


def _days_later(moment: dt.datetime, days: int, zone: dt.tzinfo) -> dt.datetime:
    """Return the same time of day ``days`` later, or an hour after if the clock skips it.

    Of a time that comes twice it is the first, but for the moment itself.
    """
    if not days:
        return moment.astimezone(dt.UTC)
    local = moment.astimezone(zone)
    wall = local.replace(tzinfo=None, fold=0) + days * DAY
    return wall.replace(tzinfo=zone).astimezone(dt.UTC)


def _move_to(terms: SaleTerms, begins_at: dt.datetime) -> SaleTerms:
    begins_at = begins_at.astimezone(dt.UTC)
    length = terms.ends_at.astimezone(dt.UTC) - terms.begins_at.astimezone(dt.UTC)
    return replace(terms, begins_at=begins_at, ends_at=begins_at + length)


def _make_plan(wanted: Sequence[tuple[Voucher, SaleTerms]]) -> list[PlannedSale]:
    """Number the sales and find their overlaps, in one query."""
    stored = overlapping_sales([(voucher.pk, terms) for voucher, terms in wanted])
    plan = []
    for number, (voucher, terms) in enumerate(wanted, start=1):
        planned = tuple(
            n
            for n, (other, others_terms) in enumerate(wanted, start=1)
            if n != number and other == voucher and overlap(others_terms, terms)
        )
        plan.append(PlannedSale(number, voucher, terms, tuple(stored[number - 1]), planned))
    return plan
