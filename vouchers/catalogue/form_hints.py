"""Hints beside the fields of a sale's form: the effect of the entries, before they are saved.

Nothing here reads a clock or the database.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from django.utils import timezone
from django.utils.translation import gettext, ngettext

from seckill_site.formatting import duration, grouped
from vouchers.models import SaleStage, SaleState, SeckillVoucher

NAMED = 3
"""The most overlapping sales that are named; the others are counted."""

SOON = dt.timedelta(hours=1)
"""A draft that starts within this time may have been forgotten."""


class Level(StrEnum):
    """The importance of a hint; a form with warnings can be saved."""

    INFO = "info"
    WARNING = "warning"


@dataclass(frozen=True)
class Hint:
    """One sentence beside a field; ``once_saved`` replaces it after the form is saved."""

    level: Level
    text: str
    once_saved: str = ""


@dataclass(frozen=True)
class Entries:
    """The valid entries of a form, None for the rest; amounts in integer cents."""

    begins_at: dt.datetime | None = None
    ends_at: dt.datetime | None = None
    stock: int | None = None
    limit: int | None = None
    pay_within_s: int | None = None
    price_cents: int | None = None
    face_value_cents: int | None = None
    paused: bool = False
    stage: str = SaleStage.PUBLIC


def sale_hints(
    *,
    entries: Entries,
    now: dt.datetime,
    stored: SeckillVoucher | None = None,
    taken: int = 0,
    others: Sequence[SeckillVoucher] = (),
) -> dict[str, list[Hint]]:
    """Return the hints for each field of the form that has any.

    ``stored`` is the sale before the edit, ``taken`` its units that are reserved or ordered, and
    ``others`` are the sales that overlap with the entries.
    """
    by_field = {
        "begins_at": [*_start_hints(entries, stored, now), *_overlap_hints(entries, others)],
        "ends_at": list(_end_hints(entries, stored, now)),
        "stock": list(_stock_hints(entries, taken)),
        "price": list(_price_hints(entries)),
        "pay_within_s": list(_payment_hints(entries)),
        "stage": list(_stage_hints(entries, now)),
    }
    return {field: hints for field, hints in by_field.items() if hints}


def window(begins_at: dt.datetime, ends_at: dt.datetime, *, beside: dt.datetime) -> str:
    """Return a window in the shop's time zone, without the day if it is that of ``beside``."""
    days = {"begin": _clock(begins_at, beside), "end": _clock(ends_at, begins_at)}
    return gettext("%(begin)s to %(end)s") % days


def _start_hints(
    entries: Entries, stored: SeckillVoucher | None, now: dt.datetime
) -> Iterator[Hint]:
    begins_at = entries.begins_at
    if begins_at is None or _is_over(entries, now):
        return
    if begins_at > now:
        text = gettext("Starts in %(length)s.")
        yield Hint(Level.INFO, text % {"length": duration(begins_at - now)})
        return
    length = {"length": duration(now - begins_at)}
    if stored and stored.state_at(now) in (SaleState.OPEN, SaleState.SOLD_OUT):
        yield Hint(Level.INFO, gettext("Started %(length)s ago.") % length)
    elif entries.stage == SaleStage.DRAFT:
        text = gettext("Started %(length)s ago: buyers can buy as soon as the sale is published.")
        yield Hint(Level.WARNING, text % length)
    elif entries.paused:
        text = gettext("Started %(length)s ago: buyers can buy as soon as the sale is resumed.")
        yield Hint(Level.WARNING, text % length)
    else:
        text = gettext("Started %(length)s ago: buyers can buy as soon as you save.")
        saved = gettext("The sale started %(length)s ago: buyers can buy now.")
        yield Hint(Level.WARNING, text % length, saved % length)


def _end_hints(entries: Entries, stored: SeckillVoucher | None, now: dt.datetime) -> Iterator[Hint]:
    begins_at, ends_at = entries.begins_at, entries.ends_at
    if ends_at is None:
        return
    if begins_at and ends_at > begins_at:
        text = gettext("Lasts %(length)s.")
        length = ends_at.astimezone(dt.UTC) - begins_at.astimezone(dt.UTC)
        yield Hint(Level.INFO, text % {"length": duration(length, units=4)})
    if _is_over(entries, now):
        was_over = stored and stored.ends_at <= now
        text = gettext("Ended %(length)s ago: nobody can buy.")
        yield Hint(
            Level.INFO if was_over else Level.WARNING, text % {"length": duration(now - ends_at)}
        )


