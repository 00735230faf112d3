"""The sandbox: its books, its signed notifications over real HTTP, and its page."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from celery import current_app
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from orders import tasks
from orders.models import Payment, SandboxTrade
from orders.payments import sandbox
from orders.payments.providers import (
    BadNotification,
    Charge,
    ChargeState,
    ProviderUnavailable,
    Refund,
    Statement,
)
from orders.payments.sandbox import (
    PAUSES_S,
    SIGNATURE_HEADER,
    Choice,
    NotOpen,
    Sandbox,
    decide,
    notify,
)
from seckill_site.celery import app
from tests.fixtures.site import CLOSED_PORT
from tests.support.inspection import assert_conserved, broker_client, broker_length
from tests.support.orders import PRICE_CENTS, at_once, make_sale, race
from tests.support.payments import (
    ADDRESSES,
    choose_outcome,
    make_payment,
    make_unpaid_order,
    notify_url,
    sign_body,
    status_of,
)

pytestmark = pytest.mark.django_db

State = SandboxTrade.State
HTML = "text/html"


def a_charge(**changes: Any) -> Charge:
    facts = {
        "reference": "a1b2",
        "amount_cents": PRICE_CENTS,
        "subject": "火锅 hotpot",
        "opened_at": timezone.now(),
        "pay_by": timezone.now() + dt.timedelta(minutes=15),
        "return_url": ADDRESSES["return_url"],
        "notify_url": ADDRESSES["notify_url"],
    }
    return Charge(**{**facts, **changes})


def a_trade(state: str = State.OPEN, *, seconds_left: int = 600, **changes: Any) -> SandboxTrade:
    charge = a_charge(pay_by=timezone.now() + dt.timedelta(seconds=seconds_left), **changes)
    names = ("reference", "amount_cents", "subject", "pay_by", "return_url", "notify_url")
    return SandboxTrade.objects.create(**{it: getattr(charge, it) for it in names}, state=state)


def page_of(trade: SandboxTrade) -> str:
    return reverse("sandbox", args=[trade.reference])


def state_in_books(trade: SandboxTrade) -> str:
    trade.refresh_from_db()
    return trade.state


# --- The books -----------------------------------------------------------------------------------


def test_charge_has_one_address_at_the_shops_host() -> None:
    charge = a_charge(return_url="https://shop.example:8443/vouchers/1/orders/2/?x=1")
    urls = {Sandbox().create(charge).pay_url for _ in range(3)}
    assert urls == {"https://shop.example:8443/sandbox/a1b2/"}
    (trade,) = SandboxTrade.objects.all()
    assert (trade.amount_cents, trade.subject) == (PRICE_CENTS, "火锅 hotpot")
    assert (trade.pay_by, trade.state) == (charge.pay_by, "open")


def test_long_subject_is_cut() -> None:
    Sandbox().create(a_charge(subject="券" * 300))
    assert SandboxTrade.objects.get().subject == "券" * 200


@pytest.mark.parametrize(
    ("state", "seconds_left", "said"),
    [
        (State.OPEN, 600, ChargeState.OPEN),
        (State.OPEN, -1, ChargeState.CLOSED),
        (State.PAID, 600, ChargeState.PAID),
        (State.PAID, -1, ChargeState.PAID),
        (State.CLOSED, 600, ChargeState.CLOSED),
        (State.REFUNDED, 600, ChargeState.CLOSED),
    ],
)
def test_query_returns_the_state_in_the_books(
    state: str, seconds_left: int, said: ChargeState
) -> None:
    trade = a_trade(state, seconds_left=seconds_left)
    assert Sandbox().query("a1b2") == Statement("a1b2", said, PRICE_CENTS, str(trade.pk))


def test_unknown_charge_is_closed() -> None:
    assert Sandbox().query("nobody") == Statement("nobody", ChargeState.CLOSED, 0)


def test_charge_reported_closed_cannot_be_paid() -> None:
    """Not even with an earlier clock reading: the shop does not ask again."""
    trade = a_trade(seconds_left=-1)
    before = timezone.now() - dt.timedelta(seconds=2)
    assert Sandbox().query("a1b2").state is ChargeState.CLOSED
    with pytest.raises(NotOpen):
        decide(reference="a1b2", choice=Choice.PAY, now=before)
    assert state_in_books(trade) == "closed"


def test_repeated_refund_moves_money_once() -> None:
    trade = a_trade(State.PAID)
    whole = Refund("a1b2", "a1b2", PRICE_CENTS, PRICE_CENTS)
    assert [Sandbox().refund(whole) for _ in range(3)] == [True] * 3
    assert state_in_books(trade) == "refunded"


def test_parts_go_back_once_each_by_their_numbers() -> None:
    trade = a_trade(State.PAID)
    first, second = (Refund("a1b2", it, PRICE_CENTS // 2, PRICE_CENTS) for it in ("a1b2", "a1b2_2"))
    for _ in range(2):
        assert Sandbox().refund(first)
        assert state_in_books(trade) == "paid"
    with pytest.raises(ProviderUnavailable):
        Sandbox().refund(Refund("a1b2", "a1b2_3", PRICE_CENTS, PRICE_CENTS))
    assert Sandbox().refund(second)
    assert state_in_books(trade) == "refunded"
    listed = list(Sandbox().list_movements(timezone.localdate()))
    assert [it.amount_cents for it in listed] == [PRICE_CENTS, PRICE_CENTS // 2, PRICE_CENTS // 2]


def test_charge_refunded_by_the_release_before_stays_so() -> None:
    a_trade(State.REFUNDED)
    assert Sandbox().refund(Refund("a1b2", "a1b2", PRICE_CENTS, PRICE_CENTS))
    listed = list(Sandbox().list_movements(timezone.localdate()))
    assert [it.amount_cents for it in listed] == [PRICE_CENTS, PRICE_CENTS]


@pytest.mark.parametrize(
    ("state", "reference", "amount_cents"),
    [
        (State.OPEN, "a1b2", PRICE_CENTS),
        (State.CLOSED, "a1b2", PRICE_CENTS),
        (State.PAID, "a1b2", PRICE_CENTS - 1),
        (State.REFUNDED, "a1b2", PRICE_CENTS + 1),
        (State.PAID, "nobody", PRICE_CENTS),
    ],
)
def test_refund_of_what_was_not_paid_is_refused(
    state: str, reference: str, amount_cents: int
) -> None:
    trade = a_trade(state)
    with pytest.raises(ProviderUnavailable):
        Sandbox().refund(Refund(reference, reference, amount_cents, amount_cents))
    assert state_in_books(trade) == state


# --- Deciding ------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", [State.PAID, State.CLOSED, State.REFUNDED])
@pytest.mark.parametrize("choice", [Choice.PAY, Choice.DECLINE])
def test_decided_charge_stays_decided(state: str, choice: Choice) -> None:
    trade = a_trade(state)
    with pytest.raises(NotOpen):
        decide(reference="a1b2", choice=choice, now=timezone.now())
    assert state_in_books(trade) == state


def test_expired_charge_cannot_be_paid() -> None:
    trade = a_trade()
    with pytest.raises(NotOpen):
        decide(reference="a1b2", choice=Choice.PAY, now=trade.pay_by)
    decide(reference="a1b2", choice=Choice.PAY, now=trade.pay_by - dt.timedelta(microseconds=1))


@race
def test_concurrent_decisions_succeed_once() -> None:
    trade, now = a_trade(), timezone.now()
    pay, decline = at_once(
        lambda: decide(reference="a1b2", choice=Choice.NEVER, now=now),
        lambda: decide(reference="a1b2", choice=Choice.DECLINE, now=now),
    )
    assert [type(it) for it in (pay, decline)].count(NotOpen) == 1
    assert state_in_books(trade) == ("closed" if isinstance(pay, NotOpen) else "paid")


# --- What it signs and reads ---------------------------------------------------------------------

GOOD_WORD = {"reference": "a1b2", "state": "paid", "amount_cents": PRICE_CENTS, "trade": "7"}


def read(content: Any) -> Statement:
    """Read a notification with a valid signature."""
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    headers, body = sign_body(body)
    return Sandbox().read_notification(headers=headers, body=body, now=timezone.now())


@pytest.mark.parametrize("state", ChargeState)
def test_signed_notification_is_read(state: ChargeState) -> None:
    said = Statement("a1b2", state, PRICE_CENTS, "7")
    assert read({**GOOD_WORD, "state": state}) == said


def test_changed_body_is_refused() -> None:
    headers, body = sign_body(json.dumps(GOOD_WORD).encode())
    for changed in (body.replace(b"8000", b"8001"), body + b" ", b"", body[:-1]):
        with pytest.raises(BadNotification, match="signature"):
            Sandbox().read_notification(headers=headers, body=changed, now=timezone.now())


@pytest.mark.parametrize("signature", [None, "", "0" * 64, "é" * 64, "\udcff", "a" * 10_000])
def test_malformed_signature_is_refused(signature: str | None) -> None:
    headers = {} if signature is None else {SIGNATURE_HEADER: signature}
    with pytest.raises(BadNotification, match="signature"):
        Sandbox().read_notification(
            headers=headers, body=json.dumps(GOOD_WORD).encode(), now=timezone.now()
        )


def test_signature_with_fallback_key_is_accepted(settings: Any) -> None:
    settings.SECKILL_SANDBOX_KEY = "the next key"
    headers, body = sign_body(json.dumps(GOOD_WORD).encode())
    settings.SECKILL_SANDBOX_KEY = "our key"
    settings.SECKILL_SANDBOX_KEY_FALLBACKS = ["the next key"]
    assert Sandbox().read_notification(headers=headers, body=body, now=timezone.now()).reference


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in GOOD_WORD.items() if name != key}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        json.dumps(GOOD_WORD).encode("utf-16"),
        b"null",
        b"[" * 60_000,
        b'{"amount_cents":' * 9_000,
        json.dumps(GOOD_WORD | {"x": float("nan")}).encode(),
        b'{"reference": "a1b2", "state": "paid", "trade": "7", "amount_cents": 1e400}',
        [GOOD_WORD],
        *map(without, GOOD_WORD),
        *({**GOOD_WORD, "amount_cents": it} for it in (True, -1, 2**31, 10**400, 1.0, "8000")),
        *({**GOOD_WORD, "state": it} for it in ("refunded", "PAID", "", None, ["paid"])),
        *(
            {**GOOD_WORD, "reference": it}
            for it in ("", "a" * 65, "a\n", "\ud800", "券", 7, ["a1b2"])
        ),
        *({**GOOD_WORD, "trade": it} for it in (7, None, "", "x" * 65)),
    ],
    ids=lambda content: repr(content)[:60],
)
def test_invalid_signed_body_is_refused(content: Any) -> None:
    with pytest.raises(BadNotification):
        read(content)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*GOOD_WORD, "x"]), inner),
    max_leaves=8,
)
with_odd_values = st.fixed_dictionaries(dict.fromkeys(GOOD_WORD, anything))


@pytest.mark.slow
@examples(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary() | anything | with_odd_values)
def test_fuzzed_body_is_read_or_refused(content: Any) -> None:
    with suppress(BadNotification):
        assert isinstance(read(content), Statement)


# --- Notifying over HTTP -------------------------------------------------------------------------


class Shop(BaseHTTPRequestHandler):
    """A shop that answers as the test says, and records what it receives."""

    status, answer = 200, b"success"
    heard: list[tuple[str, str, bytes]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.heard.append((self.path, self.headers[SIGNATURE_HEADER], body))
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.answer)))
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *args: Any) -> None:
        """Keep the tests' output quiet."""


