"""Two beats side by side, as on two machines: nothing happens twice, and one of them may die.

Each sends every task, so passes overlap: while one sends mails, the next message comes to another
process of the worker.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import Q
from django.utils import timezone

from api.models import WebhookDelivery
from orders.lifecycle.transitions import Actor
from orders.models import Notice, OrderEvent, OrderStatus, Payment, PaymentStatus, VoucherOrder
from orders.payments import refunds
from orders.payments.refunds import refund_order
from orders.placing.publishing import publish_fulfilment
from tests.faults.conftest import with_inside
from tests.support import file_provider, noted
from tests.support.api import Receiver, answer, make_endpoint, receiver
from tests.support.draws import end, entered_draw
from tests.support.notices import make_notice, make_reader
from tests.support.orders import ids, make_buyers, make_sale, reserved
from tests.support.patience import Stalls, wait_for
from tests.support.payments import pay
from tests.support.stack import Process, Stack
from vouchers.models import Draw

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.concurrency,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("row_locks"),
]

EVERY_S = {"mail": 5.0, "notice": 5.0, "webhook": 2.0, "refund": 5.0, "draw": 2.0}
"""The intervals of the tasks that do these, from the settings."""

WORK_S = 3.0
"""The time for the work itself: a process takes the message, finds what is due, and does it."""

MANY, FEW = 30, 2


Due = dict[str, dict[str, float]]
"""When each task became due, by kind and by the person or row that it concerns."""


@dataclass
class World:
    """The shop's world outside: who is written to, who refunds, and what has been done so far."""

    directory: Path
    got: Receiver
    monkeypatch: pytest.MonkeyPatch
    readers: set[str] = field(default_factory=set)
    received: list[tuple[str, float]] = field(default_factory=list)

    def take(self, seconds: float, *, webhook_s: float) -> None:
        """Let a mail, a notice and a refund take so long, and a webhook so long."""
        noted.take(self.directory, seconds)
        respond = answer(200)

        def receive(handler: BaseHTTPRequestHandler) -> None:
            self.received.append((handler.headers["webhook-id"], time.time()))
            time.sleep(webhook_s)
            respond(handler)

        self.got.respond = receive

    # --- What becomes due ---

    def ask_for(self, count: int) -> Due:
        """Let so many mails, webhooks, notices and refunds become due, and a draw."""
        return {
            "mail": self._order(count),
            "webhook": {str(it.order_id): paid_at_s(it) for it in self._pay(count)},
            "notice": self._remind(count),
            "refund": self._refund(count),
            "draw": self._draw(),
        }

    def _order(self, count: int) -> dict[str, float]:
        orders = self._orders(make_readers(count))
        created = OrderEvent.objects.filter(order__in=orders, before="")
        return {
            address_of(it.order.user): it.at.timestamp()
            for it in created.select_related("order__user")
        }

    def _orders(self, buyers: list[User]) -> list[VoucherOrder]:
        sale = make_sale(stock=len(buyers))
        orders = VoucherOrder.objects.filter(pk__in=ids(reserved(sale, buyers)))
        publish_fulfilment(sale_id=sale.pk)
        wait_for(lambda: orders.count() == len(buyers), what="orders")
        return list(orders)

    def _pay(self, count: int) -> list[Payment]:
        """Pay orders, of which webhooks are told; their buyers have no address."""
        return [pay(it) for it in self._orders(make_buyers(count))]

    def _remind(self, count: int) -> dict[str, float]:
        sale, readers = make_sale(begins_in_s=300), make_readers(count)
        due_s = time.time()
        for reader in readers:
            make_notice(sale, reader)
        addresses = [address_of(it) for it in readers]
        self.readers.update(addresses)
        return dict.fromkeys(addresses, due_s)

    def _refund(self, count: int) -> dict[str, float]:
        """Start refunds of which only beat tells the provider."""
        due = {}
        for payment in self._pay(count):
            Payment.objects.filter(pk=payment.pk).update(provider=noted.Provider.name)
            with self.monkeypatch.context() as patch:
                patch.setattr(refunds, "finish_refund", lambda *_, **__: False)
                due[payment.reference] = time.time()
                refund_order(order_id=payment.order_id, by=Actor.staff(None), now=timezone.now())
        return due

    def _draw(self) -> dict[str, float]:
        """End a draw with two units, and an entry more."""
        sale, _ = entered_draw(make_readers(3), stock=2)
        end(sale)
        return {str(sale.pk): time.time()}

    # --- What was done ---

    def done(self) -> dict[str, list[tuple[str, float]]]:
        """Return what was done, by kind: the first word is who or what it was for; and when."""
        found: dict[str, list[tuple[str, float]]] = {kind: [] for kind in EVERY_S}
        for note in noted.read_notes(self.directory):
            is_notice = note.kind == "mail" and note.what.split()[0] in self.readers
            found["notice" if is_notice else note.kind].append((note.what, note.at_s))
        orders = {it.message_id: it.order_id for it in WebhookDelivery.objects.all()}
        found["webhook"] = [(f"{orders[it]} {it}", at) for it, at in self.received]
        drawn = Draw.objects.values_list("seckill_voucher", "closed_at")
        found["draw"] = [(str(pk), at.timestamp()) for pk, at in drawn if at]
        return found

    def is_all_done(self) -> bool:
        """Return whether nothing is due any more, by the rows."""
        waiting: list[Any] = [
            OrderEvent.objects.filter(Q(notified_at=None) | Q(webhooks_due=True)),
            WebhookDelivery.objects.filter(state=WebhookDelivery.State.WAITING),
            Notice.objects.filter(live=True),
            Payment.objects.filter(status=PaymentStatus.REFUNDING),
            Draw.objects.filter(Q(finished_at=None) | Q(told_to__isnull=False)),
        ]
        return not any(it.exists() for it in waiting)

    def doubled(self) -> dict[str, int]:
        """Return how often something was done again, by kind."""
        every = {kind: [what for what, _ in it] for kind, it in self.done().items()}
        return {kind: len(it) - len(set(it)) for kind, it in every.items()}

    def waited_s(self, due: Due) -> dict[str, float]:
        """Return how long the last one of each kind waited."""
        done = {kind: dict[str, float]() for kind in due}
        for kind, of_kind in self.done().items():
            for what, at_s in of_kind:
                done[kind].setdefault(what.split()[0], at_s)
        return {kind: max(done[kind][it] - at_s for it, at_s in due[kind].items()) for kind in due}


