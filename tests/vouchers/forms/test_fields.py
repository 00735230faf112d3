"""The form field of a voucher's picture."""

from __future__ import annotations

import pytest
from django import forms
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils.datastructures import MultiValueDict

from tests.support.photos import image_file
from tests.support.sales import make_voucher
from vouchers.catalogue.pictures import as_webp, set_picture
from vouchers.forms.fields import MinutesField, PictureField

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("english")]


class PictureForm(forms.Form):
    picture = PictureField(required=False)


def form_with(content, *, name="photo.jpg"):
    return PictureForm({}, MultiValueDict({"picture": [SimpleUploadedFile(name, content)]}))


def test_cleaned_value_is_the_encoded_picture():
    form = form_with(image_file(size=(3000, 1000)))

    assert form.is_valid()
    assert form.cleaned_data["picture"] == as_webp(content=image_file(size=(3000, 1000))).content


@pytest.mark.django_db
def test_cleaned_value_is_stored_unchanged():
    form, voucher = form_with(image_file()), make_voucher()
    assert form.is_valid()

    set_picture(voucher=voucher, content=form.cleaned_data["picture"])

    voucher.refresh_from_db()
    assert voucher.picture
    assert bytes(voucher.picture.content) == form.cleaned_data["picture"]


def test_missing_file_is_no_change():
    form = PictureForm({}, MultiValueDict())

    assert form.is_valid()
    assert form.cleaned_data["picture"] is None
    assert not form.has_changed()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"hello", "This file is not a picture."),
        (b"\0" * 10_000_001, "The file is larger than 10 MB."),
        (image_file()[:500], "The picture is damaged or incomplete."),
        (b"", "The submitted file is empty."),
    ],
)
def test_unusable_file_is_reported_at_the_field(content, why):
    form = form_with(content)

    assert not form.is_valid()
    [message] = form.errors["picture"]
    assert message.startswith(why)


def test_form_is_multipart_and_accepts_pictures():
    form = PictureForm()

    assert form.is_multipart()
    assert 'accept="image/jpeg,image/png,image/webp,image/gif"' in str(form["picture"])


def test_file_name_decides_nothing():
    assert form_with(image_file(kind="PNG"), name="photo.exe").is_valid()


@pytest.mark.parametrize(("typed", "changed"), [("15", False), ("15.0", False), ("16", True)])
def test_minutes_as_stored_are_no_change(typed: str, changed: bool):
    field = MinutesField(seconds=(60, 3_600))
    assert field.has_changed(15 * 60, typed) is changed


def test_minutes_as_shown_are_no_change():
    field = MinutesField(seconds=(60, 3_600))
    assert not field.has_changed(100, field.prepare_value(100))