def _overlap_hints(entries: Entries, others: Sequence[SeckillVoucher]) -> Iterator[Hint]:
    if entries.begins_at is None:
        return
    for sale in others[:NAMED]:
        text = gettext("Overlaps with another sale of this voucher: #%(id)s, %(window)s.")
        when = window(sale.begins_at, sale.ends_at, beside=entries.begins_at)
        yield Hint(Level.WARNING, text % {"id": sale.pk, "window": when})
    if more := len(others[NAMED:]):
        text = ngettext(
            "Overlaps with %(count)s more sale of this voucher.",
            "Overlaps with %(count)s more sales of this voucher.",
            more,
        )
        yield Hint(Level.WARNING, text % {"count": more})


def _stock_hints(entries: Entries, taken: int) -> Iterator[Hint]:
    stock, limit = entries.stock, entries.limit
    if stock is None:
        return
    if limit and stock:
        buyers = -(-stock // limit)
        text = ngettext(
            "Stock %(stock)s at limit %(limit)s: at least %(buyers)s buyer.",
            "Stock %(stock)s at limit %(limit)s: at least %(buyers)s buyers.",
            buyers,
        )
        numbers = {"stock": grouped(stock), "limit": limit, "buyers": grouped(buyers)}
        yield Hint(Level.INFO, text % numbers)
    if limit and 1 < stock <= limit:
        yield Hint(Level.WARNING, gettext("One buyer can take them all."))
    if taken and stock > taken:
        text = gettext("Taken so far: %(taken)s. Left: %(left)s.")
        numbers = {"taken": grouped(taken), "left": grouped(stock - taken)}
        yield Hint(Level.INFO, text % numbers)
    if taken and stock == taken:
        text = gettext("All %(taken)s are taken: the sale is sold out.")
        yield Hint(Level.WARNING, text % {"taken": grouped(taken)})


def _price_hints(entries: Entries) -> Iterator[Hint]:
    price, face_value = entries.price_cents, entries.face_value_cents
    if price == 0:
        yield Hint(Level.WARNING, gettext("Free: buyers pay nothing."))
    elif price and face_value and price <= face_value:
        text = gettext("{share:.3g}% of the face value.")  # in tenths, where prices are told so
        share = price * 100 / face_value
        yield Hint(Level.INFO, text.format(share=share, tenths=share / 10))


def _payment_hints(entries: Entries) -> Iterator[Hint]:
    if entries.pay_within_s is None:
        return
    length = dt.timedelta(seconds=entries.pay_within_s)
    if entries.ends_at is None or entries.begins_at is None:
        text = gettext("Buyers have %(length)s to pay.")
        yield Hint(Level.INFO, text % {"length": duration(length, units=4)})
        return
    text = gettext("Buyers have %(length)s to pay; the last of them until %(until)s.")
    until = _clock(entries.ends_at.astimezone(dt.UTC) + length, entries.begins_at)
    yield Hint(Level.INFO, text % {"length": duration(length, units=4), "until": until})


def _stage_hints(entries: Entries, now: dt.datetime) -> Iterator[Hint]:
    begins_at = entries.begins_at
    if entries.stage == SaleStage.DRAFT and begins_at and now < begins_at <= now + SOON:
        text = gettext("Starts in %(length)s. A draft sells nothing, so publish it before then.")
        yield Hint(Level.WARNING, text % {"length": duration(begins_at - now)})


def _is_over(entries: Entries, now: dt.datetime) -> bool:
    return entries.ends_at is not None and entries.ends_at <= now


def _clock(moment: dt.datetime, beside: dt.datetime) -> str:
    """Return the time of a moment, with its day unless that is the day of ``beside``."""
    local = timezone.localtime(moment)
    same_day = local.date() == timezone.localtime(beside).date()
    time = f"{local:%H:%M:%S}".removesuffix(":00")
    return time if same_day else f"{local:%Y-%m-%d} {time}"
