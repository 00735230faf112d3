"""The interface of a payment provider, and the providers of this site.

Providers are named in ``SECKILL_PAYMENT_PROVIDERS``; their keys come from the environment. The
sandbox (``orders/payments/sandbox.py``) is an example of one.
"""

import datetime as dt
import threading
import time
import zoneinfo
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Protocol, TypeVar

from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.utils.functional import Promise
from django.utils.module_loading import import_string

from orders.models import MoneyDirection
from seckill_site.formatting import OURS
from seckill_site.metrics import counted
from seckill_site.process_memory import ProcessMemory

T = TypeVar("T")

CURRENCY = OURS


class ProviderUnavailable(Exception):
    """The provider gave no usable answer: ask again later."""


class TooManyCalls(ProviderUnavailable):
    """Half of the process's threads wait for providers already: nobody was asked."""


class RefundRefused(ProviderUnavailable):
    """The provider refuses a refund until somebody acts, for example for lack of funds."""


class ChargeRefused(ProviderUnavailable):
    """The provider refuses a charge, for example one that is too small: not worth a retry."""


class PartlyRefunded(RefundRefused):
    """A part of a charge has been refunded, more than we knew of; ``numbers`` as in a statement."""

    def __init__(self, refunded_cents: int, numbers: frozenset[str] | None = None) -> None:
        super().__init__(f"{refunded_cents} cents have gone back already")
        self.refunded_cents, self.numbers = refunded_cents, numbers


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


def bounds_of_day(
    day: dt.date, zone: zoneinfo.ZoneInfo | None = None
) -> tuple[dt.datetime, dt.datetime]:
    """Return the start and the end of a day in a time zone: the shop's, unless one is given."""
    zone = zone or zoneinfo.ZoneInfo(settings.SECKILL_SHOP_TIME_ZONE)
    start, end = (dt.datetime.combine(it, dt.time(), zone) for it in (day, day + dt.timedelta(1)))
    return start, end


class ChargeState(StrEnum):
    """The state of a charge, as its provider reports it."""

    OPEN = "open"
    PAID = "paid"
    CLOSED = "closed"


class ClientKind(StrEnum):
    """The device of a buyer, as far as a provider has different pages for them."""

    DESKTOP = "desktop"
    PHONE = "phone"


@dataclass(frozen=True)
class Charge:
    """An amount to collect, and the addresses for the returning buyer and the notifications.

    ``reference`` is the idempotency key. ``client_address`` is the buyer's, if it is known.
    """

    reference: str
    amount_cents: int
    subject: str
    opened_at: dt.datetime
    pay_by: dt.datetime
    return_url: str
    notify_url: str
    client: ClientKind = ClientKind.DESKTOP
    client_address: str = ""


@dataclass(frozen=True)
class OpenedCharge:
    """The address where a buyer pays, and the provider's own name of the charge, if it has one.

    ``valid_for`` is the life of an address that ends before its charge.
    """

    pay_url: str
    provider_reference: str = ""
    valid_for: dt.timedelta | None = None


@dataclass(frozen=True)
class Statement:
    """A provider's report on the charge with this reference.

    ``notification_id`` is the provider's own name of a notification: one is handled only once.
    ``refunded_cents`` is what has gone back at least, ``numbers`` those of our refunds in it, and
    ``disputed`` whether the buyer disputes the payment; None is unknown. With ``refund_failed`` a
    refund that had succeeded did not arrive, and no more than ``refunded_cents`` has gone back. If
    it was ours, it had this ``refund_number`` and ``failed_cents``.
    """

    reference: str
    state: ChargeState
    amount_cents: int
    provider_reference: str = ""
    currency: str = CURRENCY
    notification_id: str = ""
    refunded_cents: int | None = None
    numbers: frozenset[str] | None = None
    disputed: bool | None = None
    refund_failed: bool = False
    refund_number: str = ""
    failed_cents: int = 0


@dataclass(frozen=True)
class Refund:
    """An amount to give back, of a charge of ``charged_cents``. ``number`` is the idempotency key.

    ``gone_cents`` of the charge have gone back already, as far as we know, by whatever number.
    ``provider_reference`` is what ``create`` or a statement has told.
    """

    reference: str
    number: str
    amount_cents: int
    charged_cents: int
    currency: str = CURRENCY
    provider_reference: str = ""
    gone_cents: int = 0


@dataclass(frozen=True)
class Movement:
    """One line of a provider's list: money that came in for a charge, or went back."""

    direction: MoneyDirection
    reference: str
    amount_cents: int
    currency: str = CURRENCY


