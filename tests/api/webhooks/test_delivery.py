"""Delivering events to real receivers: at least once, in order, and nobody waits for others."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from ipaddress import ip_network
from typing import Any

import pytest
from django.utils import timezone
from standardwebhooks.webhooks import Webhook

from api.models import Topic, WebhookDelivery, WebhookEndpoint
from api.webhooks import client, delivery, planning
from api.webhooks.delivery import RETRY_AFTER_S, send_webhooks
from api.webhooks.endpoints import DISABLE_AFTER, enable, needing_attention, resend
from api.webhooks.planning import KEPT_FOR, delete_old_deliveries, plan_deliveries
from locks import RedisLock
from orders.lifecycle.redemption import redeem
from orders.lifecycle.transitions import Actor
from orders.models import OrderEvent, VoucherOrder
from seckill_site.failpoints import FailpointReached, armed
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.api import Receiver, answer, make_endpoint, receiver
from tests.support.orders import at_once, make_sale
from tests.support.payments import make_unpaid_order, pay, use_and_undo
from vouchers.models import SaleStage, SeckillVoucher

pytestmark = pytest.mark.django_db(transaction=True)

State = WebhookDelivery.State


@pytest.fixture(autouse=True)
def loopback_allowed(settings: Any) -> None:
    settings.SECKILL_WEBHOOK_HTTP = True
    settings.SECKILL_WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8"), ip_network("::1/128")]


@pytest.fixture
def receivers() -> Iterator[list[Receiver]]:
    """Two receivers."""
    with ExitStack() as stack:
        yield [stack.enter_context(receiver()) for _ in range(2)]


@pytest.fixture
def it(receivers: list[Receiver]) -> Receiver:
    return receivers[0]


def send() -> None:
    """Send what is due, in a thread of its own: after a browser, this one has an event loop."""
    (failure,) = at_once(send_webhooks)
    if isinstance(failure, BaseException):
        raise failure


def paid_order(sale: SeckillVoucher | None = None) -> VoucherOrder:
    order = make_unpaid_order(sale or make_sale())
    pay(order)
    order.refresh_from_db()
    return order


def use(order: VoucherOrder) -> None:
    redeem(code=order.code or "", by=Actor.staff(None), now=timezone.now())


def states(endpoint: WebhookEndpoint) -> list[str]:
    found = WebhookDelivery.objects.filter(endpoint=endpoint).order_by("event")
    return list(found.values_list("state", flat=True))


def make_due() -> None:
    """Let the time of every retry have come."""
    WebhookDelivery.objects.filter(state=State.WAITING).update(next_at=timezone.now())
    WebhookEndpoint.objects.update(paused_until=None)


# --- What is told ---------------------------------------------------------------------------------


def test_paid_and_used_are_told_once(it: Receiver) -> None:
    endpoint = make_endpoint(it.url)
    order = paid_order()
    use(order)

    send()
    send()

    assert [message.json["type"] for message in it.got] == ["order.paid", "order.used"]
    assert [message.json["data"]["order_id"] for message in it.got] == [str(order.pk)] * 2
    for message in it.got:
        Webhook(endpoint.secret).verify(message.body, message.headers)
    assert states(endpoint) == [State.DELIVERED] * 2


def test_undone_use_is_told_by_its_own_name(it: Receiver) -> None:
    make_endpoint(it.url)
    order = paid_order()
    use_and_undo(order)

    send()

    told = [(message.json["type"], message.json["data"]["status"]) for message in it.got]
    assert told == [("order.paid", "paid"), ("order.used", "used"), ("order.unused", "paid")]


def test_endpoint_gets_its_topics_alone(it: Receiver) -> None:
    make_endpoint(it.url, topics=[Topic.USED.value])
    use(paid_order())

    send()

    assert [message.json["type"] for message in it.got] == ["order.used"]


def test_inactive_endpoint_gets_nothing(it: Receiver) -> None:
    make_endpoint(it.url, active=False)
    paid_order()
    send()
    assert it.got == []


def test_rehearsal_is_told_to_nobody(it: Receiver) -> None:
    make_endpoint(it.url)
    order = paid_order()
    SeckillVoucher.objects.filter(pk=order.seckill_voucher_id).update(stage=SaleStage.REHEARSAL)

    send()

    assert it.got == []
    assert not OrderEvent.objects.filter(webhooks_due=True).exists()


def test_look_plans_a_bounded_number_of_events(
    it: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_endpoint(it.url)
    for _ in range(3):
        paid_order()
    monkeypatch.setattr(planning, "EVENTS_AT_ONCE", 1)
    for planned in (1, 2, 3):
        plan_deliveries(now=timezone.now())
        assert WebhookDelivery.objects.count() == planned


def test_event_planned_twice_is_delivered_once(it: Receiver) -> None:
    """A planner that died after writing deliveries, and one that overtook it."""
    make_endpoint(it.url)
    order = paid_order()
    plan_deliveries(now=timezone.now())
    order.events.filter(after="paid").update(webhooks_due=True)

    send()

    assert len(it.got) == 1


# --- Faults ---------------------------------------------------------------------------------------


def test_worker_that_dies_after_sending_sends_again_with_the_same_id(it: Receiver) -> None:
    endpoint = make_endpoint(it.url)
    paid_order()

    with armed("webhook.sent=raise"), pytest.raises(FailpointReached):
        send()
    assert states(endpoint) == [State.WAITING]
    send()

    first, second = it.got
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    assert states(endpoint) == [State.DELIVERED]


def test_failure_is_retried_with_the_same_id(it: Receiver) -> None:
    endpoint = make_endpoint(it.url)
    paid_order()
    it.respond = answer(503, b"later")
    send()
    send()  # not before its time
    row = WebhookDelivery.objects.get()
    assert (len(it.got), row.state, row.status, row.answer) == (1, State.WAITING, 503, "later")
    assert row.tried_at is not None
    assert row.next_at == row.tried_at + dt.timedelta(seconds=RETRY_AFTER_S[0])

    it.respond = answer(200)
    make_due()
    send()

    assert len(set(it.ids)) == 1
    assert states(endpoint) == [State.DELIVERED]
    endpoint.refresh_from_db()
    assert endpoint.failing_since is None


@pytest.mark.slow
def test_delivery_is_given_up_after_days(it: Receiver) -> None:
    endpoint = make_endpoint(it.url)
    paid_order()
    it.respond = answer(500)
    for _ in range(len(RETRY_AFTER_S) + 1):
        make_due()
        send()

    assert states(endpoint) == [State.FAILED]
    assert len(it.got) == len(RETRY_AFTER_S) + 1
    assert sum(RETRY_AFTER_S) > 24 * 3600
    make_due()
    send()
    assert len(it.got) == len(RETRY_AFTER_S) + 1


def test_endpoint_that_fails_for_days_is_disabled(it: Receiver) -> None:
    endpoint = make_endpoint(it.url, failing_since=timezone.now() - DISABLE_AFTER)
    paid_order()
    it.respond = answer(500)

    send()

    endpoint.refresh_from_db()
    assert not endpoint.active
    assert list(needing_attention()) == [endpoint]

    it.respond = answer(200)
    endpoint.active = True
    enable(endpoint)
    endpoint.save()
    make_due()
    send()
    assert states(endpoint) == [State.DELIVERED], "what waited is sent"


def test_receiver_that_is_gone_is_disabled_at_once(it: Receiver) -> None:
    endpoint = make_endpoint(it.url)
    paid_order()
    it.respond = answer(410)
    send()
    endpoint.refresh_from_db()
    assert (endpoint.active, needing_attention().count()) == (False, 1)


def test_unreachable_endpoint_pauses_whatever_waits() -> None:
    endpoint = make_endpoint("http://127.0.0.1:1/")
    paid_order()
    send()
    paid_order()
    send()

    tried = WebhookDelivery.objects.filter(endpoint=endpoint).order_by("event")
    assert [it.tries for it in tried] == [1, 0]
    endpoint.refresh_from_db()
    assert endpoint.paused_until is not None


def test_staff_can_send_again(it: Receiver) -> None:
    make_endpoint(it.url)
    paid_order()
    send()

    resend(WebhookDelivery.objects.all(), now=timezone.now())
    send()

    assert (len(it.got), len(set(it.ids))) == (2, 1)


# --- Order ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_later_event_of_an_order_waits_for_the_earlier(it: Receiver) -> None:
    endpoint = make_endpoint(it.url)
    sale = make_sale(stock=5)
    order, other = paid_order(sale), paid_order(sale)
    it.respond = answer(500)
    send()
    it.respond = answer(200)
    use(order)
    WebhookDelivery.objects.filter(order=other).update(next_at=timezone.now())
    send()

    assert [(m.json["data"]["order_id"], m.json["type"]) for m in it.got[2:]] == [
        (str(other.pk), "order.paid")
    ]
    make_due()
    send()
    assert [m.json["type"] for m in it.got[3:]] == ["order.paid", "order.used"]
    assert states(endpoint) == [State.DELIVERED] * 3


# --- Nobody waits for others ----------------------------------------------------------------------


@pytest.mark.slow
def test_slow_endpoint_delays_no_other(
    receivers: list[Receiver], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow one answers when the fast one has everything: no clock decides this test."""
    monkeypatch.setattr(client, "TIMEOUT_S", 60)
    slow, fast = receivers
    count = delivery.AT_ONCE * 3
    all_received = threading.Event()
    in_time: list[bool] = []

    def respond_fast(handler: Any) -> None:
        answer(200)(handler)
        if len(fast.got) == count:
            all_received.set()

    def respond_slow(handler: Any) -> None:
        in_time.append(all_received.wait(30))
        answer(200)(handler)

    slow.respond, fast.respond = respond_slow, respond_fast
    make_endpoint(slow.url)
    make_endpoint(fast.url)
    sale = make_sale(stock=40)
    for _ in range(count):
        paid_order(sale)
    send()

    assert len(set(fast.ids)) == count
    assert in_time[: delivery.AT_ONCE] == [True] * delivery.AT_ONCE


