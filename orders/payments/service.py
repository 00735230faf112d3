"""Payments: send a buyer to the provider, and settle the order when the provider reports.

A report may come twice, late, out of order or never; a provider that does not report is asked.

Note [Late payments]
~~~~~~~~~~~~~~~~~~~~
Money may arrive for an order that is no longer unpaid: it expired or was cancelled while the buyer
was paying, or another payment was faster. The unit may belong to somebody else by then, so the
order does not come back to life, and the shop does not keep money without an order: the payment is
refunded in full, and the buyer gets a mail. Two rules make this safe:

- Settling and ending meet at the order's row. Each is one conditional change from ``unpaid``, so
  exactly one of them succeeds (``_settle`` here, ``end_locked`` in ``lifecycle/cancellation.py``).
- The payment is marked ``refunding`` in the transaction that finds the order ended, and the
  provider is asked until it has refunded it (``finish_refunds`` in ``refunds.py``).

An order expires only after its provider was asked a last time (``expiry.py``), so this is rare.

Note [References]
~~~~~~~~~~~~~~~~~
A payment's reference is the idempotency key of its charge: whoever repeats it gets the same charge,
so an order has one at a provider, however often its buyer clicks. Providers refuse a reference that
comes again with other parameters, and a lost answer or a link that has ended makes it come again,
perhaps after somebody has changed the title or the language. Then a new payment is made. The old
one stays open and is asked about as before, so money that arrives for both is found, and that of
the second goes back. What is refused under a reference that was never sent before is the charge
itself: its payment is ``refused``, and gets a new reference at the next click, because providers
repeat a refusal too.

It begins with the id of its order, or of the first of them, so that a provider's list names the
order even if the database has lost the payment. All have one length, which every provider takes.

The unpaid units of a purchase are paid by one charge: Note [Shares of a charge] in
``models/payments.py``.
"""

import datetime as dt
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from string import ascii_lowercase, digits
from typing import Any, NamedTuple

from django.db import transaction
from django.db.models import Case, F, Value, When
from django.db.models.functions import Concat, Substr
from django.utils.crypto import get_random_string
from django.utils.translation import gettext_noop

from orders.lifecycle.cancellation import Busy, user_lock
from orders.lifecycle.transitions import PROVIDER, Change, WrongState, change_order, note
from orders.lock_objects import lock_order
from orders.models import (
    CODE_ALPHABET,
    CODE_LENGTH,
    EventCode,
    HandledNotification,
    OrderStatus,
    Payment,
    PaymentStatus,
    VoucherOrder,
)
from orders.payments.providers import (
    CURRENCY,
    BadNotification,
    Charge,
    ChargeRefused,
    ChargeState,
    ClientKind,
    Movement,
    PaymentProvider,
    PollBudget,
    ProviderUnavailable,
    Statement,
    TooManyCalls,
    backoff,
    call_provider,
    current_provider,
    offered_providers,
    provider_named,
)
from orders.payments.refunds import note_standing
from orders.payments.time_to_pay import is_over
from seckill_site.failpoints import failpoint
from seckill_site.metrics import counter
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.purchases import ids_of_purchase

logger = logging.getLogger(__name__)

FIRST_ASK_S = 15
"""A provider that has not reported is first asked after this time, then less and less often."""

ASK_FOR = dt.timedelta(days=1)
"""The time for which a provider is asked about a charge that nobody can pay any more."""

PUT_OFF_FOR = dt.timedelta(minutes=5)
"""The time for which a charge can be paid that is opened after its order's own deadline."""

TRUSTED_FOR = dt.timedelta(seconds=10)
"""The time for which a charge that is new, or was found open, is assumed to be open."""

ASKED_AT_ONCE = 50
"""The most payments that one call asks about: each may cost the provider's timeout."""

REFERENCE_LENGTH = 32
"""As WeChat Pay allows at most; letters and digits, as Alipay does."""

UNPAID = (PaymentStatus.OPEN, PaymentStatus.CLOSED, PaymentStatus.REFUSED)

LATE = gettext_noop("The payment arrived too late and is being refunded.")
WRONG_AMOUNT = gettext_noop("The payment was not the price of this order and is being refunded.")


class WrongAmount(Exception):
    """Another amount or currency was paid than we asked for."""


class CodeToScan(NamedTuple):
    """The address in a QR code, the name of the app that scans it, and until when it works."""

    address: str
    app: str
    ends_at: dt.datetime | None


# --- Sending the buyer to the provider ------------------------------------------------------------


