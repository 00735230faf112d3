"""The admin's form for a voucher and a sale of it."""

from __future__ import annotations

import datetime as dt
from dataclasses import fields
from pathlib import Path
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext

from seckill_site.face.site_face import shop_name
from seckill_site.formatting import utc_offset
from seckill_site.web.text_files import read_texts
from vouchers.catalogue.audience import SALE_RULES
from vouchers.catalogue.form_hints import Entries, Hint, sale_hints
from vouchers.catalogue.history import (
    Change,
    Value,
    cents,
    choice,
    entry,
    field_change,
    length,
    moment,
    yes_or_no,
)
from vouchers.catalogue.sales import (
    FACTS,
    ModeIsSettled,
    SaleTerms,
    VoucherDetails,
    has_buyers,
    terms_of,
    units_taken,
)
from vouchers.catalogue.series import overlapping_sales
from vouchers.forms.fields import LastDayForm, MinutesField, MoneyField, PictureField
from vouchers.models import (
    MAX_DRAW_WAIT_S,
    MAX_STOCK,
    PAY_WITHIN_S,
    Merchant,
    RoomKind,
    SaleMode,
    SaleStage,
    SeckillVoucher,
    Voucher,
    validate_year,
)

_TEXTS = read_texts(Path(__file__).with_name("form_texts.toml"))
_REFUSED = _TEXTS["refused"]

FIELDS = _TEXTS["fields"]
"""The words of the fields of a sale and of a series."""

_HINTED = ("begins_at", "ends_at", "stock", "limit", "pay_within_s")
_LONG = ("rules", "rules_en", "picture", "remove_picture")
"""Fields whose values are too long for the text of a change."""

FURTHER_TERMS = tuple(
    SeckillVoucher._meta.get_field(it.name).name
    for it in fields(SaleTerms)
    if it.name not in ("stock", "begins_at", "ends_at", "paused", "stage")
)
"""The fields of what most sales leave as it is."""

FIELD_CLASSES = {"refund_unused": forms.BooleanField}
"""A box to tick, although it has a third value: ``clean_refund_unused`` keeps that."""

_NUMBERS = tuple(it.form_field for it in SALE_RULES if it.bounds)
_KEPT = ("room", "room_rate", "draw_wait_s", "work", *_NUMBERS)
"""Fields that keep what is stored without an entry; a new sale gets the default."""


def _described() -> dict[str, forms.Field]:
    """Return the fields of a description, which a sale of an existing voucher leaves empty."""
    line, text = {"class": "vTextField"}, {"rows": 4, "class": "vLargeTextField"}
    widgets: dict[str, type[forms.Widget] | forms.Widget] = {
        **{name: forms.TextInput(line) for name in ("title", "title_en", "valid_where")},
        **{name: forms.Textarea(text) for name in ("rules", "rules_en")},
        "valid_until": forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"}),
    }
    described = forms.fields_for_model(Voucher, [*widgets, "merchant"], widgets=widgets)
    described["title"].required = False
    return described


_DESCRIBED = _described()


class RecordedForm(forms.Form):
    """A form whose changes are recorded with a reason."""

    why = forms.CharField(
        max_length=200,
        required=False,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        **FIELDS["why"],
    )

    refusal = ""
    """The reason why a valid form could not be saved a moment ago; set by the admin."""

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        if self.refusal:
            self.add_error(None, self.refusal)
        return data

    def history_entry(self) -> str:
        """Return the changes of a valid form for the history."""
        changes = [it for name in self.changed_data if name != "why" for it in self._changes(name)]
        return entry(*(changes or [("unchanged", {})]), why=self.cleaned_data.get("why", ""))

    def _changes(self, name: str) -> list[Change]:
        field = self.fields[name]
        if name in _LONG:
            return [("rewritten", {"field": {"label": name}})]
        before, after = self.get_initial_for_field(field, name), self.cleaned_data[name]
        after = after.pk if isinstance(after, models.Model) else after
        if before == after:
            return []
        return [field_change(name, *(_as_value(name, field, it) for it in (before, after)))]


