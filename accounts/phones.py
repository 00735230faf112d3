"""Phone numbers, and the interface through which codes are sent to them."""

import re
import sys
from functools import lru_cache
from typing import Any, Protocol
from unicodedata import category, decimal, normalize

from allauth.account.fields import PhoneField
from django.conf import settings
from django.utils.module_loading import import_string

from seckill_site.metrics import counted

COUNTRY_CODE = "+86"
"""Stands before a number without one: eleven digits that begin with 1."""

_MOBILE = re.compile(r"(?:86)?(1[0-9]{10})")
_ABROAD = re.compile(r"^00(?=[1-9][0-9]*$)")
_BETWEEN_DIGITS = "().\N{MINUS SIGN}"
_UNSEEN = ("Cf", "Pd")
"""Kinds of characters that say nothing in a number: marks of direction, and dashes."""


class SmsBackend(Protocol):
    """What ``SECKILL_SMS_BACKEND`` names: a class without arguments."""

    def send(self, phone: str, text: str) -> None:
        """Send a text to a number such as +8613800000000.

        :raises OSError: it cannot be sent at the moment.
        """


class ConsoleBackend:
    """Writes texts to the standard output, for development."""

    def send(self, phone: str, text: str) -> None:
        sys.stdout.write(f"SMS to {phone}: {text}\n")
        sys.stdout.flush()


@lru_cache(maxsize=4)
def _backend(path: str) -> SmsBackend:
    backend: SmsBackend = import_string(path)()
    return backend


def send_text(phone: str, text: str) -> None:
    """Send a text through the provider of the settings.

    :raises OSError: it cannot be sent at the moment.
    """
    with counted("messages", "text"):
        _backend(settings.SECKILL_SMS_BACKEND).send(phone, text)


def as_phone(text: str) -> str:
    """Return a number as it is stored, however it was typed or pasted.

    Other text is no number afterwards either.
    """
    typed = (it for it in normalize("NFKC", text) if not _is_between_digits(it))
    digits = "".join(str(decimal(it)) if it.isdecimal() else it for it in typed)
    digits = _ABROAD.sub("+", digits)
    mobile = _MOBILE.fullmatch(digits)
    return COUNTRY_CODE + mobile[1] if mobile else digits


def _is_between_digits(letter: str) -> bool:
    return letter.isspace() or letter in _BETWEEN_DIGITS or category(letter) in _UNSEEN


class PhoneNumberField(PhoneField):  # type: ignore[misc]
    """A phone number; one of this country needs no country code."""

    def to_python(self, value: Any) -> str:
        return as_phone(super().to_python(value))