def start_payment(
    *,
    order_id: int,
    return_url: str,
    notify_url: str,
    now: dt.datetime,
    provider: PaymentProvider | None = None,
    client: ClientKind = ClientKind.DESKTOP,
    client_address: str = "",
) -> str:
    """Return the address where this unpaid order is paid; the same one for as long as it works.

    All unpaid orders of its purchase are paid there together.
    The provider sends the buyer back to ``return_url``, and its notifications to ``notify_url``.

    :raises VoucherOrder.DoesNotExist: there is no such order.
    :raises WrongState: it is not unpaid, or its time is over.
    :raises ChargeRefused: the provider refuses it; trying again does not help.
    :raises ProviderUnavailable: the provider did not respond; try again.
    :raises Busy: the order is being changed now.
    :raises LedgerUnavailable: Redis did not respond.
    """
    orders = _payable(order_id, now)
    if cents_of(orders) == 0:
        _settle(_open_payment(orders, provider="", client="", now=now), "", now)
        return return_url
    provider = provider or current_provider()
    at: dict[str, Any] = {
        "provider": provider.name,
        "client": client.value if provider.by_client else "",
    }
    payment = _open_payment(orders, **at, now=now)
    if payment.pay_url and (payment.found_open_at or payment.created_at) < now - TRUSTED_FOR:
        # The buyer comes back without having paid: the charge may be closed by now.
        query_payment(payment, now=now)
        orders = _payable(order_id, now)
        payment = _open_payment(orders, **at, now=now)
    order = orders[0]
    if order.extended_at and payment.created_at < order.extended_at:
        # Its charge ends at the old time, and providers refuse another one for its reference.
        payment = _open_payment(orders, **at, now=now, after=payment)
    if payment.pay_url and (payment.link_ends_at is None or now < payment.link_ends_at):
        return payment.pay_url
    title = str(order.seckill_voucher.voucher)
    charge = Charge(
        reference=payment.reference,
        amount_cents=payment.charged_cents,
        subject=title if len(orders) == 1 else f"{len(orders)} × {title}",
        opened_at=payment.created_at,
        pay_by=_pay_by(order, payment, now),
        return_url=return_url,
        notify_url=notify_url,
        client=client,
        client_address=client_address,
    )
    try:
        return _open_charge(payment, charge, now)
    except ChargeRefused:
        if payment.created_at == now:  # a new reference, so this is about the charge itself
            raise
    # The reference was sent before, with another title or address: see Note [References].
    payment = _open_payment(orders, **at, now=now, after=payment)
    charge = replace(charge, reference=payment.reference, opened_at=payment.created_at)
    return _open_charge(payment, charge, now)


def _open_charge(payment: Payment, charge: Charge, now: dt.datetime) -> str:
    """Open a payment's charge, or get its address anew; raises as ``start_payment``."""
    same = payment.shares.filter(reference__startswith=charge.reference)
    still_open = same.filter(status=PaymentStatus.OPEN)
    try:
        opened = call_provider(payment.provider, lambda it: it.create(charge))
    except ChargeRefused as error:
        is_new = payment.created_at == now
        level = logging.ERROR if is_new else logging.WARNING
        logger.log(level, "payment %s is refused: %s", payment, error)
        if is_new:
            refused = {"status": PaymentStatus.REFUSED, "problem": str(error)[:200], "ask_at": None}
            still_open.filter(pay_url="").update(**refused, changed_at=now)
        raise
    ends_at = now + opened.valid_for if opened.valid_for else None
    named = {"pay_url": opened.pay_url, "provider_reference": opened.provider_reference}
    if not still_open.update(**named, link_ends_at=ends_at, problem=""):
        # A query before the charge existed was answered "not found".
        raise ProviderUnavailable(f"payment {payment} was closed meanwhile")
    return opened.pay_url


def _pay_by(order: VoucherOrder, payment: Payment, now: dt.datetime) -> dt.datetime:
    """Return until when a charge can be paid at the provider."""
    # Orders of an older release have no deadline.
    until = order.pay_by or payment.created_at + ASK_FOR
    # A clock was set, and the order can still be paid: Note [Two clocks] in clocks/steps.py.
    return until if until > now else now + PUT_OFF_FOR


def code_to_scan(*, order_id: int, now: dt.datetime) -> CodeToScan | None:
    """Return what an open payment shows as a QR code, if it does and the code still works."""
    apps = {it.name: it.code_apps for it in offered_providers()}
    payments = Payment.objects.filter(order=order_id, status=PaymentStatus.OPEN)
    payments = payments.exclude(link_ends_at__lte=now)
    # The charge of a payment that is older than an extension ends at the old time.
    payments = payments.exclude(created_at__lt=F("order__extended_at"))
    for payment in payments.order_by("-pk"):
        for start, app in apps.get(payment.provider, {}).items():
            if payment.pay_url.startswith(start):
                return CodeToScan(payment.pay_url, str(app), payment.link_ends_at)
    return None


