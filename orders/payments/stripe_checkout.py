"""Stripe Checkout: cards and wallets, on a page of Stripe (``docs/payments/stripe.md``).

A charge is a Checkout Session. Stripe finds sessions by its own ids alone, so ours keeps that id as
``provider_reference``. If the answer to ``create`` is lost, nobody has the address of the session,
so nobody can pay it; the idempotency key makes the next call return the same one.
"""

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import stripe
from django.conf import settings
from django.utils.translation import gettext_lazy

from orders.models import MoneyDirection
from orders.payments.http_calls import call
from orders.payments.providers import (
    CURRENCY,
    BadNotification,
    Charge,
    ChargeState,
    Movement,
    OpenedCharge,
    PartlyRefunded,
    ProviderUnavailable,
    Refund,
    RefundRefused,
    Statement,
    bounds_of_day,
    call_provider,
)
from orders.payments.reading import (
    LONGEST_ID,
    Refused,
    cents_in,
    check_time,
    currency_in,
    object_in,
    reference_in,
    refusing_malformed,
    seconds_of,
    statement_about,
    text_in,
)
from seckill_site.clocks.database import database_now
from seckill_site.strict_json import read_strict_json

SHORTEST_SESSION = dt.timedelta(minutes=31)
LONGEST_SESSION = dt.timedelta(hours=23)
"""Stripe opens sessions for 30 minutes to 24 hours. What is paid after ``pay_by`` goes back."""

LONGEST_SUBJECT = 120

_REFUSALS = (
    stripe.InvalidRequestError,
    stripe.IdempotencyError,
    stripe.AuthenticationError,
    stripe.PermissionError,
)

_SESSION_EVENTS = (
    "checkout.session.completed",
    "checkout.session.async_payment_succeeded",
    "checkout.session.async_payment_failed",
    "checkout.session.expired",
)
_STANDING_EVENTS = (
    "charge.refunded",
    "refund.failed",
    "charge.dispute.created",
    "charge.dispute.closed",
)
_WON = ("won", "warning_closed", "prevented")
"""The states of a dispute that is over, and left the money with the shop."""


class _Calls(stripe.HTTPClient):
    """Stripe's requests, sent within our deadline."""

    name = "seckill"

    def request(
        self, method: str, url: str, headers: Any, post_data: Any = None, **_: Any
    ) -> tuple[str, int, Mapping[str, str]]:
        body = post_data.encode() if isinstance(post_data, str) else post_data
        answer = call(method.upper(), url, headers=headers or {}, body=body)
        return answer.body.decode(errors="replace"), answer.status, answer.headers

    def close(self) -> None:
        """Each call closes its own connection."""