class TermsForm(forms.ModelForm):  # type: ignore[type-arg]
    """The terms of a sale; what is not entered stays as it is stored, or as a new sale has it."""

    pay_within_s = MinutesField(seconds=PAY_WITHIN_S, initial=15 * 60, **FIELDS["pay_within_s"])
    draw_wait_s = MinutesField(
        seconds=(0, MAX_DRAW_WAIT_S), initial=0, required=False, **FIELDS["draw_wait_s"]
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stored = (
            SeckillVoucher.objects.select_related("voucher").filter(pk=self.instance.pk).first()
        )
        prepare_terms(self.fields, lowest_stock=0 if self._stored else 1)
        for name in {"mode", *_KEPT} & set(self.fields):
            self.fields[name].required = False

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        for name in _KEPT:
            if data.get(name, 0) in (None, ""):
                data[name] = self._stored_or_default(name)
        self._refuse_what_no_draw_has(data)
        return data

    def clean_mode(self) -> str:
        """Without an entry, keep what is stored; a new sale is first come, first served."""
        current = str(self._stored_or_default("mode"))
        mode = str(self.cleaned_data["mode"] or current)
        if self._stored and mode != current and has_buyers(sale=self._stored):
            raise ValidationError(str(ModeIsSettled()))
        return mode

    def clean_refund_unused(self) -> bool | None:
        """Leave a sale from before this rule as it is, unless the rule is chosen."""
        is_chosen: bool = self.cleaned_data["refund_unused"]
        is_from_before = self._stored_or_default("refund_unused") is None
        return None if is_from_before and not is_chosen else is_chosen

    def _stored_or_default(self, name: str) -> Any:
        sale = self._stored or SeckillVoucher()
        return getattr(sale, name)

    def _refuse_what_no_draw_has(self, data: dict[str, Any]) -> None:
        is_draw = data.get("mode") == SaleMode.DRAW
        if is_draw and data.get("limit", 1) != 1:
            self.add_error("limit", gettext("A draw gives each buyer one voucher at most."))
        if is_draw and data.get("room", RoomKind.OFF) != RoomKind.OFF:
            self.add_error("room", gettext("A draw needs no waiting room: nobody has to be fast."))


class SaleForm(RecordedForm, LastDayForm, TermsForm):
    """A voucher and one sale of it, new or stored."""

    existing_voucher = forms.ModelChoiceField(
        Voucher.objects.order_by("-pk"),
        required=False,
        **FIELDS["existing_voucher"],
    )
    title = _DESCRIBED["title"]
    rules = _DESCRIBED["rules"]
    title_en = _DESCRIBED["title_en"]
    rules_en = _DESCRIBED["rules_en"]
    merchant = _DESCRIBED["merchant"]
    valid_where = _DESCRIBED["valid_where"]
    valid_until = _DESCRIBED["valid_until"]
    price = MoneyField(required=False, **FIELDS["price"])
    face_value = MoneyField(required=False, **FIELDS["face_value"])
    picture = PictureField(required=False, **FIELDS["picture"])
    remove_picture = forms.BooleanField(required=False, **FIELDS["remove_picture"])

    class Meta:
        model = SeckillVoucher
        fields = ("stock", "begins_at", "ends_at", "paused", *FURTHER_TERMS)
        field_classes = FIELD_CLASSES

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        default = {"merchant": Merchant.objects.order_by("pk").first() or shop_name}
        self.fields["merchant"].empty_label = gettext("Default (%(merchant)s)") % default  # type: ignore[attr-defined]
        if self._stored:
            voucher = self._stored.voucher
            self.initial.update(forms.model_to_dict(voucher, [*_DESCRIBED, "picture"]))
            self.initial.update(price=voucher.price_cents, face_value=voucher.face_value_cents)
        else:
            self.instance.stage = SaleStage.DRAFT  # only a step of its own makes it public

    @property
    def media(self) -> forms.Media:
        """The script that checks entries while they are typed; a read-only page has none."""
        if "stock" not in self.fields:
            return super().media
        url = reverse("admin:sale-check") + (f"?sale={self.instance.pk}" if self._stored else "")
        script = forms.Script("seckill/sale_form.js", type="module", **{"data-check-url": url})
        return super().media + forms.Media(js=[script])  # type: ignore[list-item]

    @property
    def terms(self) -> SaleTerms:
        """The sale's terms in a valid form."""
        return terms_of(self.instance)

    @property
    def details(self) -> VoucherDetails | None:
        """The voucher's description, or None if an existing voucher was chosen."""
        data = self.cleaned_data
        if data.get("existing_voucher"):
            return None
        words = (data["title"], data["rules"], data["price"], data["face_value"])
        return VoucherDetails(
            *words,
            picture=data.get("picture"),
            remove_picture=data.get("remove_picture", False),
            **{name: data[name] for name in FACTS if name in data},
        )

    def hints(self, *, now: dt.datetime) -> dict[str, list[Hint]]:
        """Return the hints on the valid entries, field by field."""
        data, stored = self.cleaned_data, self._stored
        entries = Entries(
            price_cents=data.get("price"),
            face_value_cents=data.get("face_value"),
            stage=stored.stage if stored else SaleStage.DRAFT,
            paused=data.get("paused", False),
            **{name: data.get(name) for name in _HINTED},
        )
        voucher = stored.voucher if stored else data.get("existing_voucher")
        others: list[SeckillVoucher] = []
        if voucher and {"begins_at", "ends_at"} <= set(data):
            [others] = overlapping_sales([(voucher.pk, self.instance)])
        return sale_hints(
            entries=entries,
            now=now,
            stored=stored,
            taken=(units_taken(sale=stored) or stored.sold) if stored else 0,
            others=[sale for sale in others if sale.pk != self.instance.pk],
        )

    def clean_limit(self) -> int:
        limit: int = self.cleaned_data["limit"]
        if self._stored and limit < self._stored.limit:
            raise ValidationError(_REFUSED["lower_limit"], params={"limit": self._stored.limit})
        return limit

    def clean_stock(self) -> int:
        stock: int = self.cleaned_data["stock"]
        if self._stored and stock < self._stored.stock:
            taken = units_taken(sale=self._stored)
            if taken is None:
                raise ValidationError(_REFUSED["unknown_taken"])
            if stock < taken:
                raise ValidationError(_REFUSED["below_taken"], params={"taken": taken})
        return stock

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        refuse_end_before_start(self)
        if data.get("remove_picture") and "picture" in getattr(self, "kept", ()):
            text = gettext("Somebody has changed the picture. Save again to remove the new one.")
            self.add_error("remove_picture", text)
        if data.get("existing_voucher"):
            self._refuse_second_description(data)
        else:
            self._require_description(data)
        return data

    def _require_description(self, data: dict[str, Any]) -> None:
        for name in ("title", "price", "face_value"):
            if name not in self.errors and data.get(name) in (None, ""):
                self.add_error(name, gettext("Fill this in, or choose an existing voucher."))
        price, face_value = data.get("price"), data.get("face_value")
        if price is not None and face_value is not None and price > face_value:
            self.add_error("price", gettext("The price cannot be above the face value."))

    def _refuse_second_description(self, data: dict[str, Any]) -> None:
        given = ("title", "rules", "price", "face_value", "picture", *FACTS)
        if any(data.get(name) not in (None, "") for name in given):
            self.add_error("existing_voucher", _REFUSED["both"])


def _as_value(name: str, field: forms.Field, value: Any) -> Value:
    if value in (None, ""):
        return None
    if isinstance(field, MoneyField):
        return cents(value)
    if isinstance(field, forms.ModelChoiceField):
        return str(dict(field.choices).get(value, value))  # type: ignore[arg-type]
    if isinstance(field, forms.ChoiceField):
        return choice(name, value)
    if isinstance(value, bool):
        return yes_or_no(value)
    if isinstance(value, dt.datetime):
        return moment(value)
    if isinstance(value, int):
        return length(value) if name.endswith("_s") else value
    return str(value)


def prepare_terms(form_fields: dict[str, forms.Field], *, lowest_stock: int) -> None:
    """Prepare those fields of a sale's terms that a form has."""
    for name in {"begins_at", "ends_at"} & set(form_fields):
        _prepare_moment(form_fields[name])
    if "stock" in form_fields:
        bounds = [MinValueValidator(lowest_stock), MaxValueValidator(MAX_STOCK)]
        form_fields["stock"].validators += bounds


def _prepare_moment(field: Any) -> None:
    """Validate the year, state the time zone, and label the two controls."""
    field.validators.append(validate_year)
    day, time = field.widget.widgets
    # Django's admin shows words beside them, but no labels for a screen reader.
    day.attrs["aria-label"] = gettext("%(field)s: date") % {"field": field.label}
    time.attrs["aria-label"] = gettext("%(field)s: time") % {"field": field.label}
    # Staff may be in another time zone.
    zone = {"zone": timezone.get_default_timezone_name(), "offset": utc_offset(timezone.now())}
    field.help_text = gettext("Shop time: %(zone)s, now %(offset)s.") % zone


def refuse_end_before_start(form: forms.Form | forms.ModelForm[Any]) -> None:
    """Put an error on the end of a window that is not after its start."""
    begins_at, ends_at = map(form.cleaned_data.get, ("begins_at", "ends_at"))
    if begins_at and ends_at and ends_at <= begins_at:
        form.add_error("ends_at", gettext("The end must be after the start."))