@contextmanager
def a_shop(**answers: Any) -> Iterator[tuple[str, list[tuple[str, str, bytes]]]]:
    """Run a shop; yield its address and the requests it receives."""
    heard: list[tuple[str, str, bytes]] = []
    handler = type("ThisShop", (Shop,), {**answers, "heard": heard})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/heard", heard
        finally:
            server.shutdown()
            thread.join()


def test_notification_is_posted_signed_to_the_shop() -> None:
    with a_shop() as (url, heard):
        trade = a_trade(State.PAID, notify_url=url)
        assert notify(reference="a1b2", tries=1, now=timezone.now()) is None
    ((path, signature, body),) = heard
    assert path == "/heard"
    said = Sandbox().read_notification(
        headers={SIGNATURE_HEADER: signature}, body=body, now=timezone.now()
    )
    assert said == Statement("a1b2", ChargeState.PAID, PRICE_CENTS, str(trade.pk))


@pytest.mark.parametrize(
    "answers",
    [
        {"answer": b"OK"},
        {"answer": b""},
        {"answer": b"success!"},
        {"status": 201},
        {"status": 204, "answer": b""},
        {"status": 400},
        {"status": 503},
    ],
)
def test_other_answer_than_success_is_retried(answers: dict[str, Any]) -> None:
    with a_shop(**answers) as (url, heard):
        a_trade(State.PAID, notify_url=url)
        assert notify(reference="a1b2", tries=1, now=timezone.now()) == 5
    assert len(heard) == 1


