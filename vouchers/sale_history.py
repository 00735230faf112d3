"""What a sale's history in the admin says of a change: which entries, before and after, and why."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext, pgettext

from vouchers.forms import MoneyField, SaleForm
from vouchers.models import SaleStage, SeckillVoucher
from vouchers.templatetags.seckill import yuan

_ONLY_NAMED = ("rules", "picture", "remove_picture")
"""Too long to be shown before and after."""


def change_text(form: SaleForm) -> str:
    """Return what a valid form changes, in the language of who changes it."""
    lines = [_line(form, name) for name in form.changed_data if name != "why"]
    text = pgettext("between changes", "; ").join(line for line in lines if line)
    return with_reason(text or gettext("No fields changed."), form.cleaned_data.get("why", ""))


def published_text() -> str:
    """Return what is said of a draft that was published."""
    label = capfirst(SeckillVoucher._meta.get_field("stage").verbose_name)
    return change_line(label, SaleStage.DRAFT.label, SaleStage.PUBLIC.label)


def change_line(label: object, before: object, after: object) -> str:
    """Return one change as ``Stock: 5 → 9``."""
    words = {"label": label, "before": before, "after": after}
    return gettext("%(label)s: %(before)s → %(after)s") % words


def with_reason(text: str, why: str) -> str:
    """Return a change with the reason that was given for it, if any."""
    if not why:
        return text
    return gettext("%(change)s. Reason: %(why)s") % {"change": text, "why": why}


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
        return yuan(value)
    if isinstance(field, forms.ChoiceField):
        return str(SaleStage(value).label)
    if isinstance(value, bool):
        return gettext("yes") if value else gettext("no")
    if isinstance(value, dt.datetime):
        return f"{timezone.localtime(value):%Y-%m-%d %H:%M:%S}"
    return str(value) if value not in (None, "") else "–"
