"""The form field for a voucher's picture."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from vouchers.catalogue.pictures import LARGEST_UPLOAD_BYTES, UnusablePicture, as_webp

ACCEPT = "image/jpeg,image/png,image/webp,image/gif"


class PictureField(forms.FileField):
    """An uploaded picture; its cleaned value is the bytes as they will be stored, or None.

    In a form, beside a box that takes the picture away::

        picture = PictureField(label=_("Picture"), required=False)
        remove_picture = forms.BooleanField(label=_("Remove the picture"), required=False)

    and after the voucher has been saved, in the same transaction::

        if data["picture"] or data["remove_picture"]:
            set_picture(voucher=voucher, content=data["picture"])

    A file that is no picture becomes a ``ValidationError`` at this field. The cleaned bytes are
    stored as they are, and not encoded a second time.
    """

    widget = forms.FileInput(attrs={"accept": ACCEPT})

    def to_python(self, data: Any) -> Any:
        upload = super().to_python(data)
        if upload is None:
            return None
        try:
            # One byte more than allowed is enough to tell; the rest is not read into memory.
            return as_webp(content=upload.read(LARGEST_UPLOAD_BYTES + 1)).content
        except UnusablePicture as error:
            raise ValidationError(str(error), code="unusable") from error
