"""Settlement: compare a provider's list of a day with our payments, and name each difference.

The lists are kept, because money may be listed a day before or after we have noted it. A difference
is resolved as soon as neither side shows it any more: each run looks at the open ones again.
"""

import datetime as dt
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Coalesce
from django.utils import timezone

from orders.models import (
    GOING_BACK,
    HandledNotification,
    MoneyDirection,
    Payment,
    PaymentStatus,
    ProviderLine,
    SettlementDifference,
    SettlementRun,
)
from orders.payments.providers import (
    CURRENCY,
    ChargeState,
    Movement,
    ProviderUnavailable,
    Statement,
    bounds_of_day,
    call_provider,
    offered_providers,
    provider_named,
)
from orders.payments.refunds import gone_cents_of, note_standing

logger = logging.getLogger(__name__)

LISTED_FROM = dt.time(10, 30)
"""The time of day from which every provider has the list of the day before."""

DAYS_BACK = 7
"""A day that could not be compared is tried again for this long."""

NOTIFICATIONS_KEPT = dt.timedelta(days=30)

_PAID = (PaymentStatus.PAID, *GOING_BACK)

Kind = SettlementDifference.Kind
_Key = tuple[str, str]
"""The direction of money and the reference of its charge."""


class _Charge(NamedTuple):
    """A charge as our payments have it; the lists name no shares, so all of them are summed."""

    first: Payment
    shares: Sequence[Payment]

    @property
    def currency(self) -> str:
        return self.first.received_currency or CURRENCY

    @property
    def gone_cents(self) -> int:
        return gone_cents_of(self.shares)

    def gone_by(self, end: dt.datetime) -> int:
        """Return what refunds brought back that were done by then."""
        return gone_cents_of(it for it in self.shares if _is_over(it, end))

    def our_cents(self, direction: str) -> int:
        is_refund = direction == MoneyDirection.REFUND
        return self.gone_cents if is_refund else self.first.charged_cents


def _is_over(payment: Payment, end: dt.datetime) -> bool:
    return payment.refunded_at is not None and payment.refunded_at < end


def _charges(payments: Iterable[Payment]) -> dict[str, _Charge]:
    """Return the charges of which these are the first shares, by reference."""
    firsts = list(payments)
    shares: dict[int | None, list[Payment]] = {it.pk: [it] for it in firsts}
    several = [it.pk for it in firsts if it.total_cents is not None]
    for share in Payment.objects.filter(charge__in=several) if several else ():
        shares[share.charge_id].append(share)
    return {it.reference: _Charge(it, shares[it.pk]) for it in firsts}


@dataclass(frozen=True)
class _Difference:
    kind: SettlementDifference.Kind
    charge: _Charge | None = None
    line: ProviderLine | None = None


def open_differences() -> int:
    """Return how many differences nobody has resolved."""
    return SettlementDifference.objects.filter(resolved_at=None).count()


def settle_due(*, now: dt.datetime) -> None:
    """Compare each provider's last days that were not compared yet; one that is away waits.

    A day's list is compared whole and once, so this has no bound but the task's time limit. Its
    queue is that of the providers, which no order waits behind.
    """
    HandledNotification.objects.filter(handled_at__lt=now - NOTIFICATIONS_KEPT).delete()
    for provider in offered_providers():
        local = timezone.localtime(now, provider.zone)
        last = local.date() - dt.timedelta(days=1 if local.time() >= LISTED_FROM else 2)
        for back in range(DAYS_BACK):
            day = last - dt.timedelta(days=back)
            if SettlementRun.objects.filter(provider=provider.name, day=day).exists():
                continue
            try:
                settle_day(provider_name=provider.name, day=day, now=now)
            except ProviderUnavailable as error:
                logger.warning("%s of %s is not compared yet: %s", provider.name, day, error)
                break


def settle_day(*, provider_name: str, day: dt.date, now: dt.datetime) -> int:
    """Compare a day of a provider, whether it was compared before; return its open differences.

    :raises ProviderUnavailable: its list is not there.
    """
    listed = call_provider(provider_name, lambda it: list(it.list_movements(day)))
    mine: dict[str, Any] = {"provider": provider_name, "day": day}
    with transaction.atomic(durable=True):
        ProviderLine.objects.filter(**mine).delete()
        ProviderLine.objects.bulk_create(_lines(provider_name, day, listed))
    _take_refunds(provider_name, day, now)
    with transaction.atomic(durable=True):
        SettlementRun.objects.update_or_create(**mine, defaults={"done_at": now})
        still_open = SettlementDifference.objects.filter(provider=provider_name, resolved_at=None)
        for each in {day, *still_open.values_list("day", flat=True)}:
            _note(provider_name, each, now)
    return SettlementDifference.objects.filter(**mine, resolved_at=None).count()


def _lines(provider: str, day: dt.date, listed: Iterable[Movement]) -> Iterator[ProviderLine]:
    """Yield one line for each charge and direction; several parts of a refund are added up."""
    sums = Counter[tuple[str, str, str]]()
    for it in listed:
        sums[it.direction.value, it.reference[:64], it.currency[:3]] += it.amount_cents
    seen = set[_Key]()
    for (direction, reference, currency), cents in sums.items():
        if (direction, reference) in seen:
            logger.error("%s lists %s of %s in two currencies", provider, direction, reference)
            continue
        seen.add((direction, reference))
        yield ProviderLine(
            provider=provider,
            day=day,
            direction=direction,
            reference=reference,
            amount_cents=cents,
            currency=currency,
        )


