"""What the settings of the shop may be, on the page of owners and in the environment."""

import re
from email.utils import getaddresses

from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.utils.translation import gettext as _

from seckill_site.face.colours import read_colour

MOST_TERMS_BYTES = 256 * 1024
LONGEST = {"name": 40, "contact": 120, "colour": 7, "imprint": 300, "mail_from": 300}
LONGEST |= {"terms": MOST_TERMS_BYTES, "invitation": 2000}
"""The most characters of a field, and of the one in English."""

IS_ADDRESS = re.compile(r"https?://[^\s/?#]+[^\s]*")
IS_MAIL = re.compile(r"[^\s@<>\"]+@[^\s@<>\"]+\.[^\s@<>\"]+")
IS_PHONE = re.compile(r"\+?[0-9(][0-9 ()./-]{2,30}[0-9]")


def variable_of(field: str) -> str:
    """Return the variable of the environment that wins over a field."""
    return "SECKILL_MAIL_FROM" if field == "mail_from" else f"SECKILL_SHOP_{field.upper()}"


def validate_setting(field: str, text: str) -> None:
    """Refuse what a field, in either language, cannot be."""
    name = field.removesuffix("_en")
    if len(text) > LONGEST[name]:
        raise ValidationError(
            _("Write at most %(most)s characters."), params={"most": LONGEST[name]}
        )
    if name not in ("terms", "invitation") and (text.isspace() or not text.isprintable()):
        raise ValidationError(_("Write it in one line."))
    if name == "contact" and not any(it.fullmatch(text) for it in (IS_MAIL, IS_PHONE, IS_ADDRESS)):
        raise ValidationError(_("Enter an email address, a phone number or a web address."))
    if name == "mail_from":
        named = getaddresses([text])
        validate_email(named[0][1] if len(named) == 1 else "")
    if name == "colour":
        try:
            read_colour(text)
        except ValueError as error:
            raise ValidationError(_("Write a colour like #cf2318.")) from error
