"""The changes of a sale's form as text for the sale's history."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django import forms
from django.utils.translation import gettext, pgettext

from seckill_site.formatting import NO_VALUE, money, timestamp
from vouchers.catalogue.history import change_line, with_reason
from vouchers.forms.sale import MoneyField, SaleForm
from vouchers.models import SaleStage

_ONLY_NAMED = ("rules", "picture", "remove_picture")
"""Too long to be shown before and after."""


def change_text(form: SaleForm) -> str:
    """Return the changes of a valid form, in the language of its user."""
    lines = [_line(form, name) for name in form.changed_data if name != "why"]
    text = pgettext("between changes", "; ").join(line for line in lines if line)
    return with_reason(text or gettext("No fields changed."), form.cleaned_data.get("why", ""))


def _line(form: SaleForm, name: str) -> str:
    field = form.fields[name]
    before, after = form.get_initial_for_field(field, name), form.cleaned_data[name]
    if name in _ONLY_NAMED:
        return str(field.label)
    if before == after:
        return ""
    return change_line(field.label, _shown(field, before), _shown(field, after))


def _shown(field: forms.Field, value: Any) -> str:
    if isinstance(field, MoneyField) and value is not None:
        return money(value)
    if isinstance(field, forms.ChoiceField):
        return str(SaleStage(value).label)
    if isinstance(value, bool):
        return gettext("yes") if value else gettext("no")
    if isinstance(value, dt.datetime):
        return timestamp(value)
    return str(value) if value not in (None, "") else NO_VALUE
