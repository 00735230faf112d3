"""Tags and filters of the pages' templates."""

import datetime as dt
from collections.abc import Callable, Mapping
from math import ceil
from typing import Any

import segno
from django import template
from django.core.serializers.json import DjangoJSONEncoder
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html, json_script
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import capfirst
from django.utils.translation import pgettext

from seckill_site.clocks.machine import epoch_ms, from_epoch_ms
from seckill_site.formatting import (
    date_and_time,
    exact_date_and_time,
    grouped,
    money,
    money_in,
    short_money,
    spelled_duration,
    utc_offset,
)
from seckill_site.web.responses import absolute_url
from vouchers.catalogue.audience import SALE_RULES
from vouchers.catalogue.public_sales import revision_of
from vouchers.models import SeckillVoucher
from vouchers.templatetags.buyer_texts import PAGES, RULES_LISTED, STOCK, TERMS, VISITOR_STATES, WHY

register = template.Library()
register.filter("revision", revision_of)
register.filter(utc_offset)

RELOADS_S = 3600

ROOM_LEAD = dt.timedelta(minutes=10)
"""From when before the start pages go into the waiting room; agrees with ``purchase.js``."""

SOON_DAYS = 7
"""The number of days within which a weekday identifies a date."""


@register.filter
def less(cents: int, other_cents: int) -> int:
    """Return the difference of two amounts in cents."""
    return cents - other_cents


