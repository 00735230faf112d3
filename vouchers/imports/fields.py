"""Form fields for the texts that people write into the cells of a spreadsheet."""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.forms.utils import from_current_timezone
from django.utils.translation import gettext_lazy as _

from vouchers.forms.sale import MoneyField, validate_year

_THOUSANDS = re.compile(r"[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?")
_DATE_AND_TIME = re.compile(
    r"([0-9]{4})[-/.年]([0-9]{1,2})[-/.月]([0-9]{1,2})日?[T ]*"
    r"([0-9]{1,2})[:时]([0-9]{1,2})(?:[:分]([0-9]{1,2}))?[分秒]?"
)


def plain_number(text: str) -> str:
    """Return a number without currency and separators: ``¥1,200.00``, ``80元``, ``８０``."""
    plain = unicodedata.normalize("NFKC", text).strip().lstrip("¥").removesuffix("元").strip()
    return plain.replace(",", "") if _THOUSANDS.fullmatch(plain) else plain


class AmountField(MoneyField):
    """An amount in yuan; its value is in integer cents."""

    default_error_messages = {
        "invalid": _("This is not an amount. Write it like 79.90, ¥79.90 or 1,200."),
    }

    def to_python(self, value: Any) -> Any:
        return super().to_python(plain_number(value or ""))


class CountField(forms.IntegerField):
    """A whole number."""

    default_error_messages = {
        "invalid": _("This is not a whole number. Write it like 500 or 1,200.")
    }

    def to_python(self, value: Any) -> Any:
        return super().to_python(plain_number(value or ""))


class MomentField(forms.Field):
    """A date with its time, in the shop's time zone."""

    default_validators = [validate_year]
    default_error_messages = {
        "invalid": _("This is not a date with a time. Write it like 2026-12-01 10:00."),
    }

    def to_python(self, value: Any) -> Any:
        text = unicodedata.normalize("NFKC", value or "").strip()
        if not text:
            return None
        found = _DATE_AND_TIME.fullmatch(text)
        year, month, day, hour, minute, second = (
            [int(part or 0) for part in found.groups()] if found else [0] * 6
        )
        try:
            moment = dt.datetime(year, month, day, hour, minute, second)
        except ValueError as error:
            raise ValidationError(self.error_messages["invalid"]) from error
        return from_current_timezone(moment)
