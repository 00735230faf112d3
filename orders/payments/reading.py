"""What the providers' modules read and write alike: keys, titles, notifications, answers, bills."""

import csv
import datetime as dt
import re
import zipfile
import zoneinfo
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from orders.payments.providers import (
    CURRENCY,
    BadNotification,
    ChargeRefused,
    ChargeState,
    ProviderUnavailable,
    RefundRefused,
    Statement,
)
from orders.payments.rsa_signing import BadKey, read_private_key, read_public_key
from seckill_site.formatting import decimals_of

CHINA = zoneinfo.ZoneInfo("Asia/Shanghai")
"""The time zone of the bills of Chinese providers, and of all times of Alipay."""

LONGEST_REFERENCE, LONGEST_ID, LONGEST_URL = 64, 128, 4_000
LARGEST_CENTS = 2**31 - 1
"""What the columns hold. A provider never sends more; what would not fit is malformed."""

TOLERANCE_S = 300
"""How far the time in a signature may be from ours."""


class Refused(ChargeRefused, RefundRefused):
    """A provider understood a request and refuses it; ``code`` is its word for the reason."""

    def __init__(self, provider: str, code: str) -> None:
        super().__init__(f"{provider}: {code}")
        self.code = code


def key_problems(prefix: str, private_key: str, public_keys: Collection[str]) -> Iterator[str]:
    """Yield what is wrong with the keys in the settings that start with ``prefix``."""
    try:
        read_private_key(private_key)
    except BadKey as error:
        yield f"{prefix}_PRIVATE_KEY: {error}."
    if not public_keys:
        yield f"{prefix}_PUBLIC_KEYS has no public key of the provider."
    try:
        for key in public_keys:
            read_public_key(key)
    except BadKey as error:
        yield f"{prefix}_PUBLIC_KEYS: {error}."


def without_emoji(text: str) -> str:
    """Return a title with a dot for each emoji or rare character: Chinese providers refuse them."""
    return "".join(it if ord(it) < 0x10000 else "·" for it in text)


@contextmanager
def refusing_malformed(error: type[Exception], what: str) -> Iterator[None]:
    """Raise this error where a field of what is read is missing or malformed."""
    try:
        yield
    except (LookupError, TypeError, ValueError, ArithmeticError, zipfile.BadZipFile) as failure:
        told = str(failure)[:200]  # the repr of a wrong encoding has all bytes
        raise error(f"{what} is malformed: {type(failure).__name__}: {told}") from failure


def object_in(content: Any, name: str) -> dict[str, Any]:
    """Return an object that is a field of an object; raises as ``text_in``."""
    value = content[name]
    if not isinstance(value, dict):
        raise ValueError(f"{name} is malformed")
    return value


def text_in(content: Mapping[str, Any], name: str, *, longest: int = 255) -> str:
    """Return a text that is not empty, and that the database can hold.

    :raises LookupError: it is missing.
    :raises ValueError: it is malformed.
    """
    value = content[name]
    # Half of a surrogate pair is not printable either.
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= longest:
        raise ValueError(f"{name} is malformed")
    return value


def reference_in(content: Mapping[str, Any], name: str) -> str:
    """Return our reference of a charge; raises as ``text_in``."""
    return text_in(content, name, longest=LONGEST_REFERENCE)


def currency_in(content: Mapping[str, Any], name: str) -> str:
    """Return the code of a currency: that of our prices if none is named; raises as ``text_in``."""
    code = text_in({name: CURRENCY, **content}, name).upper()
    if not re.fullmatch("[A-Z]{3}", code):
        raise ValueError(f"{name} is malformed")
    return code


def cents_in(content: Mapping[str, Any], name: str) -> int:
    """Return an amount in cents; raises as ``text_in``."""
    value = content[name]
    # In Python, True is an integer too.
    if type(value) is not int or not 0 <= value <= LARGEST_CENTS:
        raise ValueError(f"{name} is malformed")
    return value


def cents_of(text: str, currency: str = CURRENCY) -> int:
    """Return an amount that a provider writes with decimals, in cents.

    :raises ValueError: it is malformed, or no number of whole cents.
    """
    decimals = decimals_of(currency)
    written = re.fullmatch(r"([0-9]{1,10})(?:\.([0-9]{1,10}))?", text)
    rest = (written[2] or "").rstrip("0") if written else ""
    cents = int(written[1] + rest.ljust(decimals, "0")) if written else LARGEST_CENTS + 1
    if len(rest) > decimals or cents > LARGEST_CENTS:
        raise ValueError("an amount is malformed")
    return cents


def seconds_of(text: str) -> int:
    """Return a time that a provider writes as seconds since 1970.

    :raises ValueError: it is malformed.
    """
    if not re.fullmatch("[0-9]{1,12}", text):
        raise ValueError("the time is malformed")
    return int(text)


def check_time(signed_s: float, now: dt.datetime, *, repeated_for_s: int = TOLERANCE_S) -> None:
    """Check that a message was signed within the tolerance, or within the time for repeats.

    :raises BadNotification: it was not.
    """
    if not -TOLERANCE_S <= now.timestamp() - signed_s <= repeated_for_s:
        raise BadNotification("its time is too far from ours")


def statement_about(
    reference: str,
    ask: Callable[[], Statement],
    *,
    unknown: Collection[str] = (),
    if_unknown: ChargeState = ChargeState.CLOSED,
) -> Statement:
    """Return the answer about a charge; one refused with a code in ``unknown`` is not known.

    :raises ProviderUnavailable: the answer is malformed, or about another charge.
    """
    try:
        with refusing_malformed(ProviderUnavailable, f"the answer about {reference}"):
            statement = ask()
    except Refused as error:
        if error.code not in unknown:
            raise
        return Statement(reference, if_unknown, 0)
    if statement.reference != reference:
        raise ProviderUnavailable(f"an answer about {statement.reference}, not {reference}")
    return statement


def rows_of(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Yield the rows of a table without the blanks and backticks that surround values."""
    for row in csv.DictReader(lines):
        yield {(key or "").strip(): str(value).strip(" \t\r\n`") for key, value in row.items()}
