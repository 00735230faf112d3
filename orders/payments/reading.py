"""What the providers' modules read alike: keys, notifications, answers about charges, and bills."""

import csv
import datetime as dt
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from orders.payments.providers import (
    BadNotification,
    ChargeState,
    Movement,
    ProviderUnavailable,
    RefundRefused,
    Statement,
)
from orders.payments.rsa_signing import BadKey, read_private_key, read_public_key
from seckill_site.http_client import HttpAnswer

TOLERANCE = dt.timedelta(minutes=5)
"""How far the time in a signature may be from ours."""


class Refused(RefundRefused):
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


# --- Notifications --------------------------------------------------------------------------------


@contextmanager
def reading_notification() -> Iterator[None]:
    """Refuse a notification with a field that is missing or malformed.

    :raises BadNotification: the block raised ``KeyError``, ``TypeError`` or ``ValueError``.
    """
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise BadNotification(f"a field is missing or malformed: {error!r}") from error


def check_time(
    sent_at: dt.datetime, now: dt.datetime, *, repeated_for: dt.timedelta = TOLERANCE
) -> None:
    """Check that a signed message is of these minutes, or was ``repeated_for`` longer.

    :raises BadNotification: it is not.
    """
    if not now - repeated_for <= sent_at <= now + TOLERANCE:
        raise BadNotification("the notification is too old")


def text_in(content: Mapping[str, Any], name: str) -> str:
    """Return a field that is a text and not empty.

    :raises KeyError: it is missing.
    :raises ValueError: it is malformed.
    """
    value = content[name]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is malformed")
    return value


def cents_in(content: Mapping[str, Any], name: str) -> int:
    """Return a field that is an amount in cents.

    :raises KeyError: it is missing.
    :raises ValueError: it is malformed.
    """
    value = content[name]
    if type(value) is not int or value < 0:  # in Python, True is an integer too
        raise ValueError(f"{name} is malformed")
    return value


# --- Answers --------------------------------------------------------------------------------------


def statement_about(
    reference: str,
    ask: Callable[[], Statement],
    *,
    unknown: Collection[str] = (),
    state_if_unknown: ChargeState = ChargeState.CLOSED,
) -> Statement:
    """Return what a provider says about a charge.

    Refused with a code in ``unknown``, it knows no such charge.

    :raises ProviderUnavailable: it gave no usable answer, or one about another charge.
    """
    try:
        found = ask()
    except Refused as error:
        if error.code not in unknown:
            raise
        return Statement(reference, state_if_unknown, 0)
    except (KeyError, TypeError, ValueError) as error:
        raise ProviderUnavailable(f"malformed answer about {reference}: {error!r}") from error
    if found.reference != reference:
        raise ProviderUnavailable(f"an answer about {found.reference}, not {reference}")
    return found


# --- Bills ----------------------------------------------------------------------------------------


def movements_in(bill: Callable[[], Iterable[Movement]], *, no_bill: str) -> Iterator[Movement]:
    """Yield the lines of a bill; none if refused with ``no_bill``: a day without transactions.

    :raises ProviderUnavailable: the bill is not there, cut off, or not in the documented form.
    """
    try:
        yield from bill()
    except Refused as error:
        if error.code != no_bill:
            raise
    except (zipfile.BadZipFile, KeyError, TypeError, ValueError) as error:
        raise ProviderUnavailable(f"the bill cannot be read: {error!r}") from error


def downloaded(answer: HttpAnswer) -> bytes:
    """Return the content of a bill.

    :raises ProviderUnavailable: the answer is none.
    """
    if answer.status != 200:
        raise ProviderUnavailable(f"the bill was answered {answer.status}")
    return answer.body


def rows_of(lines: Iterable[str]) -> Iterator[dict[str, str]]:
    """Yield the rows of a table without the blanks, tabs and backticks around names and values."""
    for row in csv.DictReader(lines):
        yield {(key or "").strip(): str(value).strip(" \t\r\n`") for key, value in row.items()}