def test_notification_pauses_grow_until_giving_up() -> None:
    a_trade(State.PAID, notify_url=f"http://127.0.0.1:{CLOSED_PORT}/")
    pauses_s = [notify(reference="a1b2", tries=tries, now=timezone.now()) for tries in range(1, 7)]
    assert pauses_s == [5, 15, 60, 300, None, None]
    assert PAUSES_S == (5, 15, 60, 300)


@pytest.mark.parametrize(
    ("state", "said"), [(State.CLOSED, ChargeState.CLOSED), (State.REFUNDED, ChargeState.CLOSED)]
)
def test_shop_is_notified_of_declined_charge(state: str, said: ChargeState) -> None:
    with a_shop() as (url, heard):
        a_trade(state, notify_url=url)
        assert notify(reference="a1b2", tries=1, now=timezone.now()) is None
    assert json.loads(heard[0][2])["state"] == said


def test_open_or_unknown_charge_sends_no_notification() -> None:
    with a_shop() as (url, heard):
        a_trade(State.OPEN, notify_url=url)
        assert notify(reference="a1b2", tries=1, now=timezone.now()) is None
        assert notify(reference="nobody", tries=1, now=timezone.now()) is None
    assert heard == []


def test_task_sends_again_after_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    published = []
    monkeypatch.setattr(
        sandbox, "publish_notification", lambda **arguments: published.append(arguments)
    )
    a_trade(State.PAID, notify_url=f"http://127.0.0.1:{CLOSED_PORT}/")
    for tries in range(1, 6):
        tasks.notify_from_sandbox(reference="a1b2", tries=tries)
    assert [(it["tries"], it["in_s"]) for it in published] == [(2, 5), (3, 15), (4, 60), (5, 300)]


