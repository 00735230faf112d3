"""The sandbox: a payment provider that moves no money, for the demo, for tests and as an example.

It keeps its own books (``SandboxTrade``) and shows buyers its own page
(``orders/web/sandbox_views.py``). It notifies the shop as a real provider would: over HTTP, signed,
twice, late or not at all.
"""

import datetime as dt
import hashlib
import hmac
import json
import logging
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any
from urllib.parse import urljoin

from celery import current_app
from django.conf import settings
from django.db import transaction
from django.urls import reverse
from django.utils.translation import gettext_lazy

from orders.lock_objects import lock_trade
from orders.models import MoneyDirection, SandboxTrade
from orders.payments.http_calls import call
from orders.payments.providers import (
    BadNotification,
    Charge,
    ChargeState,
    Movement,
    OpenedCharge,
    ProviderUnavailable,
    Refund,
    Statement,
    bounds_of_day,
)
from orders.payments.reading import cents_in, refusing_malformed
from seckill_site.broker.messages import publish_options
from seckill_site.clocks.database import database_now
from seckill_site.strict_json import read_strict_json

logger = logging.getLogger(__name__)

State = SandboxTrade.State

SIGNATURE_HEADER = "Sandbox-Signature"
ACKNOWLEDGEMENT = "success"

PAUSES_S = (5, 15, 60, 300)
"""The pauses between attempts to send a notification; it gives up after the last."""

LATE_S = 20

_NAME = re.compile("[0-9A-Za-z_-]{1,64}")


class NotOpen(Exception):
    """The charge is paid, closed or expired, so nothing can be chosen any more."""


class Choice(StrEnum):
    """A buyer's choice on the sandbox's page; for a payment, also how the shop is notified."""

    PAY = "pay"
    TWICE = "twice"
    LATE = "late"
    NEVER = "never"
    DECLINE = "decline"


NOTIFIED_AFTER_S: dict[Choice, tuple[int, ...]] = {
    Choice.PAY: (0,),
    Choice.TWICE: (0, 0),
    Choice.LATE: (LATE_S,),
    Choice.NEVER: (),
    Choice.DECLINE: (0,),
}


class Sandbox:
    """A :class:`~orders.payments.providers.PaymentProvider` that moves no money."""

    name = "sandbox"
    label = gettext_lazy("Payment sandbox")
    acknowledgement = ACKNOWLEDGEMENT
    by_client = False
    code_apps: Mapping[str, str] = {}
    zone = None

    def create(self, charge: Charge) -> OpenedCharge:
        """Open a charge and return the address of the sandbox's page, at the shop's own host."""
        trade, _ = SandboxTrade.objects.get_or_create(
            reference=charge.reference,
            defaults={
                "amount_cents": charge.amount_cents,
                "subject": charge.subject[:200],
                "pay_by": charge.pay_by,
                "return_url": charge.return_url,
                "notify_url": charge.notify_url,
            },
        )
        page = reverse("sandbox", args=[trade.reference])
        return OpenedCharge(urljoin(trade.return_url, page))

    def read_notification(
        self, *, headers: Mapping[str, str], body: bytes, now: dt.datetime
    ) -> Statement:
        """Return what a notification says.

        :raises BadNotification: it is not signed with our key, or cannot be read.
        """
        # As bytes, because two texts are compared in constant time only if they are ASCII.
        signature = headers.get(SIGNATURE_HEADER, "").encode(errors="replace")
        keys = [settings.SECKILL_SANDBOX_KEY, *settings.SECKILL_SANDBOX_KEY_FALLBACKS]
        if not any(hmac.compare_digest(signature, sign(body, key).encode()) for key in keys):
            raise BadNotification("the signature is wrong")
        with refusing_malformed(BadNotification, "the notification"):
            content = read_strict_json(body)
            state, amount_cents = ChargeState(content["state"]), cents_in(content, "amount_cents")
            reference, trade = _name(content, "reference"), _name(content, "trade")
            return Statement(reference, state, amount_cents, provider_reference=trade)

    def query(self, reference: str, *, provider_reference: str = "") -> Statement:
        """Return the state of a charge; one that is not in the books is closed."""
        now = database_now()
        # Closed in the books too: a charge reported as closed must not be paid afterwards.
        over = SandboxTrade.objects.filter(reference=reference, state=State.OPEN, pay_by__lte=now)
        over.update(state=State.CLOSED)
        trade = SandboxTrade.objects.filter(reference=reference).first()
        if trade is None:
            return Statement(reference, ChargeState.CLOSED, 0)
        state = state_of(trade, now=now)
        return Statement(reference, state, trade.amount_cents, str(trade.pk))

    def refund(self, refund: Refund) -> bool:
        """Give money of a paid charge back, once for each number.

        :raises ProviderUnavailable: there is no paid charge that has so much left.
        """
        with transaction.atomic():
            trade = lock_trade(reference=refund.reference)
            total = refund.charged_cents
            was_paid = trade and trade.state in (State.PAID, State.REFUNDED)
            if trade is None or not was_paid or trade.amount_cents != total:
                raise ProviderUnavailable(f"no paid charge {refund.reference} of {total} cents")
            if trade.state == State.REFUNDED:
                return True
            refunds = refunds_of(trade)
            is_same = refunds.setdefault(refund.number, refund.amount_cents) == refund.amount_cents
            gone = sum(refunds.values())
            if not is_same or gone > total:
                raise ProviderUnavailable(f"charge {refund.reference} has not so much left")
            state = State.REFUNDED if gone == total else State.PAID
            trade.refunds, trade.state = refunds, state
            trade.save(update_fields=["refunds", "state"])
        return True

    def list_movements(self, day: dt.date) -> Iterator[Movement]:
        """Return the charges opened on this day that were paid, and those refunded since."""
        start, end = bounds_of_day(day)
        opened = SandboxTrade.objects.filter(created_at__gte=start, created_at__lt=end)
        opened = opened.order_by("pk")
        for trade in opened.filter(state__in=(State.PAID, State.REFUNDED)):
            yield Movement(MoneyDirection.PAYMENT, trade.reference, trade.amount_cents)
            for cents in refunds_of(trade).values():
                yield Movement(MoneyDirection.REFUND, trade.reference, cents)


