"""Money, numbers, durations and timestamps as text, in the language and time zone of the page."""

import datetime as dt
from collections.abc import Iterable

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext, ngettext, pgettext

OURS = "CNY"
"""The currency of all prices, of which pages and mails show the sign."""

_DECIMALS = {
    **dict.fromkeys(("BIF", "CLP", "DJF", "GNF", "JPY", "KMF", "KRW", "MGA", "PYG", "RWF"), 0),
    **dict.fromkeys(("VND", "VUV", "XAF", "XOF", "XPF"), 0),
    **dict.fromkeys(("BHD", "JOD", "KWD", "OMR", "TND"), 3),
}
"""The currencies that have no cents, or a thousand of them, as payment providers count."""

NO_VALUE = "–"
"""The placeholder for a figure that is unknown or does not exist."""


def money(cents: int) -> str:
    """Return an amount with its cents: ``128050`` is ``¥1,280.50``."""
    # Integers only: a float would round somebody's money.
    sign = "-" if cents < 0 else ""
    yuan, rest = divmod(abs(cents), 100)
    return f"{sign}¥{yuan:,}.{rest:02d}"


def decimals_of(currency: str) -> int:
    """Return the decimals of amounts in a currency: its smallest unit is what "cents" counts."""
    return _DECIMALS.get(currency, 2)


def money_in(cents: int | None, currency: str) -> str:
    """Return an amount in any currency: ``128050`` is ``1,280.50 EUR``, in JPY ``128,050 JPY``.

    In ours, which an empty code means too, it is ``money``.
    """
    if cents is None:
        return NO_VALUE
    if currency in ("", OURS):
        return money(cents)
    whole, point, rest = plain_money(cents, currency).partition(".")
    return f"{int(whole):,}{point}{rest} {currency}"


def short_money(cents: int) -> str:
    """Return an amount without ``.00`` if there are no cents: ``128000`` is ``¥1,280``."""
    return money(cents).removesuffix(".00")


def plain_money(cents: int, currency: str = OURS) -> str:
    """Return an amount as a spreadsheet takes it: ``128050`` is ``1280.50``, in JPY ``128050``."""
    sign, decimals = "-" if cents < 0 else "", decimals_of(currency)
    whole, rest = divmod(abs(cents), 10**decimals)
    return f"{sign}{whole}.{rest:0{decimals}d}" if decimals else f"{sign}{whole}"


def listed(texts: Iterable[str]) -> str:
    """Return texts in a row, as the page's language separates them."""
    return pgettext("between names", ", ").join(texts)


def grouped(number: float | None) -> str:
    """Return a number with thousands separators, the same in every language."""
    return NO_VALUE if number is None else f"{number:,}"


def timestamp(moment: dt.datetime, *, exact: bool = False) -> str:
    """Return a moment as ``2026-11-11 20:00:00``, with milliseconds if ``exact``."""
    local = timezone.localtime(moment)
    return f"{local:%Y-%m-%d %H:%M:%S}" + (f".{local.microsecond // 1000:03d}" if exact else "")


def utc_offset(moment: dt.datetime) -> str:
    """Return the offset of the shop's time zone at that moment: ``UTC+8``."""
    offset = timezone.localtime(moment).utcoffset() or dt.timedelta()
    minutes = offset // dt.timedelta(minutes=1)
    sign = "-" if minutes < 0 else "+"
    hours, rest = divmod(abs(minutes), 60)
    return f"UTC{sign}{hours}" + (f":{rest:02d}" if rest else "")


def date_and_time(moment: dt.datetime) -> str:
    """Return a moment as the page's language writes it, without the current year."""
    # The letters are those of Django's date filter. Each ends with the minute.
    local = timezone.localtime(moment)
    if local.year == timezone.localtime().year:
        return date_format(local, pgettext("date format", "j M, H:i"))
    return date_format(local, pgettext("date format", "j M Y, H:i"))


def time_window(begin: dt.datetime, end: dt.datetime) -> str:
    """Return two moments as ``Mon 7 Dec, 10:00–12:00``, each with its day if they differ."""
    since, until = timezone.localtime(begin), timezone.localtime(end)
    first, last = (f"{date_format(it, 'D')} {date_and_time(it)}" for it in (since, until))
    return f"{first}–{until:%H:%M}" if since.date() == until.date() else f"{first} – {last}"


def exact_date_and_time(moment: dt.datetime) -> str:
    """Return a moment to the millisecond, as the page's language writes it."""
    return f"{date_and_time(moment)}{timestamp(moment, exact=True)[-7:]}"


def duration(length: dt.timedelta, *, units: int = 2) -> str:
    """Return a length of time as ``2 h 10 min``: its largest unit and those that follow."""
    minutes, seconds = divmod(int(length.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = [
        (days, gettext("%(count)s d")),
        (hours, gettext("%(count)s h")),
        (minutes, gettext("%(count)s min")),
        (seconds, gettext("%(count)s s")),
    ]
    first = next((n for n, (count, _) in enumerate(parts) if count), len(parts) - 1)
    shown = [part for part in parts[first : first + units] if part[0]] or [parts[-1]]
    return " ".join(text % {"count": grouped(count)} for count, text in shown)


def exact_duration(length: dt.timedelta | None) -> str:
    """Return a measured length of time, with hundredths of a second below two minutes."""
    if length is None:
        return NO_VALUE
    seconds = length.total_seconds()
    return (
        gettext("%(count)s s") % {"count": f"{seconds:.2f}"} if seconds < 120 else duration(length)
    )


def spelled_duration(seconds: int) -> str:
    """Return a deadline in words, in the largest unit that divides it: ``30 minutes``."""
    if seconds % 86_400 == 0:
        days = seconds // 86_400
        return ngettext("%(count)s day", "%(count)s days", days) % {"count": days}
    if seconds % 3_600 == 0:
        hours = seconds // 3_600
        return ngettext("%(count)s hour", "%(count)s hours", hours) % {"count": hours}
    minutes = seconds // 60  # rounded down: a deadline must not be promised too late
    return ngettext("%(count)s minute", "%(count)s minutes", minutes) % {"count": minutes}
