"""The admin's form for a voucher and a sale of it."""

from __future__ import annotations

import datetime as dt
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

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
    StaysPublic,
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
from vouchers.templatetags.seckill import utc_offset

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

_HINTED = ("begins_at", "ends_at", "stock", "limit", "pay_within_s")
_LONG = ("rules", "rules_en", "picture", "remove_picture")
"""Fields whose values are too long for the text of a change."""

_NUMBERS = tuple(it.form_field for it in SALE_RULES if it.bounds)
_KEPT = ("room", "room_rate", "draw_wait_s", "work", *_NUMBERS)
"""Fields that keep what is stored without an entry; a new sale gets the default."""


def _line(label: StrOrPromise, help_text: StrOrPromise = "") -> forms.CharField:
    """Return a field for a line of a voucher's description."""
    widget = forms.TextInput(attrs={"class": "vTextField"})
    return forms.CharField(
        label=label, help_text=help_text, max_length=120, required=False, widget=widget
    )


def _paragraphs(label: StrOrPromise) -> forms.CharField:
    """Return a field for a long text of a voucher's description."""
    widget = forms.Textarea(attrs={"rows": 4, "class": "vLargeTextField"})
    return forms.CharField(label=label, max_length=4000, required=False, widget=widget)


class SaleForm(LastDayForm, forms.ModelForm):  # type: ignore[type-arg]
    """A voucher and one sale of it, new or stored."""

    existing_voucher = forms.ModelChoiceField(
        Voucher.objects.order_by("-pk"),
        required=False,
        label=_("Existing voucher"),
        empty_label=_("(new voucher, described below)"),
        help_text=_(
            "To put a voucher on sale again, choose it here and leave the description empty."
        ),
    )
    title = _line(_("Title"))
    rules = _paragraphs(_("Rules"))
    title_en = _line(
        _("English title"),
        _("For pages in English. Empty: the title is the same in both languages."),
    )
    rules_en = _paragraphs(_("English rules"))
    merchant = forms.ModelChoiceField(
        Merchant.objects.order_by("name"),
        required=False,
        label=_("Merchant"),
        empty_label=_("(the default merchant)"),
    )
    valid_where = _line(
        _("Where it is valid"), _("Such as “all branches”. Empty: at the merchant's address.")
    )
    valid_until = forms.DateField(
        label=_("Valid until"),
        required=False,
        widget=forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"}),
        help_text=_("The last day on which it can be redeemed. Empty: it does not expire."),
    )
    price = MoneyField(
        label=_("Price"), required=False, help_text=_("In yuan, such as 80 or 79.90.")
    )
    face_value = MoneyField(label=_("Face value"), required=False, help_text=_("In yuan."))
    pay_within_s = MinutesField(
        label=_("Minutes to pay"),
        seconds=PAY_WITHIN_S,
        initial=15 * 60,
        help_text=_("Orders that are not paid within this time expire."),
    )
    draw_wait_s = MinutesField(
        label=_("Waiting list after the draw, in minutes"),
        seconds=(0, MAX_DRAW_WAIT_S),
        initial=0,
        required=False,
        help_text=_(
            "How long after the end of a draw returned vouchers go to those who did not win, in "
            "drawn order, such as 60. 0: nobody waits. It should be longer than the time to pay."
        ),
    )
    picture = PictureField(
        label=_("Picture"), required=False, help_text=_("JPEG, PNG, WebP or GIF, at most 10 MB.")
    )
    remove_picture = forms.BooleanField(label=_("Remove the picture"), required=False)
    why = forms.CharField(
        label=_("Reason"),
        max_length=200,
        required=False,
        widget=forms.TextInput(attrs={"class": "vTextField"}),
        help_text=_("Recorded in the sale's history next to the change."),
    )

    refusal = ""
    """The reason why a valid form could not be saved a moment ago; set by the admin."""

    class Meta:
        model = SeckillVoucher
        fields = tuple(SeckillVoucher._meta.get_field(it.name).name for it in fields(SaleTerms))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stored = (
            SeckillVoucher.objects.select_related("voucher").filter(pk=self.instance.pk).first()
        )
        if self._stored:
            voucher = self._stored.voucher
            self.initial.update(
                title=voucher.title,
                rules=voucher.rules,
                price=voucher.price_cents,
                face_value=voucher.face_value_cents,
                merchant=voucher.merchant_id,
                title_en=voucher.title_en,
                rules_en=voucher.rules_en,
                valid_where=voucher.valid_where,
                valid_until=voucher.valid_until,
            )
        prepare_terms(self.fields, lowest_stock=0 if self._stored else 1)
        for name in {"stage", "mode", *_KEPT} & set(self.fields):
            self.fields[name].required = False

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
            stage=data.get("stage", SaleStage.PUBLIC),
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

    def history_entry(self) -> str:
        """Return the changes of a valid form for the sale's history."""
        changes = [it for name in self.changed_data if name != "why" for it in self._changes(name)]
        return entry(*(changes or [("unchanged", {})]), why=self.cleaned_data.get("why", ""))

    def clean_stage(self) -> str:
        """Without an entry, keep the stored stage; a new sale is public."""
        current = self._stored.stage if self._stored else SaleStage.PUBLIC
        stage = self.cleaned_data["stage"] or str(current)
        withdrawn = (current, stage) == (SaleStage.PUBLIC, SaleStage.DRAFT)
        if self._stored and withdrawn and has_buyers(sale=self._stored):
            raise ValidationError(str(StaysPublic()))
        return stage

    def clean_mode(self) -> str:
        """Without an entry, keep what is stored; a new sale is first come, first served."""
        current = str(self._stored_or_default("mode"))
        mode = str(self.cleaned_data["mode"] or current)
        if self._stored and mode != current and has_buyers(sale=self._stored):
            raise ValidationError(str(ModeIsSettled()))
        return mode

    def _stored_or_default(self, name: str) -> Any:
        sale = self._stored or SeckillVoucher()
        return getattr(sale, name)

    def clean_limit(self) -> int:
        limit: int = self.cleaned_data["limit"]
        if self._stored and limit < self._stored.limit:
            raise ValidationError(
                gettext("The limit can only be raised; it is now %(limit)s."),
                params={"limit": self._stored.limit},
            )
        return limit

    def clean_stock(self) -> int:
        stock: int = self.cleaned_data["stock"]
        if self._stored and stock < self._stored.stock:
            taken = units_taken(sale=self._stored)
            if taken is None:
                raise ValidationError(
                    gettext("Redis is not responding, so the stock cannot be lowered now.")
                )
            if stock < taken:
                raise ValidationError(
                    gettext("%(taken)s vouchers are already taken; the stock cannot be lower."),
                    params={"taken": taken},
                )
        return stock

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        for name in _KEPT:
            if data.get(name, 0) in (None, ""):
                data[name] = self._stored_or_default(name)
        if self.refusal:
            self.add_error(None, self.refusal)
        refuse_end_before_start(self)
        self._refuse_what_no_draw_has(data)
        if data.get("existing_voucher"):
            self._refuse_second_description(data)
        else:
            self._require_description(data)
        return data

    def _refuse_what_no_draw_has(self, data: dict[str, Any]) -> None:
        is_draw = data.get("mode") == SaleMode.DRAW
        if is_draw and data.get("limit", 1) != 1:
            self.add_error("limit", gettext("A draw gives each buyer one voucher at most."))
        if is_draw and data.get("room", RoomKind.OFF) != RoomKind.OFF:
            self.add_error("room", gettext("A draw needs no waiting room: nobody has to be fast."))

    def _changes(self, name: str) -> list[Change]:
        field = self.fields[name]
        if name in _LONG:
            return [("rewritten", {"field": {"label": name}})]
        before, after = self.get_initial_for_field(field, name), self.cleaned_data[name]
        after = after.pk if isinstance(after, models.Model) else after
        if before == after:
            return []
        return [field_change(name, *(_as_value(name, field, it) for it in (before, after)))]

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
            self.add_error(
                "existing_voucher",
                gettext("Choose an existing voucher or describe a new one, not both."),
            )


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
    if "stage" in form_fields:
        choices = [(it.value, it.label) for it in (SaleStage.DRAFT, SaleStage.PUBLIC)]
        form_fields["stage"].choices = choices  # type: ignore[attr-defined]
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