# --- From the buyer's click to the paid order, over HTTP ------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_shop_accepts_notification_over_http(live_server: Any) -> None:
    sale = make_sale()
    order = make_unpaid_order(sale)
    addresses = {
        "return_url": f"{live_server}/orders/",
        "notify_url": f"{live_server}{notify_url()}",
    }
    payment = make_payment(order, addresses)
    assert Payment.objects.get().pay_url == f"{live_server}/sandbox/{payment.reference}/"
    choose_outcome(payment)
    assert notify(reference=payment.reference, tries=1, now=timezone.now()) is None
    assert status_of(order) == "paid"
    assert_conserved(sale)


# --- The page ------------------------------------------------------------------------------------


def choose_on_page(client: Client, trade: SandboxTrade, choice: str) -> Any:
    return client.post(page_of(trade), {"choice": choice}, headers={"Accept": HTML})


def test_page_shows_amount_and_that_no_money_moves(client: Client) -> None:
    trade = a_trade(subject="<script>火锅")
    response = client.get(page_of(trade), headers={"Accept": HTML, "Accept-Language": "en"})
    page = response.content.decode()
    assert response.status_code == 200
    for text in ("&lt;script&gt;火锅", "¥80.00", "No real money moves here."):
        assert text in page
    for choice in Choice:
        assert f'name="choice" value="{choice}"' in page
    assert response["Cache-Control"] == "private, no-store"
    assert "'unsafe-inline'" not in response["Content-Security-Policy"]
    for inline in ("<script", "<style", "style="):
        assert inline not in page


@pytest.mark.parametrize(
    ("choice", "state", "messages"),
    [
        ("pay", "paid", 1),
        ("twice", "paid", 2),
        ("late", "paid", 1),
        ("never", "paid", 0),
        ("decline", "closed", 1),
    ],
)
def test_choice_redirects_and_notifies_the_shop(
    client: Client, choice: str, state: str, messages: int
) -> None:
    trade = a_trade()
    response = choose_on_page(client, trade, choice)
    assert (response.status_code, response["Location"]) == (303, trade.return_url)
    assert state_in_books(trade) == state
    assert broker_length() + broker_client().hlen("unacked") == messages