def cents_of(orders: Sequence[VoucherOrder]) -> int:
    """Return what is paid for these orders together."""
    return sum(order.price_cents for order in orders)


def _payable(order_id: int, now: dt.datetime) -> list[VoucherOrder]:
    """Return the orders that are paid with this one, by id, it among them."""
    purchase = VoucherOrder.objects.filter(pk__in=ids_of_purchase(order_id)).order_by("pk")
    found = {it.pk: it for it in purchase.select_related("seckill_voucher__voucher")}
    if order_id not in found:
        raise VoucherOrder.DoesNotExist(f"no order {order_id}")
    status = found[order_id].status
    if status != OrderStatus.UNPAID:
        raise WrongState(status)
    unpaid = [it for it in found.values() if it.status == OrderStatus.UNPAID]
    orders = [it for it in unpaid if not is_over(it, now=now)]
    if found[order_id] not in orders:
        raise WrongState(OrderStatus.EXPIRED)
    return orders


def _open_payment(
    orders: Sequence[VoucherOrder],
    *,
    provider: str,
    client: str,
    now: dt.datetime,
    after: Payment | None = None,
) -> Payment:
    """Return the first share of the orders' open charge at a provider; concurrent clicks share one.

    ``after`` is one whose reference is of no use any more: a later one is returned.

    :raises WrongState: an order is no longer unpaid.
    """
    order = orders[0]
    assert order.user_id is not None  # a live order has a buyer
    start = f"{order.pk}x"
    reference = start + get_random_string(REFERENCE_LENGTH - len(start), digits + ascii_lowercase)
    ask_at = now + dt.timedelta(seconds=FIRST_ASK_S) if provider else None
    new: dict[str, Any] = {"reference": reference, "status": PaymentStatus.OPEN, "created_at": now}
    with user_lock(sale_id=order.seckill_voucher_id, user_id=order.user_id):
        orders = _payable(order.pk, now)  # another click may have paid it since
        total_cents = cents_of(orders) if len(orders) > 1 else None
        at: dict[str, Any] = {"provider": provider, "client": client, "total_cents": total_cents}
        payments = order.payments.filter(**at, charge=None, pk__gt=after.pk if after else 0)
        payment = payments.filter(status__in=(PaymentStatus.OPEN, PaymentStatus.REFUSED)).last()
        if payment is None:
            return _new_charge(orders, **at, **new, ask_at=ask_at)
        if payment.status == PaymentStatus.REFUSED:
            new["reference"] = Concat(Value(reference), Substr("reference", len(reference) + 1))
            refused = payment.shares.filter(status=PaymentStatus.REFUSED)
            refused.update(**new, ask_at=Case(When(charge=None, then=Value(ask_at))))
            payment.refresh_from_db()
        return payment


def order_in(reference: str) -> int | None:
    """Return the order id that a reference begins with; None for one of an earlier release."""
    match = re.fullmatch(r"([1-9][0-9]{0,18})x[0-9a-z]+", reference)
    return int(match[1]) if match else None


def adopt_payment(provider_name: str, paid: Movement, *, now: dt.datetime) -> bool:
    """Write a payment again that only a provider's list has, and settle its orders.

    Return whether it could be: it is what the unpaid orders of the purchase cost together.
    """
    order_id, cents = order_in(paid.reference), paid.amount_cents
    purchase = VoucherOrder.objects.filter(pk__in=ids_of_purchase(order_id or 0))
    orders = list(purchase.filter(status=OrderStatus.UNPAID).order_by("pk"))
    if not orders or (cents_of(orders), CURRENCY) != (cents, paid.currency):
        return False
    if not Payment.objects.filter(reference=paid.reference).exists():
        facts = {"provider": provider_name, "total_cents": cents if len(orders) > 1 else None}
        _new_charge(orders, reference=paid.reference, **facts, created_at=now)
    said = Statement(paid.reference, ChargeState.PAID, cents, currency=paid.currency)
    take_statement(provider_named(provider_name), said, now=now)
    return True