def make_readers(count: int) -> list[User]:
    return [make_reader() for _ in range(count)]


def paid_at_s(payment: Payment) -> float:
    return OrderEvent.objects.get(order=payment.order_id, after=OrderStatus.PAID).at.timestamp()


def address_of(user: User | None) -> str:
    assert user
    return f"{user.username}@example.com"


@pytest.fixture
def world(
    transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    with receiver() as got:
        make_endpoint(got.url)
        yield World(tmp_path, got, monkeypatch)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, Any]:
    return {
        **with_inside(tmp_path),
        "DJANGO_SETTINGS_MODULE": "tests.support.noted_settings",
        noted.NOTES: str(tmp_path),
        file_provider.BOOKS: str(tmp_path / "books"),
        "SECKILL_WEBHOOK_HTTP": "true",
        "SECKILL_WEBHOOK_NETWORKS": "127.0.0.0/8,::1/128",
    }


def start(stack: Stack, environ: dict[str, Any]) -> tuple[list[Process], list[Process]]:
    """Start workers for orders and for servers of others, and two beats."""
    outside = ["--queues", "payments,webhooks", "--hostname", "outside@%h"]
    with stack.together():
        workers = [
            stack.worker(*options, concurrency=6, **environ)
            for options in (["--queues", "celery"], outside)
        ]
        return workers, [stack.beat(**environ) for _ in range(2)]


def let_passes_overlap(world: World) -> None:
    """Let each pass take longer than its interval, so that the next one comes while it works."""
    world.take(1.2 * EVERY_S["mail"] / MANY, webhook_s=1.0)
    world.ask_for(MANY)
    wait_for(world.is_all_done, what="everything that was due")


def test_two_beats_do_nothing_twice(
    world: World, stack: Stack, environ: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    workers, beats = start(stack, environ)
    let_passes_overlap(world)

    world.take(0, webhook_s=0)
    waited: list[dict[str, float]] = []
    for number in range(4):
        stalls = Stalls()
        due = world.ask_for(FEW)
        if number == 1:
            beats[0].kill()
        wait_for(world.is_all_done, what="everything that was due")
        waited.append({k: it - stalls.seconds() for k, it in world.waited_s(due).items()})
    beats[1].kill()
    due = world.ask_for(FEW)
    time.sleep(max(EVERY_S.values()) + WORK_S)
    undone = {kind: set(of_kind) for kind, of_kind in due.items()}
    for kind, of_kind in world.done().items():
        undone[kind] -= {what.split()[0] for what, _ in of_kind}
    for worker in workers:
        worker.stop()

    longest = {kind: round(max(it[kind] for it in waited), 1) for kind in EVERY_S}
    done = {kind: len(it) for kind, it in world.done().items()}
    figures = f"done {done}, again {world.doubled()}, longest wait in seconds {longest}"
    sys.stderr.write(f"{figures}\n")
    request.node.add_report_section("call", "two beats", figures)
    assert not any(world.doubled().values())
    assert workers[0].text().count(": drawn, 2 of 3 entries win") == done["draw"]
    assert all(longest[kind] <= EVERY_S[kind] + WORK_S for kind in EVERY_S), waited
    assert undone == {kind: set(of_kind) for kind, of_kind in due.items()}  # the control: no beat


def test_without_the_locks_of_their_tasks_two_passes_write_twice(
    world: World, stack: Stack, environ: dict[str, Any], tmp_path: Path
) -> None:
    """The control."""
    (tmp_path / "together").touch()
    workers, _ = start(stack, environ)
    let_passes_overlap(world)
    for worker in workers:
        worker.stop()
    again = world.doubled()
    sys.stderr.write(f"without locks, done again: {again}\n")
    assert again["mail"] > 0
    assert again["webhook"] > 0