@pytest.mark.parametrize(("choice", "in_s"), [("pay", [0]), ("twice", [0, 0]), ("late", [20])])
def test_shop_is_notified_at_the_chosen_time(
    client: Client, monkeypatch: pytest.MonkeyPatch, choice: str, in_s: list[int]
) -> None:
    published = []
    monkeypatch.setattr(current_app, "send_task", lambda name, **options: published.append(options))
    choose_on_page(client, a_trade(), choice)
    assert [it["headers"].get("pause_s", 0) for it in published] == in_s
    assert all(it["kwargs"] == {"reference": "a1b2", "tries": 1} for it in published)


@pytest.mark.usefixtures("broker_refuses")
def test_broker_down_is_no_error_for_the_buyer(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(app.amqp, "_producer_pool", None)  # that of the broker which was there
    trade = a_trade()
    assert choose_on_page(client, trade, "twice").status_code == 303
    assert state_in_books(trade) == "paid"
    assert caplog.text.count("the shop will ask") == 1


@pytest.mark.parametrize(
    ("state", "seconds_left", "says"),
    [
        (State.PAID, 600, "This payment has been made."),
        (State.PAID, -1, "This payment has been made."),
        (State.REFUNDED, 600, "This payment was refunded."),
        (State.REFUNDED, -1, "This payment was refunded."),
        (State.CLOSED, 600, "This payment was closed."),
        (State.CLOSED, -1, "The time to pay has run out."),
        (State.OPEN, -1, "The time to pay has run out."),
    ],
)
def test_closed_charge_page_leads_back(
    client: Client, state: str, seconds_left: int, says: str
) -> None:
    trade = a_trade(state, seconds_left=seconds_left)
    english = {"Accept": HTML, "Accept-Language": "en"}
    shown = client.get(page_of(trade), headers=english)
    tried = client.post(page_of(trade), {"choice": "pay"}, headers=english)
    assert (shown.status_code, tried.status_code) == (200, 409)
    for page in (shown.content.decode(), tried.content.decode()):
        assert says in page
        assert f'href="{trade.return_url}"' in page
        assert "<form" not in page
    assert (state_in_books(trade), broker_length()) == (state, 0)


@pytest.mark.parametrize("choice", ["", "PAY", "refund", "\0", "券", "pay "])
def test_unknown_choice_is_invalid(client: Client, choice: str) -> None:
    trade = a_trade()
    assert choose_on_page(client, trade, choice).status_code == 400
    assert client.post(page_of(trade), b"[]", content_type="application/json").status_code == 400
    assert state_in_books(trade) == "open"


def test_cross_site_choice_is_refused() -> None:
    trade = a_trade()
    response = choose_on_page(Client(enforce_csrf_checks=True), trade, "pay")
    assert response.status_code == 403
    assert state_in_books(trade) == "open"


@pytest.mark.parametrize("reference", ["nobody", "a" * 65, "a" * 5_000])
def test_unknown_charge_has_no_page(client: Client, reference: str) -> None:
    url = reverse("sandbox", args=[reference])
    assert client.get(url).json()["code"] == "not_found"
    assert client.post(url, {"choice": "pay"}).status_code == 404


def test_shop_without_sandbox_has_no_page(client: Client, settings: Any) -> None:
    settings.SECKILL_PAYMENT_PROVIDERS = ["tests.support.payments.FakeProvider"]
    trade = a_trade()
    assert client.get(page_of(trade)).status_code == 404
    assert choose_on_page(client, trade, "pay").status_code == 404
    assert state_in_books(trade) == "open"


def test_secondary_sandbox_keeps_its_page(client: Client, settings: Any) -> None:
    settings.SECKILL_PAYMENT_PROVIDERS = [
        "tests.support.payments.FakeProvider",
        "orders.payments.sandbox.Sandbox",
    ]
    assert client.get(page_of(a_trade())).status_code == 200


@pytest.mark.parametrize("method", ["put", "delete", "patch"])
def test_sandbox_page_refuses_other_methods(client: Client, method: str) -> None:
    response = getattr(client, method)(page_of(a_trade()))
    assert (response.status_code, response["Allow"]) == (405, "GET, HEAD, POST")
