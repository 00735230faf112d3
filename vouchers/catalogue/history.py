"""Entries of the admin's history: codes with values, written as text in the reader's language.

An entry is kept in ``LogEntry.change_message`` as ``{"changes": [[code, values], …], "why": …}``,
where ``why`` is what a person typed. Entries from before there were codes are shown as they are.
"""

import datetime as dt
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from django.contrib.admin.models import LogEntry
from django.core.exceptions import FieldDoesNotExist
from django.db.models import Choices
from django.utils.text import capfirst
from django.utils.translation import gettext

from seckill_site.formatting import NO_VALUE, duration, grouped, money, timestamp
from seckill_site.web.text_files import read_texts
from vouchers.catalogue.staff_texts import join_changes, with_reason
from vouchers.models import SeckillVoucher, Voucher

Value = str | int | None | dict[str, Any]
"""Text as typed, a number, or one of the kinds below: a moment, money, a label."""

Change = tuple[str, Mapping[str, Value]]
"""One change: its code, which must stay as it is, and the values of its sentence."""

_TEXTS = read_texts(Path(__file__).with_name("history_texts.toml"))
_LABELS = _TEXTS["label"]

SENTENCES = {"rewritten": "%(field)s", **_TEXTS["sentence"]}
"""What each code says."""

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
    number = values.get("count")  # it chooses singular or plural
    return str(sentence % {"number": number, **shown})


def _shown(value: Value) -> str:
    if value is None:
        return NO_VALUE
    if not isinstance(value, dict):
        return grouped(value) if isinstance(value, int) else value
    ((kind, it),) = value.items()
    return _KINDS.get(kind, str)(it)  # of a release after this one


def field_label(name: str) -> str:
    """Return the name of a field of a sale or its voucher."""
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
    "label": field_label,
    "choice": _choice_label,
}
