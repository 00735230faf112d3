"""Form fields: prices and pictures, and values that people type into spreadsheet cells."""

import datetime as dt
import re
import unicodedata
from decimal import Decimal
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from vouchers.catalogue.pictures import LARGEST_UPLOAD_BYTES, UnusablePicture, as_webp
from vouchers.forms.moments import as_moment, split_offset, written
from vouchers.models import validate_year

ACCEPT = "image/jpeg,image/png,image/webp,image/gif"
HIGHEST_PRICE = Decimal(1_000_000)
VALID_YEARS = 20
"""The longest time for which a new voucher is valid."""

_THOUSANDS = re.compile(r"[0-9]{1,3}(,[0-9]{3})+(\.[0-9]*)?")
_DATE_AND_TIME = re.compile(
    r"([0-9]{4})[-/.年]([0-9]{1,2})[-/.月]([0-9]{1,2})日?[T ]*"
    r"([0-9]{1,2})[:时]([0-9]{1,2})(?:[:分]([0-9]{1,2}))?[分秒]?"
)

_DAY = re.compile(r"([0-9]{4})[-/.年]([0-9]{1,2})[-/.月]([0-9]{1,2})日?(?:[T ]+00?:00(?::00)?)?")


class MoneyField(forms.DecimalField):
    """An amount entered in yuan; its cleaned value is in integer cents."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(min_value=Decimal(0), max_value=HIGHEST_PRICE, decimal_places=2, **kwargs)

    def clean(self, value: Any) -> Any:
        amount = super().clean(value)
        return None if amount is None else int(amount * 100)

    def prepare_value(self, value: Any) -> Any:
        return Decimal(value) / 100 if isinstance(value, int) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed(self.prepare_value(initial), data)


class MinutesField(forms.DecimalField):
    """A length of time entered in minutes; its cleaned value is in whole seconds.

    ``seconds`` are the shortest and the longest.
    """

    widget = forms.NumberInput(attrs={"class": "vIntegerField", "step": "any"})

    def __init__(self, *, seconds: tuple[int, int], **kwargs: Any) -> None:
        shortest, longest = (Decimal(it) / 60 for it in seconds)
        super().__init__(min_value=shortest, max_value=longest, decimal_places=2, **kwargs)

    def clean(self, value: Any) -> Any:
        minutes = super().clean(value)
        return None if minutes is None else round(minutes * 60)

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, int):
            return value
        return f"{Decimal(value) / 60:.2f}".rstrip("0").rstrip(".")

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed(self.to_python(self.prepare_value(initial)), data)


class PictureField(forms.FileField):
    """An uploaded picture; its cleaned value is the bytes for ``set_picture``, or None."""

    widget = forms.FileInput(attrs={"accept": ACCEPT})

    def clean(self, value: Any, initial: Any = None) -> Any:
        """Return an upload alone; ``initial`` is the digest of the stored picture."""
        return super().clean(value)

    def to_python(self, data: Any) -> Any:
        upload = super().to_python(data)
        if upload is None:
            return None
        try:
            # One byte too many is enough to refuse; the rest is not read into memory.
            return as_webp(content=upload.read(LARGEST_UPLOAD_BYTES + 1)).content
        except UnusablePicture as error:
            raise ValidationError(str(error), code="unusable") from error


def validate_last_day(day: dt.date, *, today: dt.date) -> None:
    """Refuse a new last day that is over, or further away than ``VALID_YEARS``."""
    last = (today.year + VALID_YEARS, today.month, today.day)
    if not today <= day or (day.year, day.month, day.day) > last:
        text = gettext("Choose a day from today to %(years)s years on, or leave it empty.")
        raise ValidationError(text, params={"years": VALID_YEARS})


class LastDayForm(forms.Form):
    """A form with the last day of a voucher: a stored one may stay."""

    def clean_valid_until(self) -> dt.date | None:
        day: dt.date | None = self.cleaned_data["valid_until"]
        if day and "valid_until" in self.changed_data:
            validate_last_day(day, today=timezone.localdate())
        return day


def plain_number(text: str) -> str:
    """Return a number without currency and separators: ``¥1,200.00``, ``80元``, ``８０``.

    What is only a currency stays as it is: it is no number, and no empty cell either.
    """
    typed = unicodedata.normalize("NFKC", text).strip()
    plain = typed.lstrip("¥").removesuffix("元").strip() or typed
    return plain.replace(",", "") if _THOUSANDS.fullmatch(plain) else plain


class AmountField(MoneyField):
    """An amount in yuan, as people write it; its value is in integer cents."""

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


class WrittenField(forms.Field):
    """A date written as people write it: the groups of ``written`` make a ``kind``."""

    written: re.Pattern[str]
    kind: type[dt.date]

    def to_python(self, value: Any) -> Any:
        text = unicodedata.normalize("NFKC", value or "").strip()
        if not text:
            return None
        match = self.written.fullmatch(text)
        numbers = [int(part or 0) for part in match.groups()] if match else [0] * 3
        try:
            return self.kind(*numbers)
        except ValueError as error:
            raise ValidationError(self.error_messages["invalid"]) from error


class MomentField(WrittenField):
    """A date with its time, in the shop's time zone, in one line."""

    written, kind = _DATE_AND_TIME, dt.datetime
    default_validators = [validate_year]
    default_error_messages = {
        "invalid": _("This is not a date with a time. Write it like 2026-12-01 10:00."),
    }

    def to_python(self, value: Any) -> Any:
        text, offset = split_offset(unicodedata.normalize("NFKC", value or ""))
        wall = super().to_python(text)
        return as_moment(wall.replace(tzinfo=offset)) if wall else None

    def prepare_value(self, value: Any) -> Any:
        return written(value) if isinstance(value, dt.datetime) else value


class DayField(WrittenField):
    """A day; a date cell of Excel carries a midnight, too."""

    written, kind = _DAY, dt.date
    default_error_messages = {"invalid": _("This is not a date. Write it like 2026-12-01.")}