def _new_charge(orders: Sequence[VoucherOrder], *, reference: str, **facts: Any) -> Payment:
    """Write a payment for each of these orders, and return the one that the provider knows."""
    first, *further = [Payment(order=it, amount_cents=it.price_cents, **facts) for it in orders]
    first.reference = reference
    if not further:
        first.save(force_insert=True)
        return first
    with transaction.atomic(durable=True):
        first.save(force_insert=True)
        for number, share in enumerate(further, start=2):
            share.reference, share.charge, share.ask_at = f"{reference}_{number}", first, None
        Payment.objects.bulk_create(further)
    return first


# --- Reports of the provider ----------------------------------------------------------------------


def take_notification(
    *, provider_name: str, headers: Mapping[str, str], body: bytes, now: dt.datetime
) -> str:
    """Process a notification, and return the acknowledgement for the provider.

    :raises LookupError: there is no such provider.
    :raises BadNotification: it is not the provider's, or about no payment of ours.
    :raises Busy: the order is being changed now; the provider has to send it again.
    :raises LedgerUnavailable: Redis did not respond; the provider has to send it again.
    """
    provider = provider_named(provider_name)
    statement = provider.read_notification(headers=headers, body=body, now=now)
    if statement is None:
        return provider.acknowledgement
    key = {"provider": provider.name, "notification_id": statement.notification_id}
    if not statement.notification_id:
        take_statement(provider, statement, now=now)
    elif not HandledNotification.objects.filter(**key).exists():
        take_statement(provider, statement, now=now)
        # Only now, so that one which could not be handled counts when it is repeated.
        HandledNotification.objects.bulk_create([HandledNotification(**key)], ignore_conflicts=True)
    return provider.acknowledgement


def take_statement(provider: PaymentProvider, statement: Statement, *, now: dt.datetime) -> None:
    """Apply what a provider says about a payment. Safe to repeat.

    Money of another amount or currency than ours pays nothing and is refunded.

    :raises BadNotification: there is no such payment, or it is said to be paid with nothing.
    :raises Busy: the order is being changed now.
    :raises LedgerUnavailable: Redis did not respond.
    """
    payments = Payment.objects.filter(provider=provider.name, reference=statement.reference)
    payment = payments.select_related("order").first()
    if payment is None:
        raise BadNotification(f"no payment {statement.reference}")
    if statement.state is ChargeState.CLOSED:
        still_open = payment.shares.filter(status=PaymentStatus.OPEN)
        still_open.update(status=PaymentStatus.CLOSED, ask_at=None)
    elif statement.state is ChargeState.PAID:
        if not statement.amount_cents:
            raise BadNotification(f"payment {payment} is said to be paid with nothing")
        ours = (payment.charged_cents, CURRENCY)
        received = (statement.amount_cents, statement.currency.upper())
        wrong = received if received != ours else None
        named = statement.provider_reference or payment.provider_reference
        _settle(payment, named, now, wrong=wrong)
    if statement.refunded_cents is not None or statement.disputed is not None:
        note_standing(payment, statement, now=now)


def _settle(
    payment: Payment,
    provider_reference: str,
    now: dt.datetime,
    *,
    wrong: tuple[int, str] | None = None,
) -> None:
    """Mark the orders as paid, or refund what is late (Note [Late payments]) or wrong; only once.

    ``payment`` is the first share of the charge, and each share is late or in time by itself.
    ``wrong`` is what was paid, in cents and currency, if it is not what we asked for: all of it
    goes back as the first share, and the others count as closed.
    """
    order = payment.order
    assert order.user_id is not None
    with (
        user_lock(sale_id=order.seckill_voucher_id, user_id=order.user_id),
        transaction.atomic(durable=True),
    ):
        shares = payment.list_shares()
        statuses = [lock_order(order_id=it.order_id).status for it in shares]
        unpaid = payment.shares.filter(status__in=UNPAID)
        if any(it.status not in UNPAID for it in shares) or not unpaid.update(
            status=PaymentStatus.PAID,
            provider_reference=provider_reference,
            paid_at=now,
            ask_at=None,
        ):
            return  # reported before
        if wrong and len(shares) > 1:
            others = payment.shares.exclude(pk=payment.pk)
            others.update(status=PaymentStatus.CLOSED, paid_at=None)
        for share, status in zip(shares, statuses, strict=True):
            if not wrong or share.pk == payment.pk:
                _settle_share(share, status, now, wrong=wrong)
        failpoint("settle.before_commit")
    failpoint("settle.committed")


