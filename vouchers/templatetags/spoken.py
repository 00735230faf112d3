"""Amounts and moments as a buyer would say them."""

from __future__ import annotations

import datetime as dt

from django import template
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import pgettext

from vouchers.figures import epoch_ms
from vouchers.templatetags.seckill import moment

register = template.Library()

SOON_DAYS = 7
"""Within so many days a weekday is enough to name one."""


@register.filter
def day_and_time(value: dt.datetime) -> SafeString:
    """Return a moment in the shop's time zone: ``today, 20:00``, ``Sat, 20:00``, or its date.

    The date goes with it, for a page that is still open when the day is over.
    """
    return format_html(
        '<time datetime="{}" data-date="{}">{}</time>',
        timezone.localtime(value).isoformat(timespec="seconds"),
        moment(value),
        _words(value),
    )


def _words(value: dt.datetime) -> str:
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
    return moment(value)


@register.simple_tag
def day_ends_at_ms() -> int:
    """Return when the shop's day is over, and ``today`` is another one."""
    midnight = dt.datetime.combine(timezone.localdate() + dt.timedelta(days=1), dt.time.min)
    return epoch_ms(timezone.make_aware(midnight))


@register.filter
def price(cents: int) -> str:
    """Return an amount with its thousands apart, and with cents where there are any: ``¥1,280``."""
    # Chinese and English write both alike. Whole numbers: a float would round somebody's money.
    whole, rest = divmod(int(cents), 100)
    return f"¥{whole:,}" + (f".{rest:02d}" if rest else "")
