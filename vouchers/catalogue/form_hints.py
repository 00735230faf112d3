"""Hints beside the fields of a sale's form, and the checklist before a draft is published.

Nothing here reads a clock or the database.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Any

from django.utils import timezone

from seckill_site.formatting import duration, grouped
from seckill_site.web.text_files import counted, read_texts
from vouchers.models import SaleStage, SaleState, SeckillVoucher

NAMED = 3
"""The most overlapping sales that are named; the others are counted."""

_TEXTS = read_texts(Path(__file__).with_name("hint_texts.toml"))
_WINDOW = ("begins_at", "ends_at")

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
    }
    return {field: hints for field, hints in by_field.items() if hints}


def checklist(
    *,
    sale: SeckillVoucher,
    now: dt.datetime,
    others: Sequence[SeckillVoucher],
    codes: int,
) -> list[Hint]:
    """Return what staff should see before this draft is public, fine or not.

    ``others`` are the sales that overlap with it, ``codes`` its unused invitation codes.
    """
    voucher, last_day = sale.voucher, sale.voucher.valid_until
    entries = Entries(
        **{name: getattr(sale, name) for name in ("stock", "limit", "paused", *_WINDOW)},
        price_cents=voucher.price_cents,
        face_value_cents=voucher.face_value_cents,
        stage=SaleStage.DRAFT if sale.begins_at <= now else SaleStage.PUBLIC,
    )
    hints = sale_hints(entries=entries, now=now, others=others)
    applies = {
        "paused": sale.paused,
        "no_code": sale.needs_code and not codes,
        "few_codes": sale.needs_code and 0 < codes < sale.stock,
        "no_last_day": last_day is None,
        "early_last_day": last_day is not None
        and last_day < timezone.localtime(sale.ends_at).date(),
        "no_picture": voucher.picture_id is None,
    }
    figures = {"day": last_day, "stock": grouped(sale.stock), **counted(codes)}
    checks = [_warning(name, **figures) for name, it in applies.items() if it]
    return [*chain(*hints.values()), *checks]


def window(begins_at: dt.datetime, ends_at: dt.datetime, *, beside: dt.datetime) -> str:
    """Return a window in the shop's time zone, without the day if it is that of ``beside``."""
    days = {"begin": _clock(begins_at, beside), "end": _clock(ends_at, begins_at)}
    return str(_TEXTS["window"] % days)


def _info(name: str, **figures: Any) -> Hint:
    return Hint(Level.INFO, str(_TEXTS[name] % figures))


def _warning(name: str, **figures: Any) -> Hint:
    return Hint(Level.WARNING, str(_TEXTS[name] % figures))


def _start_hints(
    entries: Entries, stored: SeckillVoucher | None, now: dt.datetime
) -> Iterator[Hint]:
    begins_at = entries.begins_at
    if begins_at is None or _is_over(entries, now):
        return
    if begins_at > now:
        length = duration(begins_at - now)
        if entries.stage == SaleStage.DRAFT and begins_at <= now + SOON:
            yield _warning("starts_soon", length=length)
        else:
            yield _info("starts", length=length)
        return
    length = duration(now - begins_at)
    if stored and stored.state_at(now) in (SaleState.OPEN, SaleState.SOLD_OUT):
        yield _info("started", length=length)
    elif entries.paused:
        yield _warning("started_paused", length=length)
    elif entries.stage == SaleStage.DRAFT:
        yield _warning("started_draft", length=length)
    else:
        saved = _warning("started_saved", length=length).text
        yield replace(_warning("started_public", length=length), once_saved=saved)


def _end_hints(entries: Entries, stored: SeckillVoucher | None, now: dt.datetime) -> Iterator[Hint]:
    begins_at, ends_at = entries.begins_at, entries.ends_at
    if ends_at is None:
        return
    if begins_at and ends_at > begins_at:
        length = ends_at.astimezone(dt.UTC) - begins_at.astimezone(dt.UTC)
        yield _info("lasts", length=duration(length, units=4))
    if _is_over(entries, now):
        was_over = stored and stored.ends_at <= now
        yield (_info if was_over else _warning)("ended", length=duration(now - ends_at))


def _overlap_hints(entries: Entries, others: Sequence[SeckillVoucher]) -> Iterator[Hint]:
    if entries.begins_at is None:
        return
    for sale in others[:NAMED]:
        when = window(sale.begins_at, sale.ends_at, beside=entries.begins_at)
        yield _warning("overlap", id=sale.pk, window=when)
    if more := len(others[NAMED:]):
        yield _warning("more_overlaps", **counted(more))


def _stock_hints(entries: Entries, taken: int) -> Iterator[Hint]:
    stock, limit = entries.stock, entries.limit
    if stock == 0:
        yield _warning("no_stock")
    if stock is None:
        return
    if limit and stock:
        buyers = -(-stock // limit)
        sizes = {"stock": grouped(stock), "limit": limit, "buyers": grouped(buyers)}
        yield _info("buyers", number=buyers, **sizes)
    if limit and 1 < stock <= limit:
        yield _warning("one_buyer")
    if taken and stock > taken:
        yield _info("taken", taken=grouped(taken), left=grouped(stock - taken))
    if taken and stock == taken:
        yield _warning("all_taken", taken=grouped(taken))


def _price_hints(entries: Entries) -> Iterator[Hint]:
    price, face_value = entries.price_cents, entries.face_value_cents
    if price == 0:
        yield _warning("free")
    elif price and face_value and price <= face_value:
        share = price * 100 / face_value  # in tenths, where prices are told so
        yield Hint(Level.INFO, _TEXTS["share"].format(share=share, tenths=share / 10))


def _payment_hints(entries: Entries) -> Iterator[Hint]:
    if entries.pay_within_s is None:
        return
    length = dt.timedelta(seconds=entries.pay_within_s)
    if entries.ends_at is None or entries.begins_at is None:
        yield _info("time_to_pay", length=duration(length, units=4))
        return
    until = _clock(entries.ends_at.astimezone(dt.UTC) + length, entries.begins_at)
    yield _info("last_to_pay", length=duration(length, units=4), until=until)


def _is_over(entries: Entries, now: dt.datetime) -> bool:
    return entries.ends_at is not None and entries.ends_at <= now


def _clock(moment: dt.datetime, beside: dt.datetime) -> str:
    """Return the time of a moment, with its day unless that is the day of ``beside``."""
    local = timezone.localtime(moment)
    same_day = local.date() == timezone.localtime(beside).date()
    time = f"{local:%H:%M:%S}".removesuffix(":00")
    return time if same_day else f"{local:%Y-%m-%d} {time}"
