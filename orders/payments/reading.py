"""What the providers' modules read and write alike: keys, titles, notifications, answers, bills."""

import csv
import datetime as dt
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from orders.payments.providers import (
    BadNotification,
    ChargeRefused,
    ChargeState,
    ProviderUnavailable,
    RefundRefused,
    Statement,
)
from orders.payments.rsa_signing import BadKey, read_private_key, read_public_key

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
    except (KeyError, TypeError, ValueError, zipfile.BadZipFile) as failure:
        told = str(failure)[:200]  # the repr of a wrong encoding has all bytes
        raise error(f"{what} is malformed: {type(failure).__name__}: {told}") from failure


def text_in(content: Mapping[str, Any], name: str) -> str:
    """Return a text that is not empty.

    :raises KeyError: it is missing.
    :raises ValueError: it is malformed.
    """
    value = content[name]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is malformed")
    return value


def cents_in(content: Mapping[str, Any], name: str) -> int:
    """Return an amount in cents; raises as ``text_in``."""
    value = content[name]
    if type(value) is not int or value < 0:  # in Python, True is an integer too
        raise ValueError(f"{name} is malformed")
    return value


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