def _take_refunds(provider: str, day: dt.date, now: dt.datetime) -> None:
    """Note what has gone back by this list, and by no refund of ours (Note [Third states])."""
    listed = ProviderLine.objects.filter(
        provider=provider, day=day, direction=MoneyDirection.REFUND
    )
    references = list(listed.values_list("reference", flat=True))
    sums = _gone_back(provider, references)
    payments = Payment.objects.filter(provider=provider, reference__in=references)
    for charge in _charges(payments).values():
        # A list has a refund that failed later, too.
        if any(it.refund_round or it.status == PaymentStatus.REFUND_FAILED for it in charge.shares):
            continue
        first, gone = charge.first, sums[charge.first.reference, charge.currency]
        if charge.gone_cents < gone <= first.charged_cents:
            paid = (first.reference, ChargeState.PAID, first.charged_cents)
            said = Statement(*paid, currency=charge.currency, refunded_cents=gone)
            note_standing(first, said, now=now)


def _gone_back(provider: str, references: Iterable[str]) -> Counter[tuple[str, str]]:
    """Return what has gone back by the lists of all days, by charge and currency."""
    lines = ProviderLine.objects.filter(
        provider=provider, direction=MoneyDirection.REFUND, reference__in=references
    )
    sums = Counter[tuple[str, str]]()
    for reference, currency, cents in lines.values_list("reference", "currency", "amount_cents"):
        sums[reference, currency] += cents
    return sums


def _note(provider: str, day: dt.date, now: dt.datetime) -> None:
    """Write down the differences of a day, and resolve those that are gone."""
    differences = dict(_differences(provider, day))
    for old in SettlementDifference.objects.filter(provider=provider, day=day, resolved_at=None):
        if (old.direction, old.reference) not in differences:
            SettlementDifference.objects.filter(pk=old.pk).update(resolved_at=now)
    for (direction, reference), it in differences.items():
        seen = {
            "kind": it.kind,
            "payment": it.charge and it.charge.first,
            "our_cents": it.charge and it.charge.our_cents(direction),
            "their_cents": it.line and it.line.amount_cents,
            "their_currency": it.line.currency if it.line else "",
            "resolved_at": None,
        }
        SettlementDifference.objects.update_or_create(
            provider=provider,
            day=day,
            direction=direction,
            reference=reference,
            defaults=seen,
            create_defaults=seen | {"found_at": now},
        )


def _differences(provider: str, day: dt.date) -> Iterator[tuple[_Key, _Difference]]:
    lines = list(ProviderLine.objects.filter(provider=provider, day=day))
    references = [line.reference for line in lines]
    payments = Payment.objects.filter(provider=provider)
    ours = _charges(payments.filter(reference__in=references))
    start, end = bounds_of_day(day, provider_named(provider).zone)
    gone = _gone_back(provider, references)
    for line in lines:
        charge = ours.get(line.reference)
        kind = _kind(line, charge, gone[line.reference, line.currency], end)
        if kind:
            yield (line.direction, line.reference), _Difference(kind, charge, line)
    paid = payments.filter(charge=None, paid_at__gte=start, paid_at__lt=end)
    known = _listed(provider, "payment", paid)
    for reference, charge in _charges(paid).items():
        if reference not in known:
            yield ("payment", reference), _Difference(Kind.MISSING_THERE, charge)
    # Staff counted some as refunded, of which nothing went back.
    refunded = payments.filter(refunded_at__gte=start, refunded_at__lt=end, refunded_cents__gt=0)
    firsts = Payment.objects.filter(pk__in=refunded.values(first=Coalesce("charge", "pk")))
    known = _listed(provider, "refund", firsts)
    sums = _gone_back(provider, known)
    today = {it.reference for it in lines if it.direction == MoneyDirection.REFUND}
    for reference, charge in _charges(firsts).items():
        is_short = charge.gone_by(end) > sums[reference, charge.currency]
        if reference not in known or (is_short and reference not in today):
            yield ("refund", reference), _Difference(Kind.MISSING_THERE, charge)


def _listed(provider: str, direction: str, firsts: QuerySet[Payment]) -> set[str]:
    """Return the references of those of these charges that any list has."""
    lines = ProviderLine.objects.filter(provider=provider, direction=direction)
    listed = lines.filter(reference__in=firsts.values("reference"))
    return set(listed.values_list("reference", flat=True))


def _kind(
    line: ProviderLine, charge: _Charge | None, gone_cents: int, end: dt.datetime
) -> SettlementDifference.Kind | None:
    """Return how a line differs from our payments, if it does.

    ``gone_cents`` is what all lists say that has gone back. A later day may list more of it.
    """
    expected = _PAID if line.direction == MoneyDirection.PAYMENT else GOING_BACK
    if charge is None or not any(it.status in expected for it in charge.shares):
        return Kind.MISSING_HERE
    if line.currency != charge.currency:
        return Kind.AMOUNT
    total = charge.first.charged_cents
    if line.direction == MoneyDirection.PAYMENT:
        return None if line.amount_cents == total else Kind.AMOUNT
    waits = any(it.status in GOING_BACK and not _is_over(it, end) for it in charge.shares)
    may_come = waits and charge.gone_by(end) <= gone_cents < total
    return None if gone_cents == charge.gone_cents or may_come else Kind.AMOUNT
