"""Entries of the admin's history: codes with values, written as text in the reader's language.

An entry is kept in ``LogEntry.change_message`` as ``{"changes": [[code, values], …], "why": …}``,
where ``why`` is what a person typed. Entries from before there were codes are shown as they are.
"""

import datetime as dt
import json
from collections.abc import Callable, Mapping
from typing import Any

from django.contrib.admin.models import LogEntry
from django.core.exceptions import FieldDoesNotExist
from django.db.models import Choices
from django.utils.text import capfirst
from django.utils.translation import gettext, ngettext_lazy
from django.utils.translation import gettext_lazy as _

from seckill_site.formatting import NO_VALUE, duration, grouped, money, timestamp
from vouchers.catalogue.staff_texts import join_changes, with_reason
from vouchers.models import SeckillVoucher, Voucher

Value = str | int | None | dict[str, Any]
"""Text as typed, a number, or one of the kinds below: a moment, money, a label."""

Change = tuple[str, Mapping[str, Value]]
"""One change: its code, which must stay as it is, and the values of its sentence."""

SENTENCES: dict[str, Any] = {
    "field": _("%(field)s: %(before)s → %(after)s"),
    "rewritten": "%(field)s",
    "unchanged": _("No fields changed."),
    "paused": _("Paused"),
    "resumed": _("Resumed"),
    "ended_now": _("Ended now"),
    "room_opened": _("Waiting room opened: %(rate)s people per second"),
    "room_closed": _("Waiting room closed: everybody was let in"),
    "limits_lifted": _("Limits lifted: %(names)s"),
    "unwritten_retried": _("Write the orders that could not be written"),
    "unwritten_refused": _("Refuse the orders that could not be written"),
    "codes_made": ngettext_lazy(
        "Made %(count)s invitation code.", "Made %(count)s invitation codes.", "count"
    ),
    "codes_imported": _("Imported %(new)s invitation codes; %(known)s were there already."),
    "codes_downloaded": _("Downloaded the invitation codes."),
    "rehearsed": _("Rehearsed with %(buyers)s buyers and %(stock)s vouchers."),
    "rehearsal_cancelled": _("Cancelled."),
    "order_retried": _("Retried."),
    "order_cancelled": _("Cancelled"),
    "order_refunded": _("Refund started"),
    "refund_rest": _("Refund of the rest started"),
    "refund_count": _("Payment counted as refunded"),
    "imported": _("Imported from %(file)s."),
    "imported_row": _("Imported from %(file)s, row %(row)s."),
}
"""What each code says. A code is never renamed: it is in rows."""

_LABELS = {
    "price": _("Price"),
    "price_cents": _("Price"),
    "face_value": _("Face value"),
    "face_value_cents": _("Face value"),
    "remove_picture": _("Remove the picture"),
    "pay_within_s": _("Time to pay"),
    "draw_wait_s": _("Waiting list after the draw"),
}
"""The names of fields that no model has, or has under another name."""

START = '{"changes": '


def field_change(name: str, before: Value, after: Value) -> Change:
    """Return a change of one field of a sale or its voucher."""
    return "field", {"field": {"label": name}, "before": before, "after": after}


def moment(at: dt.datetime) -> Value:
    """Return a moment, which is shown in the time zone of the page."""
    return {"at": at.isoformat()}


def cents(amount: int) -> Value:
    """Return an amount of money."""
    return {"cents": amount}


def length(seconds: int) -> Value:
    """Return a length of time."""
    return {"seconds": seconds}


def yes_or_no(value: bool) -> Value:
    return {"yes": value}


def choice(field: str, value: str | int) -> Value:
    """Return one of the choices of a sale's field, which is shown by its label."""
    return {"choice": [field, value.value if isinstance(value, Choices) else value]}


def entry(*changes: Change, why: str = "") -> str:
    """Return an entry as it is stored."""
    return json.dumps({"changes": changes, "why": why}, ensure_ascii=False)


def history_text(row: LogEntry) -> str:
    """Return an entry of the history in the reader's language."""
    if not row.change_message.startswith(START):
        return row.get_change_message()
    return text_of(row.change_message)


def text_of(stored: str) -> str:
    """Return the text of a stored entry in the reader's language."""
    parsed = json.loads(stored)
    text = ""
    for code, values in parsed["changes"]:
        line = _line(code, values)
        ends = text.endswith((".", "。"))
        text = f"{text} {line}" if ends else join_changes(filter(None, (text, line)))
    return with_reason(text, parsed["why"])


def _line(code: str, values: Mapping[str, Value]) -> str:
    shown = {name: _shown(value) for name, value in values.items()}
    sentence = SENTENCES.get(code)
    if sentence is None:  # of a release after this one
        return " ".join([code, *map(str, shown.values())])
    if "count" in values:  # it chooses singular or plural
        return str(sentence % values)
    return str(sentence) % shown


def _shown(value: Value) -> str:
    if value is None:
        return NO_VALUE
    if not isinstance(value, dict):
        return grouped(value) if isinstance(value, int) else value
    ((kind, it),) = value.items()
    return _KINDS.get(kind, str)(it)  # of a release after this one


def _label(name: str) -> str:
    if name in _LABELS:
        return str(_LABELS[name])
    for model in (SeckillVoucher, Voucher):
        try:
            return str(capfirst(model._meta.get_field(name).verbose_name))  # type: ignore[union-attr]
        except FieldDoesNotExist:
            continue
    return name


def _choice_label(field_and_value: tuple[str, str | int]) -> str:
    name, value = field_and_value
    choices = dict(SeckillVoucher._meta.get_field(name).flatchoices)  # type: ignore[union-attr]
    return str(choices.get(value, value))


_KINDS: dict[str, Callable[[Any], str]] = {
    "at": lambda it: timestamp(dt.datetime.fromisoformat(it)),
    "cents": money,
    "seconds": lambda it: duration(dt.timedelta(seconds=it)),
    "yes": lambda it: gettext("yes") if it else gettext("no"),
    "label": _label,
    "choice": _choice_label,
}
