"""The page *Settings* of owners: what tells buyers whose shop this is, and who sends its mails."""

from __future__ import annotations

import secrets
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from django import forms
from django.conf import settings
from django.contrib import admin
from django.contrib.admin.widgets import AdminTextareaWidget, AdminTextInputWidget
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from backoffice.admin.pages import TEXTS, is_owner
from seckill_site.face import values
from seckill_site.face.icons import MOST_LOGO_BYTES, UnusableLogo, stored_logo
from seckill_site.face.owners_settings import known
from seckill_site.face.site_face import USUAL_COLOUR, USUAL_NAME
from seckill_site.face.values import LONGEST, validate_setting, variable_of
from seckill_site.models import ONLY_ROW, ShopSettings
from seckill_site.web.admin_lists import CheckedList
from seckill_site.web.text_files import read_texts

FIELDS = read_texts(Path(values.__file__).with_name("settings_texts.toml"))


def _field(name: str) -> forms.CharField:
    stem = name.removesuffix("_en")
    text = AdminTextareaWidget if stem in ("terms", "invitation") else AdminTextInputWidget
    return forms.CharField(
        **FIELDS[name],
        max_length=LONGEST[stem],
        required=False,
        widget=forms.TextInput(attrs={"type": "color"}) if name == "colour" else text,
        validators=[partial(validate_setting, name)],
    )


class _Form(forms.ModelForm):  # type: ignore[type-arg]
    """The settings; a field whose variable is set in the environment shows it, read-only."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        usual = {"name": USUAL_NAME, "mail_from": settings.DEFAULT_FROM_EMAIL}
        logo = sha256(self.instance.logo).hexdigest() if self.instance.logo else None
        self.initial.update({"colour": USUAL_COLOUR, **self.instance.values, "new_logo": logo})
        if settings.SECKILL_SHOP_LOGO or not self.instance.logo:
            self.fields["remove_logo"].widget = forms.HiddenInput()
        for name, field in self.fields.items():
            variable = variable_of(name.removeprefix("new_"))
            field.widget.attrs["placeholder"] = usual.get(name, "")
            if value := getattr(settings, variable, ""):
                field.disabled, field.validators = True, []
                self.initial[name] = None if name == "new_logo" else value
                text = gettext("Set by %(variable)s in the environment, which wins.")
                field.help_text = text % {"variable": variable}

    def clean_new_logo(self) -> bytes | None:
        """Return the picture as it is stored."""
        upload = self.cleaned_data["new_logo"]
        if isinstance(upload, str):
            return None  # the digest of what is stored, as nothing was uploaded
        try:
            # One byte too many is enough to refuse; the rest is not read into memory.
            return upload and stored_logo(upload.read(MOST_LOGO_BYTES + 1))
        except UnusableLogo as error:
            raise ValidationError(TEXTS["unusable_logo"]) from error

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or self.cleaned_data
        if data.get("remove_logo") and "new_logo" in getattr(self, "kept", ()):
            text = gettext("Somebody has changed the picture. Save again to remove the new one.")
            self.add_error("remove_logo", text)
        return data

    def save(self, commit: bool = True) -> Any:
        """Take over what was changed here; a field that the environment sets never is."""
        row, data = self.instance, self.cleaned_data
        changed = {it: data[it] for it in self.changed_data if it in FIELDS}
        row.values |= {name: text.replace("\r\n", "\n") for name, text in changed.items()}
        row.logo = data["new_logo"] or (b"" if data["remove_logo"] else row.logo)
        row.revision = secrets.token_hex(8)
        return super().save(commit)


_fields = {name: _field(name) for name in FIELDS}
_logo = {
    "new_logo": forms.FileField(
        label=_("Logo"),
        required=False,
        widget=forms.FileInput(attrs={"accept": "image/png,image/webp,image/jpeg"}),
    ),
    "remove_logo": forms.BooleanField(label=_("Remove the logo"), required=False),
}


@admin.register(ShopSettings)
class ShopSettingsAdmin(CheckedList):
    """The settings, of which there is one row: its form is the page."""

    form = type("ShopSettingsForm", (_Form,), {**_fields, **_logo})
    change_form_template = "admin/shop_settings.html"
    fieldsets = (
        (_("Shop"), {"fields": ("name", "name_en", "contact", "colour", *_logo)}),
        (_("Imprint and terms"), {"fields": ("imprint", "imprint_en", "terms", "terms_en")}),
        (_("Mails"), {"fields": ("mail_from", "invitation", "invitation_en")}),
    )

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return is_owner(request)

    has_change_permission = has_view_permission

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    has_delete_permission = has_add_permission

    def get_object(self, request: Any, object_id: str, from_field: Any = None) -> Any:
        """Return the row, which the first look makes."""
        if object_id == str(ONLY_ROW):
            ShopSettings.objects.get_or_create(pk=ONLY_ROW)
        return super().get_object(request, object_id, from_field)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """Lead to the form of the only row."""
        if not is_owner(request):
            raise PermissionDenied
        url = reverse("admin:seckill_site_shopsettings_change", args=[ONLY_ROW])
        return HttpResponseRedirect(url)

    def save_model(self, request: Any, obj: ShopSettings, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        transaction.on_commit(partial(known.trust, for_s=0))