class StripeCheckout:
    """A :class:`~orders.payments.providers.PaymentProvider` that sends buyers to Stripe."""

    name = "stripe"
    label = gettext_lazy("Card (Stripe)")
    acknowledgement = "received"
    by_client = False
    code_apps: Mapping[str, str] = {}
    zone = None

    @staticmethod
    def problems() -> Iterator[str]:
        """Yield what is wrong with the settings."""
        if not settings.SECKILL_STRIPE_SECRET_KEY.startswith(("sk_", "rk_")):
            yield "SECKILL_STRIPE_SECRET_KEY is no secret key (sk_… or rk_…) of Stripe."
        secrets = settings.SECKILL_STRIPE_WEBHOOK_SECRETS
        if not secrets or not all(it.startswith("whsec_") for it in secrets):
            yield "SECKILL_STRIPE_WEBHOOK_SECRETS names no signing secret (whsec_…) of Stripe."

    def create(self, charge: Charge) -> OpenedCharge:
        """Open a session; equal calls open one."""
        line = {
            "quantity": 1,
            "price_data": {
                "currency": CURRENCY.lower(),
                "unit_amount": charge.amount_cents,
                "product_data": {"name": charge.subject[:LONGEST_SUBJECT]},
            },
        }
        named = {"reference": charge.reference}
        params: Any = {
            "mode": "payment",
            "line_items": [line],
            "client_reference_id": charge.reference,
            "metadata": named,
            "payment_intent_data": {"metadata": named},
            "success_url": charge.return_url,
            "cancel_url": charge.return_url,
        }
        if charge.pay_by - charge.opened_at <= LONGEST_SESSION:  # Stripe's own end is a day later
            params["expires_at"] = int((charge.pay_by + SHORTEST_SESSION).timestamp())
        with _errors():
            options: Any = {"idempotency_key": charge.reference}
            session = _client().v1.checkout.sessions.create(params, options)
        if not session.url:
            raise ProviderUnavailable(f"session {session.id} has no page any more")
        return OpenedCharge(session.url, session.id)

    def read_notification(
        self, *, headers: Mapping[str, str], body: bytes, now: dt.datetime
    ) -> Statement | None:
        """Return what an event says about a session; Stripe is asked what became of its money.

        :raises BadNotification: it is not signed with our secret, too old, or cannot be read.
        :raises ProviderUnavailable: Stripe did not say what became of it.
        """
        with refusing_malformed(BadNotification, "the notification"):
            check_signature(headers.get("Stripe-Signature", ""), body, now)
            event = read_strict_json(body)
            if event["type"] not in (*_SESSION_EVENTS, *_STANDING_EVENTS):
                return None
            subject = object_in(object_in(event, "data"), "object")
            named = text_in(event, "id", longest=LONGEST_ID)
            if event["type"] in _SESSION_EVENTS:
                return _statement(subject, notification_id=named)
            if subject.get("payment_intent") is None:
                return None  # money that did not come by a session
            intent = text_in(subject, "payment_intent")
        standing = call_provider(self.name, lambda _: _standing(intent))
        if standing and event["type"] == "refund.failed":
            with refusing_malformed(BadNotification, "the notification"):
                cents = cents_in(subject, "amount")
            number = str((subject.get("metadata") or {}).get("number", ""))
            failed: Any = {"refund_number": number, "failed_cents": cents}
            standing = replace(standing, refund_failed=True, **failed)
        return standing and replace(standing, notification_id=named)

    def query(self, reference: str, *, provider_reference: str = "") -> Statement:
        """Return the state of a session; without its id nobody has got its page."""
        if not provider_reference:
            return Statement(reference, ChargeState.CLOSED, 0)
        with _errors():
            session = _client().v1.checkout.sessions.retrieve(provider_reference)
        return statement_about(reference, lambda: _statement(session.to_dict()))

    def refund(self, refund: Refund) -> bool:
        """Refund money of a session once; refunds that staff made at Stripe count too.

        What other numbers of ours have refunded, or are about to, is of other shares.
        """
        with _errors():
            client = _client()
            session = client.v1.checkout.sessions.retrieve(refund.provider_reference)
            intent = session.payment_intent
            if not isinstance(intent, str):
                raise ProviderUnavailable(f"session {refund.provider_reference} was not paid")
            made = _refunds(client, intent)
            ours = [it for it in made if _number(it) == refund.number]
            theirs = [it for it in made if not _is_sibling(it, refund)]
            if not ours and not any(it["status"] == "pending" for it in theirs):
                gone = _succeeded(made)
                if refund.gone_cents < gone < refund.charged_cents:
                    raise PartlyRefunded(gone, _numbers(made))
                if gone < refund.charged_cents:
                    ours = [_refunded(client, intent, refund)]
                    made += ours
                    theirs += ours
        gone, is_done = _succeeded(made), any(it["status"] == "succeeded" for it in ours)
        enough = refund.gone_cents + refund.amount_cents
        if gone >= refund.charged_cents or (is_done and gone >= enough):
            return True
        if ours and not any(it["status"] == "pending" for it in theirs):
            # Ours has failed, and would again, or a part by hand has: staff refunds at Stripe.
            raise RefundRefused(f"refund {ours[0]['id']} is {ours[0]['status']}, a part is left")
        return False

    def list_movements(self, day: dt.date) -> Iterator[Movement]:
        """Return the charges and refunds of a day in the shop's time zone."""
        start, end = bounds_of_day(day)
        params: Any = {
            "created": {"gte": int(start.timestamp()), "lt": int(end.timestamp())},
            "limit": 100,
        }
        with _errors():
            client = _client()
            for charge in _pages(client.v1.charges.list, params):
                if charge["paid"]:
                    yield _movement(MoneyDirection.PAYMENT, charge)
            # A refund that staff made at Stripe does not name our reference; its charge does.
            with_charge = params | {"expand": ["data.charge"]}
            for refund in _pages(client.v1.refunds.list, with_charge):
                if refund["status"] not in ("failed", "canceled"):
                    yield _movement(MoneyDirection.REFUND, refund)


def _client() -> stripe.StripeClient:
    return stripe.StripeClient(
        settings.SECKILL_STRIPE_SECRET_KEY,
        base_addresses={"api": settings.SECKILL_STRIPE_URL},
        http_client=_Calls(),
        max_network_retries=0,
    )


@contextmanager
def _errors() -> Iterator[None]:
    """Turn errors of the SDK into ours, without its texts, which may quote a part of the key."""
    try:
        yield
    except _REFUSALS as error:
        raise Refused("stripe", error.code or type(error).__name__) from None
    except stripe.StripeError as error:
        why = f"stripe: {type(error).__name__} {error.http_status} {error.code}"
        raise ProviderUnavailable(why) from None


