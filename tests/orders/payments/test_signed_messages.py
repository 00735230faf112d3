"""Messages that a provider has signed, with values that it never sends."""

from __future__ import annotations

import copy
import hashlib
import hmac
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from hypothesis import HealthCheck, given
from hypothesis import settings as effort
from hypothesis import strategies as st

from orders.models import HandledNotification, Payment, PaymentStatus
from orders.payments.reading import LARGEST_CENTS, TOLERANCE_S
from tests.support.orders import make_sale
from tests.support.payments import make_unpaid_order, notify_url, status_of
from tests.support.stand_ins.lives import charged, everywhere, opened, over_http
from tests.support.stand_ins.server import Headers, StandIn
from tests.support.stand_ins.stripe import SECRET, StripeStandIn
from tests.support.tiers import slow_after

pytestmark = pytest.mark.django_db

HALF_A_PAIR = "\ud800"
NASTY: list[Any] = [
    None, True, -1, 0, 1.5, 10**400, LARGEST_CENTS + 1, "", "x" * 5_000, "9" * 400, "1E+1000000000",
    "1e999999999", "NaN", "０００", "ß", HALF_A_PAIR, f"a{HALF_A_PAIR}", "\0", [], {}, ["paid"],
    {"paid": 1}, "ok\nok",
]  # fmt: skip
ANYTHING = st.sampled_from(NASTY) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=4,
)
MEANT = {
    "reference", "state", "amount_cents", "client_reference_id", "status", "payment_status",
    "amount_total", "currency", "out_trade_no", "trade_status", "total_amount", "trade_state",
    "total",
}  # fmt: skip
"""The fields that together say: this charge is paid."""

Path = tuple[str, ...]


def leaves(message: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield every field of a message, and what it is in."""
    if isinstance(message, dict):
        for name, value in message.items():
            yield (*path, name), value
            yield from leaves(value, (*path, name))


def changed(message: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    message = copy.deepcopy(message)
    at = message
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    return message


def said(message: dict[str, Any]) -> dict[Path, Any]:
    return {path: value for path, value in leaves(message) if path[-1] in MEANT}


def post(client: Client, at: StandIn, headers: Headers, body: bytes) -> int:
    kind = headers.get("Content-Type", "application/json")
    answer = client.post(notify_url(at.name), body, content_type=kind, headers=headers)
    return answer.status_code


@everywhere
@pytest.mark.parametrize("state", slow_after(1, ["open", "closed", "paid"]))
def test_signed_message_never_fails_nor_pays_unpaid(
    at: StandIn, state: str, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    order = make_unpaid_order(make_sale())
    payment = opened(at, order)
    if state == "paid":
        at.pay(payment.reference)
    elif state == "closed":
        at.end(payment.reference)
    message = at.message(payment.reference)
    fields = [path for path, _ in leaves(message)]
    if state == "paid":  # only what would change what is said
        fields = [path for path in fields if said(changed(message, path, "")) != said(message)]

    @effort(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
    @given(path=st.sampled_from(fields), value=ANYTHING)
    def send(path: Path, value: Any) -> None:
        HandledNotification.objects.all().delete()
        Payment.objects.update(status=PaymentStatus.OPEN)
        other = changed(message, path, value)
        try:
            headers, body = at.signed(other, at_s=timezone.now().timestamp())
        except UnicodeEncodeError:
            return  # this provider's protocol cannot carry it
        assert post(client, at, headers, body) in (200, 400)
        assert status_of(order) == "unpaid", other

    send()
    assert not [it for it in caplog.records if it.exc_info or it.levelno >= logging.ERROR]


@over_http
def test_signed_message_about_refunds_never_fails(
    at: StandIn, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    _, payment = charged(at)
    at.refund_by_hand(payment.reference, 3_000)
    message = at.money_message(payment.reference, "money")
    fields = [path for path, _ in leaves(message)]

    @effort(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
    @given(path=st.sampled_from(fields), value=ANYTHING)
    def send(path: Path, value: Any) -> None:
        HandledNotification.objects.all().delete()
        try:
            headers, body = at.signed(
                changed(message, path, value), at_s=timezone.now().timestamp()
            )
        except UnicodeEncodeError:
            return
        # 503: there is no such charge to ask about.
        assert post(client, at, headers, body) in (200, 400, 503)
        payment.refresh_from_db()
        assert 0 <= payment.refunded_cents <= payment.paid_cents

    send()
    ours = [it for it in caplog.records if it.name != "django.request"]  # which names each 503
    assert not [it for it in ours if it.exc_info or it.levelno >= logging.ERROR]


@over_http
def test_signed_time_of_400_digits_is_refused(at: StandIn, client: Client) -> None:
    order, payment = charged(at)
    message = at.message(payment.reference)
    try:
        headers, body = at.signed(message, at_s=int("9" * 400))
    except OverflowError:
        headers, body = at.signed({**message, "notify_time": "9" * 400}, at_s=0)
    assert post(client, at, headers, body) == 400
    assert status_of(order) == "unpaid"


# --- Stripe's signature ---------------------------------------------------------------------------


def signature_of(body: bytes, time: str) -> str:
    signed = f"{time}.".encode() + body
    return hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()


@pytest.mark.parametrize("at", [StripeStandIn], indirect=True)
@pytest.mark.parametrize(
    "header",
    slow_after(
        1,
        [
            "xt={now},t={old},v1={old_signature}",
            "t={now},t={old},v1={old_signature}",
            "t={old},v1={old_signature}",
            "t={now},v1=é",
            "t={now},v1=",
            "t=é,v1=é",
            "é",
            "",
            "t={now}",
            "t={now},v0={signature}",
            "T={now},v1={signature}",
            "t={wide},v1={signature}",
        ],
    ),
)
def test_header_that_signs_no_present_time_is_refused(
    at: StandIn, header: str, client: Client
) -> None:
    order, payment = charged(at)
    now_s = int(timezone.now().timestamp())
    now, old = str(now_s), str(now_s - TOLERANCE_S - 60)
    body = json.dumps(at.message(payment.reference)).encode()
    written = header.format(
        now=now,
        old=old,
        wide=now.translate({ord(it): ord(it) + 0xFEE0 for it in "0123456789"}),
        signature=signature_of(body, now),
        old_signature=signature_of(body, old),
    )
    assert post(client, at, {"Stripe-Signature": written}, body) == 400
    assert status_of(order) == "unpaid"


@pytest.mark.parametrize("at", [StripeStandIn], indirect=True)
def test_one_of_two_signatures_is_enough(at: StandIn, client: Client) -> None:
    """Stripe signs with the old secret and the new one, while both are valid."""
    order, payment = charged(at)
    now = str(int(timezone.now().timestamp()))
    body = json.dumps(at.message(payment.reference)).encode()
    header = f"t={now},v0=00,v1={'0' * 64},v1={signature_of(body, now)}"
    assert post(client, at, {"Stripe-Signature": header}, body) == 200
    assert status_of(order) == "paid"
