"""What the actions of the board ask for."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django import forms
from django.contrib.admin.widgets import AdminTextInputWidget
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from vouchers.forms.fields import YEARS
from vouchers.models import MAX_STOCK

UNTIL = "until"


class OptionalReasonForm(forms.Form):
    """Why it is done, where that goes without saying."""

    reason = forms.CharField(
        label=_("Reason"),
        max_length=200,
        required=False,
        widget=AdminTextInputWidget,
        help_text=_("Recorded in the sale's history."),
    )


class ReasonForm(OptionalReasonForm):
    """Why it is done."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].required = True


class SeenEndForm(forms.Form):
    """The end that the page showed, to the microsecond: another is no longer what was agreed to."""

    seen = forms.CharField(widget=forms.HiddenInput)

    def clean_seen(self) -> dt.datetime:
        try:
            seen = dt.datetime.fromisoformat(self.cleaned_data["seen"])
        except ValueError:
            seen = None
        if seen is None or seen.tzinfo is None or not YEARS[0] <= seen.year <= YEARS[1]:
            raise ValidationError("no page of ours sends such a moment")
        return seen


class EndSaleForm(SeenEndForm, ReasonForm):
    """Why a sale is ended."""


class ExtendForm(SeenEndForm, OptionalReasonForm):
    """How much longer a sale is to go on, or until when."""

    field_order = ("by", "until", "reason")

    by = forms.ChoiceField(
        label=_("Extend"),
        choices=[
            ("5", _("by 5 minutes")),
            ("15", _("by 15 minutes")),
            ("60", _("by 60 minutes")),
            (UNTIL, _("until this time:")),
        ],
        initial="5",
        widget=forms.RadioSelect,
    )
    until = forms.DateTimeField(
        label=_("New end"),
        required=False,
        widget=forms.DateTimeInput(
            format="%Y-%m-%dT%H:%M:%S", attrs={"type": "datetime-local", "step": 1}
        ),
    )

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        seen, by = data.get("seen"), data.get("by")
        if seen is None or by is None or "until" in self.errors:
            return data
        ends_at = data["until"] if by == UNTIL else seen + dt.timedelta(minutes=int(by))
        if ends_at is None:
            self.add_error("until", gettext("Choose the new end."))
        elif ends_at.year > YEARS[1]:
            self.add_error("until", gettext("This is too far in the future."))
        elif ends_at <= seen:
            self.add_error("until", gettext("The new end must be after the current one."))
        return {**data, "ends_at": ends_at}


class StockForm(OptionalReasonForm):
    """How many units are offered, instead of those that the page showed."""

    field_order = ("stock", "reason")

    stock = forms.IntegerField(
        label=_("New stock"), min_value=0, validators=[MaxValueValidator(MAX_STOCK)]
    )
    seen = forms.IntegerField(widget=forms.HiddenInput, min_value=0)

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        if data.get("stock") is not None and data["stock"] == data.get("seen"):
            self.add_error("stock", gettext("This is already the current stock."))
        return data