def _settle_share(
    payment: Payment, status: str, now: dt.datetime, *, wrong: tuple[int, str] | None
) -> None:
    """Mark the order of a paid share as paid, or the share as going back."""
    payments, sale_id = Payment.objects.filter(pk=payment.pk), payment.order.seckill_voucher_id
    try:
        if wrong:
            payments.update(received_cents=wrong[0], received_currency=wrong[1])
            raise WrongAmount(f"{wrong} instead of {payment.charged_cents} {CURRENCY}")
        code = get_random_string(CODE_LENGTH, CODE_ALPHABET)
        paid = Change(OrderStatus.PAID, PROVIDER, now)
        change_order(paid, sale_id=sale_id, order_id=payment.order_id, code=code)
        payments.update(settles=True)
        counter("payments", payment.provider, "paid").inc()
    except (WrongState, WrongAmount) as error:
        logger.warning("payment %s of order %s goes back: %s", payment, payment.order_id, error)
        problem = WRONG_AMOUNT if wrong else LATE
        counter("payments", payment.provider, "wrong amount" if wrong else "late").inc()
        payments.update(
            status=PaymentStatus.REFUNDING, problem=problem, ask_at=now, asked=0, changed_at=now
        )
        # An event without a change of state, so that the buyer is notified.
        event = EventCode.WRONG_AMOUNT if wrong else EventCode.LATE_PAYMENT
        values = {"payment": payment.reference}
        unchanged = Change(OrderStatus(status), PROVIDER, now, code=event, values=values)
        note(unchanged, order_ids=[payment.order_id], before=status)


# --- Asking the provider --------------------------------------------------------------------------


class QueryOutcome(Enum):
    """The outcome of asking a provider about a payment."""

    KNOWN = "known"
    SILENCE = "silence"
    LATER = "later"
    """The provider has answered, but the answer could not be applied now."""


def poll_payments(*, now: dt.datetime) -> int:
    """Ask about payments that were not reported; return how many were asked about."""
    due = Payment.objects.filter(status=PaymentStatus.OPEN, ask_at__lte=now)
    budget, asked = PollBudget(), 0
    for payment in due.order_by("ask_at").select_related("order")[:ASKED_AT_ONCE]:
        if budget.allows(payment.provider):
            asked += 1
            query_payment(payment, now=now, budget=budget)
    return asked


def payments_waiting_since(*, now: dt.datetime) -> dt.datetime | None:
    """Return since when the payment that is most overdue waits to be asked about, if one does.

    A provider that does not respond is left out: its payments wait for it and not for a worker.
    """
    due = Payment.objects.filter(status=PaymentStatus.OPEN, ask_at__lte=now)
    silent = Payment.objects.filter(status=PaymentStatus.OPEN, silent_since__isnull=False)
    due = due.exclude(provider__in=silent.order_by().values("provider"))
    return due.order_by("ask_at").values_list("ask_at", flat=True).first()


def query_payment(
    payment: Payment, *, now: dt.datetime, budget: PollBudget | None = None
) -> QueryOutcome:
    """Ask the provider about a payment's charge and apply the answer, unless ``budget`` forbids it.

    :raises TooManyCalls: the provider was not asked.
    """
    budget = budget or PollBudget()
    if not budget.allows(payment.provider):
        return QueryOutcome.SILENCE
    payment = payment.charge or payment
    still_open = payment.shares.filter(status=PaymentStatus.OPEN)
    first = Payment.objects.filter(pk=payment.pk, status=PaymentStatus.OPEN)
    ask_at = now + backoff(payment.asked, first_s=FIRST_ASK_S)
    first.update(asked=payment.asked + 1, ask_at=ask_at)
    try:
        named = payment.provider_reference
        statement = call_provider(
            payment.provider, lambda it: it.query(payment.reference, provider_reference=named)
        )
    except TooManyCalls:
        raise
    except ProviderUnavailable as error:
        logger.warning("no answer about payment %s: %s", payment, error)
        still_open.filter(silent_since=None).update(silent_since=now)
        budget.count_silence(payment.provider)
        return QueryOutcome.SILENCE
    is_open = statement.state is ChargeState.OPEN
    still_open.update(silent_since=None, **({"found_open_at": now} if is_open else {}))
    try:
        take_statement(provider_named(payment.provider), statement, now=now)
    except (Busy, LedgerUnavailable) as error:
        logger.warning("the answer about payment %s is applied later: %r", payment, error)
        return QueryOutcome.LATER
    except BadNotification as error:
        logger.warning("the answer about payment %s is inconsistent: %s", payment, error)
    payable_until = max(payment.created_at, payment.order.pay_by or payment.created_at)
    if now > payable_until + ASK_FOR:
        first.update(ask_at=None)  # nobody has paid, and nobody can any more
    return QueryOutcome.KNOWN
