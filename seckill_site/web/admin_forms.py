"""Forms of the admin that undo nothing and create nothing twice (``docs/adr/0039``).

Note [What a form was made from]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A page carries the values that its form was made from. When it comes back, a field that its sender
left alone takes the value stored now, and one that both the sender and others have changed is
refused. Whoever saves locks the row and calls ``check``: if it is not the row of that comparison,
all is rolled back and the form is built anew. So the comparison is one with the locked row, and
nothing is locked while a form is validated.
"""

from __future__ import annotations

import datetime as dt
import json
from contextlib import suppress
from itertools import chain
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin import ModelAdmin
from django.contrib.admin.models import LogEntry
from django.contrib.admin.options import IS_POPUP_VAR
from django.contrib.contenttypes.models import ContentType
from django.core import signing
from django.db import OperationalError
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import translation
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from seckill_site.formatting import NO_VALUE
from seckill_site.web.form_keys import SentBefore, check_unsent, sent_once, store_key

Sent = dict[str, list[str]]
"""A field as a browser sends it: a date with its time has two controls, and so two names."""

SENT_TWICE = _("This form was sent twice. This is what it created the first time.")
_KEPT = _("%(field)s: %(before)s → %(now)s (%(who)s).")
_CLASH = _(
    "After you had opened this form, %(who)s changed this to “%(now)s”. You have entered "
    "“%(mine)s”. Save again to replace it."
)
_SALT = "what a form was made from"
_TRIES = 5


class ChangedMeanwhile(Exception):
    """The locked row is not the one with which the form was compared, or is gone."""


class CarryingForm(forms.ModelForm):  # type: ignore[type-arg]
    """A form that carries what it was made from: Note [What a form was made from]."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kept: dict[str, str] = {}
        """By field, what others have changed and this form leaves."""
        self._clashes: dict[str, str] = {}
        self._present = self._stored_values()
        if self.is_bound and self.instance.pk:
            self._compare()

    @property
    def made_from(self) -> str:
        """The stored values, as this page's language has them, and the last entry of the log."""
        last = LogEntry.objects.order_by("-pk").values_list("pk", flat=True).first()
        carried = [self._present, translation.get_language(), last or 0]
        return signing.dumps(carried, salt=_SALT, compress=True)

    def entries(self) -> QuerySet[LogEntry]:
        """Return the log's entries about what this form changes."""
        kind = ContentType.objects.get_for_model(self.instance)
        return LogEntry.objects.filter(content_type=kind, object_id=str(self.instance.pk))

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        for name in data.keys() - set(self.changed_data):
            if isinstance(self.initial.get(name), dt.datetime):
                data[name] = self.initial[name]  # with its microseconds, which no page has
        for name, text in self._clashes.items():
            self.add_error(name, text)
        return data

    def check(self, row: Model | None) -> None:
        """Check that the locked row is the one of the comparison; the rest of it stays as it is.

        :raises ChangedMeanwhile: it is not.
        """
        if row is None or type(self)(instance=row)._present != self._present:
            raise ChangedMeanwhile
        for field in row._meta.concrete_fields:
            if field.name not in self.changed_data:
                setattr(self.instance, field.attname, getattr(row, field.attname))

    def _stored_values(self) -> dict[str, Sent]:
        return {
            name: _as_sent(it.widget, name, it.prepare_value(self.get_initial_for_field(it, name)))
            for name, it in self.fields.items()
            if not it.disabled
        }

    def _compare(self) -> None:
        """Take over what only others have changed, and note what both have."""
        try:
            carried = signing.loads(self.data.get("made_from", ""), salt=_SALT)
        except signing.BadSignature:
            carried = {}, None, 0  # whatever differs counts as changed by both
        made_from, language, last = carried
        with translation.override(language):
            present = self._stored_values()
        self.data = data = self.data.copy()  # type: ignore[attr-defined]
        for name, now in self._present.items():
            field, was = self.fields[name], made_from.get(name)
            raw = field.widget.value_from_datadict(self.data, self.files, name)
            mine = was if raw is None else _as_sent(field.widget, name, raw)
            if mine == now and "\r\n" in str(raw):  # the line ends of a browser change no text
                data[name] = raw = self.get_initial_for_field(field, name)
            if was == present[name]:
                continue
            if was and was == mine:
                for control, values in now.items():
                    data.setlist(control, values)
                self.kept[name] = self._told(_KEPT, name, last, before=was, now=now)
            elif field.has_changed(self.get_initial_for_field(field, name), raw):
                self._clashes[name] = self._told(_CLASH, name, last, now=now, mine=mine or {})

    def _told(self, text: Any, name: str, last: int, **values: Sent) -> str:
        """Say who has changed a field since that entry of the log, as far as the log tells."""
        field = self.fields[name]
        news = self.entries().filter(pk__gt=last).select_related("user").order_by("-pk")
        with translation.override(None):  # Django's own entries name fields in English
            words = json.dumps(name), json.dumps(str(field.label))
        naming = [it for it in news if any(word in it.change_message for word in words)]
        who = next((it.user.get_username() for it in naming or news), gettext("somebody"))
        shown = {key: _shown(field, value) for key, value in values.items()}
        return str(text % {"field": field.label, "who": who, **shown})