def _empty_for_none(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: "" if value is None else function(value)


register.filter("money_in", money_in)

for function in (
    epoch_ms,
    from_epoch_ms,
    money,
    short_money,
    date_and_time,
    exact_date_and_time,
    grouped,
    spelled_duration,
):
    register.filter(function.__name__, _empty_for_none(function))


def _exact_time(local: dt.datetime) -> str:
    return local.time().isoformat("milliseconds")


@register.simple_tag
def why_sold_out(arrived_at_ms: int, sold_out_at_ms: int | None) -> str:
    """Return how much earlier the last unit went; agrees with ``static/seckill/why.js``."""
    arrived = timezone.localtime(from_epoch_ms(arrived_at_ms))
    if not sold_out_at_ms:
        return str(WHY["arrived"]).format(arrived=_exact_time(arrived))
    if sold_out_at_ms == arrived_at_ms:
        return str(WHY["same"]).format(arrived=_exact_time(arrived))
    gone = timezone.localtime(from_epoch_ms(sold_out_at_ms))
    return str(WHY["earlier"]).format(
        arrived=_exact_time(arrived),
        gone=_exact_time(gone) if gone.date() == arrived.date() else exact_date_and_time(gone),
        earlier=_length(arrived_at_ms - sold_out_at_ms),
    )


def _length(milliseconds: int) -> str:
    """Return a length of time in its largest unit, rounded down."""
    for unit, unit_ms in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if milliseconds >= unit_ms:
            return str(WHY[unit]).format(count=milliseconds // unit_ms)
    if milliseconds >= 100:
        return str(WHY["s"]).format(count=milliseconds // 100 / 10)
    return str(WHY["ms"]).format(count=milliseconds)


@register.filter
def clock(value: dt.datetime, text: str = "") -> SafeString:
    """Return a moment on a page, with the shop's time zone for readers who are in another one."""
    at = timezone.localtime(value).isoformat(timespec="seconds")
    shown = text or date_and_time(value)
    return format_html('<time datetime="{}" data-zone="{}">{}</time>', at, utc_offset(value), shown)


@register.filter
def qr(text: str) -> SafeString:
    """Return a text as a QR code: an SVG for the page, without inline styles."""
    code = segno.make(text, error="m", micro=False)
    # Black on white with its border, in dark mode too: many scanners read nothing else.
    return mark_safe(code.svg_inline(omitsize=True, light="#fff", svgclass="qr", lineclass=None))


@register.simple_tag
def absolute(path: str) -> str:
    """Return the absolute address of a path of this site."""
    return absolute_url(path)


@register.filter
def at(mapping: Mapping[str, Any], key: str) -> Any:
    """Return the value of a key that is only known at run time, or an empty text."""
    return mapping.get(str(key), "")


class _PlainJson(DjangoJSONEncoder):
    """Compact JSON with letters as they are: escaped, Chinese takes twice the bytes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options | {"ensure_ascii": False, "separators": (",", ":")})


@register.filter(name="json_script")
def plain_json_script(value: object, element_id: str) -> SafeString:
    """Return Django's block of JSON for a script, with letters as they are."""
    return json_script(value, element_id, encoder=_PlainJson)


@register.filter
def seconds_to_start(live: Mapping[str, int]) -> int:
    """Return the whole seconds from a ``live`` answer until the sale has started."""
    return max(0, live["begins_at_ms"] - live["server_time_ms"]) // 1000 + 1


@register.simple_tag
def sentences(page: str) -> dict[str, Any]:
    """Return the sentences of a page, for the template and as JSON for its script."""
    return PAGES[page]


@register.simple_tag
def receipt_state(receipt: Mapping[str, Any]) -> str:
    """Return the key of a receipt's sentences; agrees with ``static/seckill/receipt.js``."""
    status, payment = str(receipt["status"]), str(receipt["payment"])
    if receipt["reason"] in ("not_drawn", "withdrawn"):
        return str(receipt["reason"])
    if status in ("cancelled", "expired"):
        return str(receipt["late_payment"]) or status
    if payment in ("confirming", "silent"):
        return payment
    pay_by_ms = receipt["pay_by_ms"]
    if pay_by_ms is not None and pay_by_ms <= receipt["server_time_ms"]:
        return "overdue"
    return payment or status


@register.simple_tag
def receipt_note(receipt: Mapping[str, Any]) -> str:
    """Return the sentence about money beside the order; agrees with ``receipt.js``."""
    has_ended, late = receipt["status"] in ("cancelled", "expired"), receipt["late_payment"]
    if late:
        return str(PAGES["receipt"]["late" if has_ended else "further"][late])
    return str(PAGES["receipt"]["ended_payment"].get(receipt["payment"], "")) if has_ended else ""


@register.simple_tag
def sentence(text: object, **words: object) -> str:
    """Return a sentence with its placeholders filled in."""
    return str(text).format(**words)


@register.simple_tag
def room_wait(wait_ms: int) -> str:
    """Return a wait in line in words, rounded up as the page's script does it."""
    words, seconds = PAGES["room"]["wait"], wait_ms / 1000
    if seconds <= 5:
        return str(words["soon"])
    if seconds < 90:
        return str(words["seconds"]).format(count=ceil(seconds / 10) * 10)
    if seconds < 5400:
        return str(words["minutes"]).format(count=ceil(seconds / 60))
    return str(words["hours"]).format(count=int(seconds // 3600))


@register.filter
def line_forms_at(sale: SeckillVoucher) -> dt.datetime:
    """Return from when before the start the pages of a sale go into its waiting room."""
    return sale.begins_at - ROOM_LEAD


@register.filter
def takes_several(sale: SeckillVoucher) -> bool:
    """Return whether one press may take several units of a sale."""
    return sale.limit > 1 and not sale.is_draw and not sale.first_order_only


@register.simple_tag
def audience_words(sale: SeckillVoucher) -> list[str]:
    """Return the rules that say who may buy in a sale, a sentence each; none for everybody."""
    values = [(RULES_LISTED[rule.name], rule.value(sale)) for rule in SALE_RULES]
    return [str(it).format(age=spelled_duration(value * 3_600)) for it, value in values if value]


@register.filter
def day(value: dt.date) -> str:
    """Return a day as the page's language writes it, with its year."""
    # The letters are those of Django's date filter.
    return date_format(value, pgettext("date format", "j M Y"))


@register.simple_tag
def voucher_terms(sale: SeckillVoucher) -> list[str]:
    """Return where a voucher is valid and until when, and whether it can be returned."""
    voucher, until = sale.voucher, sale.voucher.valid_until
    terms = [str(TERMS["at"]).format(place=voucher.place)] if voucher.place else []
    if until:
        terms.append(str(TERMS["until"]).format(day=day(until)))
    else:
        terms.append(str(TERMS["no_end"]))
    return [capfirst(terms[0]), *terms[1:], refund_terms(sale)]


@register.filter
def refund_terms(sale: SeckillVoucher) -> str:
    """Return whether a voucher can be returned, and whether it is refunded by itself."""
    voucher = sale.voucher
    by_itself = sale.refund_unused and voucher.valid_until and voucher.price_cents
    name = "refundable" if sale.refundable else "not_refundable"
    return str(TERMS[f"{name}_unused" if by_itself else name])


@register.simple_tag
def about_sale(sale: SeckillVoucher) -> str:
    """Return a sale in one sentence, for pages of others that link to it."""
    voucher = sale.voucher
    about = str(TERMS["about"]).format(
        price=short_money(voucher.price_cents),
        face_value=short_money(voucher.face_value_cents),
        start=date_and_time(sale.begins_at),
        zone=utc_offset(sale.begins_at),
    )
    return f"{voucher.merchant} · {about}" if voucher.merchant else about


@register.simple_tag
def stock_words(remaining: int | None, total: int) -> str:
    """Return the stock in words; only the units offered if those left are unknown."""
    if remaining is None:
        return str(STOCK["stock_unknown"]).format(total=total)
    sold = total - remaining
    if sold <= 0:
        return str(STOCK["stock"]).format(remaining=remaining, total=total)
    gone = max(1, 100 * sold // total)
    return str(STOCK["stock_gone"]).format(gone=gone, remaining=remaining, total=total)


@register.filter
def sold_of(remaining: int | None, total: int) -> int:
    """Return how many are gone, for the bar; none while those left are unknown."""
    return 0 if remaining is None else total - remaining


@register.simple_tag
def button_state(*, state: str, signed_in: bool, buyer: Mapping[str, Any] | None) -> str:
    """Return the button's first state: the buyer's own, else the sale's as this visitor sees it.

    ``buyer`` is the buyer's status, or None for a visitor.
    """
    if not signed_in:
        return VISITOR_STATES.get(state, state)
    own_state: str | None = buyer["own_state"] if buyer else None
    return own_state or state


@register.filter
def starts_soon(live: Mapping[str, int] | None) -> bool:
    """Return whether the start is so near that a page without JavaScript reloads itself then."""
    return live is not None and seconds_to_start(live) <= RELOADS_S


@register.simple_tag
def plain_status(
    *,
    shown: str,
    buyer: Mapping[str, Any] | None,
    live: Mapping[str, int] | None,
    remaining: int | None,
    token: str,
    challenge: object,
) -> str:
    """Return the key of what a page without JavaScript says; ``shown`` is the button's state."""
    match shown:
        case "scheduled" if starts_soon(live):
            return "starts_soon"
        case "open" if not token:
            return "challenge" if challenge else "closed"
        case "yours" if not is_to_pay(buyer):
            return "overdue"
        case "sold_out" | "paused" if buyer and buyer["waits"]:
            return "waits"
        case "paused" if remaining == 0:
            return "paused_sold_out"
    return shown


@register.filter
def is_to_pay(order: Mapping[str, Any] | None) -> bool:
    """Return whether an order is unpaid and can still be paid."""
    if not order or order["status"] != "unpaid":
        return False
    return order["pay_by_ms"] is None or order["pay_by_ms"] > order["server_time_ms"]


@register.filter
def day_and_time(value: dt.datetime) -> SafeString:
    """Return a moment in the shop's time zone: ``today, 20:00``, ``Sat, 20:00``, or its date.

    It carries its date, for a page that is still open after midnight.
    """
    return format_html(
        '<time datetime="{}" data-zone="{}" data-date="{}">{}</time>',
        timezone.localtime(value).isoformat(timespec="seconds"),
        utc_offset(value),
        date_and_time(value),
        _name_day(value),
    )


def _name_day(value: dt.datetime) -> str:
    local = timezone.localtime(value)
    days = (local.date() - timezone.localdate()).days
    words = {
        -1: pgettext("day", "yesterday, %(time)s"),
        0: pgettext("day", "today, %(time)s"),
        1: pgettext("day", "tomorrow, %(time)s"),
    }
    if days in words:
        return words[days] % {"time": date_format(local, "H:i")}
    if 1 < days < SOON_DAYS:
        # The letters are those of Django's date filter.
        return date_format(local, pgettext("weekday format", "D, H:i"))
    return date_and_time(value)


@register.simple_tag
def day_ends_at_ms() -> int:
    """Return the end of the shop's day, after which ``today`` is another one."""
    midnight = dt.datetime.combine(timezone.localdate() + dt.timedelta(days=1), dt.time.min)
    return epoch_ms(timezone.make_aware(midnight))