def test_only_one_process_sends(it: Receiver) -> None:
    make_endpoint(it.url)
    paid_order()
    with RedisLock(ledger_connection(), "lock:webhooks", lease_ms=60_000):
        send()
        assert it.got == []
    send()
    assert len(it.got) == 1


def test_order_path_writes_no_delivery(django_assert_num_queries: Any) -> None:
    """An order that nobody has paid is told to nobody, so its event is not marked."""
    make_unpaid_order(make_sale())
    assert not OrderEvent.objects.filter(webhooks_due=True).exists()
    with django_assert_num_queries(1):
        plan_deliveries(now=timezone.now())


# --- The log --------------------------------------------------------------------------------------


def test_old_rows_are_deleted_but_for_those_that_wait(it: Receiver) -> None:
    make_endpoint(it.url)
    paid_order()
    send()
    waiting = WebhookDelivery.objects.get()
    now = timezone.now()

    assert delete_old_deliveries(now=now) == 0
    WebhookDelivery.objects.filter(pk=waiting.pk).update(state=State.WAITING)
    assert delete_old_deliveries(now=now + 2 * KEPT_FOR) == 0
    WebhookDelivery.objects.filter(pk=waiting.pk).update(state=State.DELIVERED)
    assert delete_old_deliveries(now=now + 2 * KEPT_FOR) == 1
