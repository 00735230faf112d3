"""What a payment provider has to be able to do, and which ones this site knows.

A provider is named in ``SECKILL_PAYMENT_PROVIDERS``; its keys come from the environment. The
sandbox (``orders/payments/sandbox.py``) shows how one is written.
"""

from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Protocol

from django.conf import settings
from django.utils.module_loading import import_string


class ProviderUnavailable(Exception):
    """The provider did not answer, or not with sense: ask again later."""


class BadNotification(Exception):
    """A notification that is not the provider's, or says what cannot be."""


GIVE_UP_AFTER = 3
"""A provider that was silent so often in one walk over payments is away: it is asked no more."""

WALK_S = 10.0
"""So long one walk may take: a worker has other things to do than to wait for a provider."""


class Patience:
    """How much longer one walk over many payments may ask, and whom."""

    def __init__(self) -> None:
        self._until = time.monotonic() + WALK_S
        self._silences: Counter[str] = Counter()

    def allows(self, provider: str) -> bool:
        """Say whether there is time left, and the provider worth asking."""
        return time.monotonic() < self._until and self._silences[provider] < GIVE_UP_AFTER

    def was_silent(self, provider: str) -> None:
        self._silences[provider] += 1


class ChargeState(StrEnum):
    """What a provider says of a charge."""

    OPEN = "open"
    PAID = "paid"
    CLOSED = "closed"


@dataclass(frozen=True)
class Charge:
    """What a provider is asked to collect, and where the buyer and the word of it go afterwards."""

    reference: str
    amount_cents: int
    subject: str
    pay_by: dt.datetime
    return_url: str
    notify_url: str


@dataclass(frozen=True)
class Statement:
    """What a provider says of the charge of this reference."""

    reference: str
    state: ChargeState
    amount_cents: int
    provider_reference: str = ""


class PaymentProvider(Protocol):
    """One company that collects money; every call may be made again with the same effect.

    All but ``read_notification`` may ask over the network, and have to give up within seconds.
    """

    name: str
    acknowledgement: str
    """What a notification that was taken in is answered with, so that it does not come again."""

    def create(self, charge: Charge) -> str:
        """Open a charge and return the address where its buyer pays.

        :raises ProviderUnavailable: it may or may not be open; the same call again is safe.
        """
        ...

    def read_notification(self, *, headers: Mapping[str, str], body: bytes) -> Statement:
        """Return what a notification says, if it is the provider's own.

        :raises BadNotification: its signature is wrong, or it cannot be read.
        """
        ...

    def query(self, reference: str) -> Statement:
        """Ask what became of a charge; one that the provider does not know is closed.

        :raises ProviderUnavailable: nobody knows yet.
        """
        ...

    def refund(self, reference: str, *, amount_cents: int) -> bool:
        """Give the money of a paid charge back, once; False while the provider is still at it.

        :raises ProviderUnavailable: it may or may not be refunded; the same call again is safe.
        """
        ...


def current_provider() -> PaymentProvider:
    """Return the provider of new payments: the first that the settings name."""
    return _load(settings.SECKILL_PAYMENT_PROVIDERS[0])


def provider_named(name: str) -> PaymentProvider:
    """Return a provider by its own name, also one that takes no new payments any more.

    :raises LookupError: the settings name no such provider.
    """
    for path in settings.SECKILL_PAYMENT_PROVIDERS:
        found = _load(path)
        if found.name == name:
            return found
    raise LookupError(f"SECKILL_PAYMENT_PROVIDERS names no provider {name!r}")


@cache
def _load(path: str) -> PaymentProvider:
    provider: PaymentProvider = import_string(path)()
    return provider
