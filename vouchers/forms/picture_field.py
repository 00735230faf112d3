"""The form field for a voucher's picture."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from vouchers.catalogue.pictures import LARGEST_UPLOAD_BYTES, UnusablePicture, as_webp

ACCEPT = "image/jpeg,image/png,image/webp,image/gif"


class PictureField(forms.FileField):
    """An uploaded picture; its cleaned value is the bytes for ``set_picture``, or None."""

    widget = forms.FileInput(attrs={"accept": ACCEPT})

    def to_python(self, data: Any) -> Any:
        upload = super().to_python(data)
        if upload is None:
            return None
        try:
            # One byte too many is enough to refuse; the rest is not read into memory.
            return as_webp(content=upload.read(LARGEST_UPLOAD_BYTES + 1)).content
        except UnusablePicture as error:
            raise ValidationError(str(error), code="unusable") from error