def _standing(intent: str) -> Statement | None:
    """Return what became of the money of a payment, if it is one of ours."""
    with _errors():
        client = _client()
        found = client.v1.payment_intents.retrieve(intent).to_dict()
        made = _refunds(client, intent)
        disputes = client.v1.disputes.list({"payment_intent": intent}).data
    named = found.get("metadata") or {}
    if "reference" not in named:
        return None
    gone = _succeeded(made)
    with refusing_malformed(ProviderUnavailable, f"the answer about {intent}"):
        received = cents_in(found, "amount_received")
        return Statement(
            reference_in(named, "reference"),
            ChargeState.PAID if gone < received else ChargeState.CLOSED,
            received,
            currency=currency_in(found, "currency"),
            refunded_cents=gone,
            numbers=_numbers(made),
            disputed=any(it.status not in _WON for it in disputes),
        )


def _refunds(client: stripe.StripeClient, intent: str) -> list[dict[str, Any]]:
    found = client.v1.refunds.list({"payment_intent": intent, "limit": 100})
    return [it.to_dict() for it in found.data]


def _succeeded(refunds: Iterable[Mapping[str, Any]]) -> int:
    return sum(it["amount"] for it in refunds if it["status"] == "succeeded")


def _numbers(refunds: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    succeeded = (_number(it) for it in refunds if it["status"] == "succeeded")
    return frozenset(it for it in succeeded if it)


def _number(refund: Mapping[str, Any]) -> str | None:
    """Return our number of a refund; earlier releases wrote only the reference."""
    named = refund.get("metadata") or {}
    return named.get("number") or named.get("reference")


def _is_sibling(made: Mapping[str, Any], refund: Refund) -> bool:
    """Return whether this is our refund of another share of the same charge."""
    number = _number(made) or ""
    return number.startswith(refund.reference) and number != refund.number


def _refunded(client: stripe.StripeClient, intent: str, refund: Refund) -> dict[str, Any]:
    # Stripe repeats even an error for the same key, so that a refusal would last a day. Our number
    # in the metadata is what prevents a second refund.
    hour = int(database_now().timestamp()) // 3600
    options: Any = {"idempotency_key": f"refund-{refund.number}-{hour}"}
    params: Any = {
        "payment_intent": intent,
        "amount": refund.amount_cents,
        "metadata": {"reference": refund.reference, "number": refund.number},
    }
    try:
        return client.v1.refunds.create(params, options).to_dict()
    except stripe.InvalidRequestError as error:
        raise RefundRefused(f"stripe: {error.code}") from None


def _pages(fetch: Any, params: Any) -> Iterator[dict[str, Any]]:
    for item in fetch(params).auto_paging_iter():
        yield item.to_dict()


def _movement(kind: MoneyDirection, item: Mapping[str, Any]) -> Movement:
    charge = item if kind is MoneyDirection.PAYMENT else item.get("charge") or {}
    reference = (charge.get("metadata") or {}).get("reference") or item["id"]
    return Movement(kind, reference, item["amount"], item["currency"].upper())


def check_signature(header: str, body: bytes, now: dt.datetime) -> None:
    """Check that Stripe has signed this body in these minutes.

    The SDK does not say which time it has checked, and compares it with this machine's clock.

    :raises BadNotification: none of our secrets signed it, or not at this time.
    """
    for secret in settings.SECKILL_STRIPE_WEBHOOK_SECRETS:
        with suppress(stripe.SignatureVerificationError):
            stripe.WebhookSignature.verify_header(body, header, secret)
            signed = next(it for it in header.split(",") if it.startswith("t="))  # as the SDK does
            check_time(seconds_of(signed.removeprefix("t=")), now)
            return
    raise BadNotification("the signature is wrong")


def _statement(session: Mapping[str, Any], *, notification_id: str = "") -> Statement:
    """Return what a session's object says.

    :raises KeyError: a field is missing.
    :raises ValueError: a field is malformed, or the session is of another shop.
    """
    state = ChargeState.OPEN
    if session.get("status") == "expired":
        state = ChargeState.CLOSED
    elif session.get("status") == "complete" and session.get("payment_status") == "paid":
        state = ChargeState.PAID
    return Statement(
        reference_in(session, "client_reference_id"),
        state,
        cents_in(session, "amount_total"),
        provider_reference=text_in(session, "id"),
        currency=currency_in(session, "currency"),
        notification_id=notification_id,
    )