class CheckedForms(ModelAdmin):  # type: ignore[type-arg]
    """An admin whose forms undo nothing and create nothing twice."""

    def get_form(self, request: Any, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        if obj is not None:
            bases = (CarryingForm, kwargs.get("form", self.form))
            kwargs["form"] = type("CarryingForm", bases, {})
        return super().get_form(request, obj, change=change, **kwargs)

    def changeform_view(
        self, request: Any, object_id: str | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Build the form anew if its row changes in between; save a new one once."""
        show = super().changeform_view
        try:
            with sent_once(request, self.opts.label_lower):
                for _try in range(_TRIES):
                    for upload in chain(*(uploads for _, uploads in request.FILES.lists())):
                        upload.seek(0)  # it may have been read before
                    with suppress(ChangedMeanwhile):
                        return show(request, object_id, *args, **kwargs)
        except SentBefore as sent:
            return self.response_again(request, str(sent))
        raise OperationalError("the row changes all the time")  # answered as a busy database

    def save_form(self, request: Any, form: Any, change: bool) -> Any:
        if change:
            self.hold(request, form)
        return super().save_form(request, form, change)

    def hold(self, request: HttpRequest, form: Any) -> None:
        """Lock the row of a valid form, and compare; some admins do so when they save."""
        rows = self.model._default_manager.select_for_update()
        form.check(rows.filter(pk=form.instance.pk).first())

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        self._say_kept(request, form)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        check_unsent(request, self.opts.label_lower)  # what is wrong may be what it made itself
        self._say_kept(request, context["adminform"].form)
        return super().render_change_form(request, context, *args, **kwargs)

    def _say_kept(self, request: HttpRequest, form: Any) -> None:
        if kept := getattr(form, "kept", None):
            text = gettext("Others have changed this meanwhile, and it stays:")
            self.message_user(request, " ".join([text, *kept.values()]), messages.WARNING)

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        store_key(request, self.opts.label_lower, obj.pk)
        return super().log_addition(request, obj, message)

    def response_again(self, request: HttpRequest, made: str) -> HttpResponse:
        """Lead to what the first press of this form has created."""
        self.message_user(request, SENT_TWICE, messages.WARNING)
        obj = self.get_object(request, made)
        if obj is not None and IS_POPUP_VAR in request.POST:
            return self.response_add(request, obj)
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_change"
        return HttpResponseRedirect(reverse(name, args=[made]))


def _as_sent(widget: Any, name: str, value: Any) -> Sent:
    """Return a value as a browser sends it from a control that nobody touches."""
    widget = getattr(widget, "widget", widget)  # the admin wraps those of other tables
    if isinstance(widget, forms.MultiWidget):
        values: Any = value if isinstance(value, list | tuple) else widget.decompress(value)
        parts = enumerate(zip(widget.widgets, values, strict=True))
        sent = [_as_sent(part, f"{name}_{i}", one) for i, (part, one) in parts]
        return {control: it for one in sent for control, it in one.items()}
    if isinstance(widget, forms.CheckboxInput):
        return {name: [str(bool(value))]}
    shown = value if isinstance(widget, forms.FileInput) else widget.format_value(value)
    values = shown if isinstance(shown, list) else [shown]
    texts = ("" if it is None else "\n".join(str(it).splitlines()) for it in values)
    return {name: sorted(it for it in texts if it)}


def _shown(field: forms.Field, value: Sent) -> str:
    """Return a value as people read it."""
    values = [it for part in value.values() for it in part]
    if isinstance(field, forms.FileField):
        return gettext("a file") if values else NO_VALUE
    if isinstance(field, forms.BooleanField):
        return gettext("yes") if values == ["True"] else gettext("no")
    labels = {str(it): str(label) for it, label in getattr(field, "choices", ())}
    return " ".join(labels.get(it, it) for it in values) or NO_VALUE
