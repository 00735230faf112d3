"""The form for a series of sales."""

import datetime as dt
from typing import Any

from django import forms
from django.contrib.admin.widgets import AdminIntegerFieldWidget
from django.utils import timezone
from django.utils.dates import WEEKDAYS
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from vouchers.catalogue.sales import SaleTerms
from vouchers.catalogue.series import (
    MOST_SALES,
    PlannedSale,
    Rhythm,
    SeriesUnit,
    copy_terms,
    plan_series,
)
from vouchers.forms.moments import SplitMomentField
from vouchers.forms.sale import FIELD_CLASSES, FIELDS, FURTHER_TERMS, TermsForm
from vouchers.models import YEARS, SaleStage, SeckillVoucher, Voucher

LONGEST = dt.timedelta(days=366)
LENGTHS = ((60, _("minutes")), (3_600, _("hours")), (86_400, _("days")))
TERMS = ("stock", *FURTHER_TERMS)


def _number(name: str, *, most: int) -> forms.IntegerField:
    widget = AdminIntegerFieldWidget
    return forms.IntegerField(min_value=1, max_value=most, widget=widget, **FIELDS[name])


class SeriesForm(TermsForm):
    """A voucher, the first start, the interval, and the terms of all drafts of the series."""

    voucher = forms.ModelChoiceField(Voucher.objects.order_by("-pk"), **FIELDS["voucher"])
    begins_at = SplitMomentField(**FIELDS["first_start"])
    length = _number("length", most=1_000_000)
    length_unit = forms.TypedChoiceField(choices=LENGTHS, coerce=int, **FIELDS["unit"])
    sales = _number("sales", most=MOST_SALES)
    number = _number("number", most=1_000)
    unit = forms.ChoiceField(choices=SeriesUnit.choices, **FIELDS["unit"])
    weekdays = forms.TypedMultipleChoiceField(
        choices=tuple(WEEKDAYS.items()),
        coerce=int,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        **FIELDS["weekdays"],
    )

    class Meta:
        model = SeckillVoucher
        fields = TERMS
        field_classes = FIELD_CLASSES
        widgets = dict.fromkeys(
            ("stock", "limit", "per_address", "account_age_h", "room_rate"), AdminIntegerFieldWidget
        )

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        if data.get("unit") == SeriesUnit.WEEKDAYS and not data.get("weekdays"):
            self.add_error("weekdays", gettext("Choose at least one weekday."))
        if {"length", "length_unit"} <= set(data) and self._length() > LONGEST:
            self.add_error("length", gettext("A sale can last at most 366 days."))
        if not self.errors:
            self._refuse_other_years()
        return data

    @property
    def plan(self) -> list[PlannedSale]:
        """The sales that a valid form asks for."""
        data = self.cleaned_data
        begins_at = data["begins_at"].astimezone(dt.UTC)
        terms = {name: data[name] for name in TERMS if name != "group"}
        first = SaleTerms(
            begins_at=begins_at,
            ends_at=begins_at + self._length(),
            stage=SaleStage.DRAFT,
            group_id=data["group"] and data["group"].pk,
            **terms,
        )
        weekdays = frozenset(data["weekdays"])
        return plan_series(
            voucher=data["voucher"],
            first=first,
            rhythm=Rhythm(data["number"], SeriesUnit(data["unit"]), weekdays),
            sales=data["sales"],
            zone=timezone.get_default_timezone(),
        )

    def _length(self) -> dt.timedelta:
        data = self.cleaned_data
        return dt.timedelta(seconds=data["length"] * data["length_unit"])

    def _refuse_other_years(self) -> None:
        plan, (first, last) = self.plan, YEARS
        moments = (plan[0].terms.begins_at, plan[-1].terms.ends_at)
        if not all(first <= moment.year <= last for moment in moments):
            text = gettext("The years of all sales must be between %(first)s and %(last)s.")
            self.add_error("begins_at", text % {"first": first, "last": last})


def series_like(*, sale: SeckillVoucher, now: dt.datetime) -> dict[str, Any]:
    """Return the initial values for a daily series of the same voucher and terms."""
    terms = copy_terms(sale=sale, now=now, zone=timezone.get_default_timezone())
    length_s = int((terms.ends_at - terms.begins_at).total_seconds())
    unit_s = next((seconds for seconds, _label in reversed(LENGTHS) if length_s % seconds == 0), 60)
    return {
        "voucher": sale.voucher_id,
        "begins_at": terms.begins_at,
        "length": max(1, length_s // unit_s),
        "length_unit": unit_s,
        **{name: getattr(terms, name) for name in TERMS if name != "group"},
        "group": terms.group_id,
    }
