"""Phone numbers, and the interface through which codes are sent to them."""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import Any, Protocol

from allauth.account.fields import PhoneField
from django.conf import settings
from django.utils.module_loading import import_string

COUNTRY_CODE = "+86"
"""Stands before a number without one: eleven digits that begin with 1."""

_MOBILE = re.compile(r"1\d{10}")
_BETWEEN_DIGITS = re.compile(r"[\s().-]")


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
    _backend(settings.SECKILL_SMS_BACKEND).send(phone, text)


def as_phone(text: str) -> str:
    """Return a number as it is stored; other text stays as it is."""
    digits = _BETWEEN_DIGITS.sub("", text)
    return COUNTRY_CODE + digits if _MOBILE.fullmatch(digits) else digits


class PhoneNumberField(PhoneField):  # type: ignore[misc]
    """A phone number; one of this country needs no country code."""

    def to_python(self, value: Any) -> str:
        return as_phone(super().to_python(value))