# --- What the page does ---------------------------------------------------------------------------


def state_of(trade: SandboxTrade, *, now: dt.datetime) -> ChargeState:
    """Return a charge's state for the shop; refunded and expired charges are closed."""
    if trade.state == State.PAID:
        return ChargeState.PAID
    if trade.state == State.OPEN and now < trade.pay_by:
        return ChargeState.OPEN
    return ChargeState.CLOSED


def refunds_of(trade: SandboxTrade) -> dict[str, int]:
    """Return the cents of each refund of a charge by its number."""
    is_whole = trade.state == State.REFUNDED and trade.refunds is None
    return {trade.reference: trade.amount_cents} if is_whole else dict(trade.refunds or {})


def decide(*, reference: str, choice: Choice, now: dt.datetime) -> tuple[int, ...]:
    """Pay or close an open charge once; return after how many seconds to notify the shop.

    :raises NotOpen: it is not open any more, or unknown.
    """
    state = State.CLOSED if choice is Choice.DECLINE else State.PAID
    still_open = SandboxTrade.objects.filter(reference=reference, state=State.OPEN, pay_by__gt=now)
    if not still_open.update(state=state):
        raise NotOpen(f"charge {reference} is not open")
    return NOTIFIED_AFTER_S[choice]


# --- Notifications --------------------------------------------------------------------------------


def notify(*, reference: str, tries: int, now: dt.datetime) -> float | None:
    """Notify the shop; return the seconds before the next attempt.

    Return None if no attempt follows: the shop has accepted this one, or it was the last.
    """
    trade = SandboxTrade.objects.filter(reference=reference).first()
    if trade is None:
        return None
    state = state_of(trade, now=now)
    if state is ChargeState.OPEN or _post(trade.notify_url, notification(trade, state)):
        return None
    pause_s = dict(enumerate(PAUSES_S, start=1)).get(tries)
    logger.warning("charge %s: the shop was not notified, next attempt in %s s", reference, pause_s)
    return pause_s


def publish_notification(*, reference: str, tries: int = 1, in_s: float = 0) -> None:
    """Publish the task that notifies the shop after ``in_s`` seconds."""
    arguments = {"reference": reference, "tries": tries}
    options = publish_options(pause_s=in_s)
    current_app.send_task("orders.tasks.notify_from_sandbox", kwargs=arguments, **options)


def notification(trade: SandboxTrade, state: ChargeState) -> bytes:
    """Return the body of a notification about a charge."""
    content = {
        "reference": trade.reference,
        "state": state,
        "amount_cents": trade.amount_cents,
        "trade": str(trade.pk),
    }
    return json.dumps(content).encode()


def sign(body: bytes, key: str) -> str:
    """Return the signature of exactly these bytes."""
    return hmac.new(key.encode(), body, hashlib.sha256).hexdigest()


def _post(url: str, body: bytes) -> bool:
    """Send a notification; return whether the shop acknowledged it."""
    signature = sign(body, settings.SECKILL_SANDBOX_KEY)
    headers = {"Content-Type": "application/json", SIGNATURE_HEADER: signature}
    try:
        answer = call("POST", url, headers=headers, body=body)
    except ProviderUnavailable as error:
        logger.info("the shop cannot be reached: %s", error)
        return False
    if answer.status != 200:
        logger.info("%s answered %s", url, answer.status)
    return answer.status == 200 and answer.body == ACKNOWLEDGEMENT.encode()


def _name(content: dict[str, Any], key: str) -> str:
    if not _NAME.fullmatch(content[key]):
        raise ValueError(f"{key} is malformed")
    return str(content[key])
