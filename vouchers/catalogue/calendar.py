"""A calendar file (RFC 5545) that reminds a buyer of a sale's start."""

import datetime as dt
from urllib.parse import urlsplit

from django.utils.translation import get_language, ngettext
from django.utils.translation import gettext as _
from icalendar import TRANSP, Alarm, Calendar, Event

from seckill_site.formatting import money
from vouchers.inventory.reservations import SaleEnded
from vouchers.models import SeckillVoucher

AHEAD = (dt.timedelta(minutes=10), dt.timedelta(minutes=1))
"""The alarms before the start: one to sign in, one to be there."""

_CONTROLS = dict.fromkeys([*range(10), 11, 12, *range(14, 32), 127])
"""Control characters that a calendar file may not have; line breaks are escaped."""


def calendar_file(*, sale: SeckillVoucher, page_url: str, now: dt.datetime) -> bytes:
    """Return the reminder of a sale, read with its voucher, in the active language.

    ``page_url`` is the absolute address of its purchase page.

    :raises SaleEnded: the sale is over.
    """
    if now >= sale.ends_at:
        raise SaleEnded
    language = (get_language() or "en").upper()
    calendar = Calendar.new(
        prodid=f"-//Seckill//Flash sales//{language}",
        calscale="GREGORIAN",
        subcomponents=[_event(sale, page_url, now)],
    )
    content: bytes = calendar.to_ical()
    return content


def _event(sale: SeckillVoucher, page_url: str, now: dt.datetime) -> Event:
    summary = _("Flash sale: %(title)s") % {"title": sale.voucher.local_title.translate(_CONTROLS)}
    event = Event.new(
        uid=f"sale-{sale.pk}@{urlsplit(page_url).netloc}",
        # No row says when a sale was last changed. A later file has a higher number, so that a
        # calendar takes over a start that was moved.
        sequence=max(0, (now - sale.created_at) // dt.timedelta(minutes=1)),
        stamp=now,
        last_modified=now,
        start=sale.begins_at.astimezone(dt.UTC),
        end=sale.ends_at.astimezone(dt.UTC),
        summary=summary,
        description=_description(sale, page_url),
        url=page_url,
        transparency=TRANSP.TRANSPARENT,  # a sale does not make its buyers busy
    )
    for ahead in AHEAD:
        alarm = Alarm.new(description=summary)
        alarm.add("action", "DISPLAY")
        alarm.add("trigger", -ahead)
        event.add_component(alarm)
    return event


def _description(sale: SeckillVoucher, page_url: str) -> str:
    voucher = sale.voucher
    prices = {"price": money(voucher.price_cents), "face_value": money(voucher.face_value_cents)}
    limit = ngettext(
        "%(count)s voucher per buyer.", "Up to %(count)s vouchers per buyer.", sale.limit
    )
    return "\n".join(
        [
            _("%(price)s instead of %(face_value)s.") % prices,
            limit % {"count": sale.limit},
            _("Sign in a few minutes before the start to be ready."),
            page_url,
        ]
    )