class PaymentProvider(Protocol):
    """A company that collects money. Every call may be repeated with the same effect.

    All methods may use the network, and must give up within seconds; ``read_notification`` does so
    only for a message that the provider has signed.
    ``provider_reference`` is what ``create`` or a statement has told, and empty before.
    """

    name: str
    acknowledgement: str
    """The answer to a notification that was processed, so that it is not repeated."""

    by_client: bool
    """Whether a charge opened for a phone cannot be paid at a desk, or the other way round."""

    @property
    def zone(self) -> zoneinfo.ZoneInfo | None:
        """The time zone of the days of its lists, unless they are the shop's."""

    @property
    def code_apps(self) -> Mapping[str, str | Promise]:
        """Which app scans a QR code, by how its address starts: our own page draws it."""

    @property
    def label(self) -> str | Promise:
        """The provider's name for buyers."""

    def create(self, charge: Charge) -> OpenedCharge:
        """Open a charge and return where its buyer pays; again, perhaps at a new address.

        :raises ChargeRefused: it is refused, or its reference was used with other parameters.
        :raises ProviderUnavailable: it may or may not be open; the same call again is safe.
        """

    def read_notification(
        self, *, headers: Mapping[str, str], body: bytes, now: dt.datetime
    ) -> Statement | None:
        """Return what a notification says; None if it is not about a charge of ours.

        :raises BadNotification: its signature is wrong, it is too old, or it cannot be read.
        :raises ProviderUnavailable: it names a change, and the provider did not say which.
        """

    def query(self, reference: str, *, provider_reference: str = "") -> Statement:
        """Return the state of a charge; one that the provider does not know is closed.

        :raises ProviderUnavailable: the state is unknown.
        """

    def refund(self, refund: Refund) -> bool:
        """Give money of a paid charge back, once; return False while the provider works on it.

        :raises PartlyRefunded: a part has gone back that ``refund`` does not take into account.
        :raises RefundRefused: somebody has to act; the same call again is safe.
        :raises ProviderUnavailable: it may or may not be refunded; the same call again is safe.
        """

    def list_movements(self, day: dt.date) -> Iterable[Movement]:
        """Return the money that came in and went back on this day of its time zone.

        :raises ProviderUnavailable: the list is not there yet, or was cut off.
        """


def offered_providers() -> list[PaymentProvider]:
    """Return the providers that buyers choose from, the default first."""
    return [_load(path) for path in settings.SECKILL_PAYMENT_PROVIDERS]


def current_provider() -> PaymentProvider:
    """Return the provider of new payments: the first in the settings.

    :raises ProviderUnavailable: the settings name none.
    """
    if not settings.SECKILL_PAYMENT_PROVIDERS:
        raise ProviderUnavailable("SECKILL_PAYMENT_PROVIDERS names no provider")
    return _load(settings.SECKILL_PAYMENT_PROVIDERS[0])


def provider_named(name: str) -> PaymentProvider:
    """Return a provider by its own name.

    :raises LookupError: the settings name no such provider.
    """
    for path in settings.SECKILL_PAYMENT_PROVIDERS:
        provider = _load(path)
        if provider.name == name:
            return provider
    raise LookupError(f"SECKILL_PAYMENT_PROVIDERS names no provider {name!r}")


class _Calls(ProcessMemory):
    """The calls of a process. A slow one costs seconds, in which its thread does nothing else."""

    def forget(self) -> None:
        self.places = threading.Semaphore(max(1, settings.SECKILL_DJANGO_THREADS // 2))


_calls = _Calls()
_ANSWERS = (ChargeRefused, RefundRefused, PartlyRefunded)


def call_provider(name: str, call: Callable[[PaymentProvider], T]) -> T:
    """Call a provider by name.

    :raises TooManyCalls: enough threads of this process wait for providers.
    :raises ProviderUnavailable: the provider's class raised any exception.
    """
    places = _calls.places
    if not places.acquire(blocking=False):
        raise TooManyCalls(f"provider {name} is not asked: others wait for theirs")
    try:
        with counted("provider_calls", name, refusals=_ANSWERS):
            return call(provider_named(name))
    except (SoftTimeLimitExceeded, ProviderUnavailable):
        raise
    except Exception as error:
        raise ProviderUnavailable(f"provider {name}: {error!r}") from error
    finally:
        places.release()


@cache
def _load(path: str) -> PaymentProvider:
    provider: PaymentProvider = import_string(path)()
    return provider
