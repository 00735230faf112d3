"""The interface of a payment provider, and the providers of this site.

Providers are named in ``SECKILL_PAYMENT_PROVIDERS``; their keys come from the environment. The
sandbox (``orders/payments/sandbox.py``) is an example of one.
"""

import datetime as dt
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Protocol, TypeVar

from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.utils.module_loading import import_string

T = TypeVar("T")


class ProviderUnavailable(Exception):
    """The provider gave no usable answer: ask again later."""


class BadNotification(Exception):
    """A notification is not the provider's, or is not consistent with our payment."""


MAX_SILENCES = 3
"""A provider that fails this often during one walk over payments is not asked again in it."""

WALK_S = 10.0
"""The time limit of one walk, so that slow providers do not hold up the worker."""

LONGEST_PAUSE_S = 600


def backoff(attempts: int, *, first_s: int) -> dt.timedelta:
    """Return the pause after this many attempts: doubled each time, up to ``LONGEST_PAUSE_S``."""
    return dt.timedelta(seconds=min(first_s * 2 ** min(attempts, 10), LONGEST_PAUSE_S))


class PollBudget:
    """The limits of one walk over many payments: its time, and silences per provider."""

    def __init__(self) -> None:
        self._until = time.monotonic() + WALK_S
        self._silences: Counter[str] = Counter()

    def allows(self, provider: str) -> bool:
        """Return whether there is time left, and the provider is worth asking."""
        return time.monotonic() < self._until and self._silences[provider] < MAX_SILENCES

    def count_silence(self, provider: str) -> None:
        self._silences[provider] += 1


class ChargeState(StrEnum):
    """The state of a charge, as its provider reports it."""

    OPEN = "open"
    PAID = "paid"
    CLOSED = "closed"


@dataclass(frozen=True)
class Charge:
    """An amount to collect, and the addresses for the returning buyer and the notifications."""

    reference: str
    amount_cents: int
    subject: str
    pay_by: dt.datetime
    return_url: str
    notify_url: str


@dataclass(frozen=True)
class Statement:
    """A provider's report on the charge with this reference."""

    reference: str
    state: ChargeState
    amount_cents: int
    provider_reference: str = ""


class PaymentProvider(Protocol):
    """A company that collects money. Every call may be repeated with the same effect.

    All methods but ``read_notification`` may use the network, and must give up within seconds.
    """

    name: str
    acknowledgement: str
    """The answer to a notification that was processed, so that it is not repeated."""

    def create(self, charge: Charge) -> str:
        """Open a charge and return the address where its buyer pays.

        :raises ProviderUnavailable: it may or may not be open; the same call again is safe.
        """
        ...

    def read_notification(self, *, headers: Mapping[str, str], body: bytes) -> Statement:
        """Return what a notification says.

        :raises BadNotification: its signature is wrong, or it cannot be read.
        """
        ...

    def query(self, reference: str) -> Statement:
        """Return the state of a charge; one that the provider does not know is closed.

        :raises ProviderUnavailable: the state is unknown.
        """
        ...

    def refund(self, reference: str, *, amount_cents: int) -> bool:
        """Refund a paid charge once; return False while the provider is still working on it.

        :raises ProviderUnavailable: it may or may not be refunded; the same call again is safe.
        """
        ...


def current_provider() -> PaymentProvider:
    """Return the provider of new payments: the first in the settings.

    :raises ProviderUnavailable: the settings name none.
    """
    if not settings.SECKILL_PAYMENT_PROVIDERS:
        raise ProviderUnavailable("SECKILL_PAYMENT_PROVIDERS names no provider")
    return _load(settings.SECKILL_PAYMENT_PROVIDERS[0])


def provider_named(name: str) -> PaymentProvider:
    """Return a provider by its own name, including those that take no new payments.

    :raises LookupError: the settings name no such provider.
    """
    for path in settings.SECKILL_PAYMENT_PROVIDERS:
        found = _load(path)
        if found.name == name:
            return found
    raise LookupError(f"SECKILL_PAYMENT_PROVIDERS names no provider {name!r}")


def call_provider(name: str, call: Callable[[PaymentProvider], T]) -> T:
    """Call a provider by name.

    :raises ProviderUnavailable: the provider's class raised any exception.
    """
    try:
        return call(provider_named(name))
    except SoftTimeLimitExceeded:
        raise
    except Exception as error:
        raise ProviderUnavailable(f"provider {name}: {error!r}") from error


@cache
def _load(path: str) -> PaymentProvider:
    provider: PaymentProvider = import_string(path)()
    return provider
