"""R6: any error of the ledger's Redis, at any script of the shop, once or for long; nobody is lost.

One flow touches every script (:class:`Shop`). It runs in this process, because all scripts go
through one function (``locks.lua_script.send_once``), which is made to fail. Whoever is told
"unavailable" asks again, as a buyer's page or the staff would; beat sends its tasks again.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from django.contrib.auth.models import User
from django.db.models import F
from django.test import Client
from django.utils import timezone
from pytest_django import Settings
from redis import Redis, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from locks import lua_script
from locks.lua_script import Command, LuaScript, send_once
from orders import tasks
from orders.fulfilment import batch
from orders.fulfilment.reconcile import reconcile
from orders.fulfilment.retry import retry_order
from orders.fulfilment.unwritten import decide_unwritten
from orders.lifecycle.cancellation import Busy, user_lock
from orders.lifecycle.transitions import SYSTEM
from orders.models import OrderStatus, RoomVisit, VoucherOrder, WaitingEntry
from orders.payments.refunds import refund_order
from orders.placing import publishing
from orders.placing.tokens import PurchaseToken
from seckill_site.redis.ledger_connection import ledger_connection
from tests.faults.history import History, Outcome, Report
from tests.support.crowd import Answer
from tests.support.draws import end, listed, make_draw
from tests.support.orders import make_buyers, make_sale, tokens_for
from tests.support.patience import running_s
from tests.support.payments import choose_outcome, make_payment, notify_shop
from vouchers.catalogue.live_changes import close_room, open_room, resize_sale
from vouchers.inventory.batch_journal import Decision
from vouchers.inventory.holdings import known_buyer_call
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable, NotLoaded, send
from vouchers.inventory.rebuild import load_sale, rebuild_sale
from vouchers.inventory.request_stats import flush_request_counts, read_request_counts
from vouchers.inventory.reservations import StillPending
from vouchers.inventory.sale_state import Snapshot, snapshot
from vouchers.inventory.waiting_room import Visitor
from vouchers.models import Draw, SeckillVoucher

pytestmark = [
    pytest.mark.slow,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("row_locks"),
]

T = TypeVar("T")

RECOVERY_SECONDS = 15.0
STOCK, BUYERS = 8, 12

QUICK = {
    "SECKILL_KICK_MS": 100,
    "SECKILL_LEASE_MS": 450,
    "SECKILL_SWEEP_AGE_MS": 50,
    "SECKILL_SWEEP_PAUSE_MS": 100,
}
"""For the errors that come once: dozens of tasks fail, each of which beat sends again."""

# --- Errors and scripts ---------------------------------------------------------------------------

REPLIES = [
    "READONLY You can't write against a read only replica.",
    "NOREPLICAS Not enough good replicas to write.",
    "LOADING Redis is loading the dataset in memory",
    "MISCONF Redis is configured to save RDB snapshots, but it's unable to persist to disk.",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "NOSCRIPT No matching script. Please use EVAL.",
    "NOAUTH Authentication required.",
    "NOPERM this user has no permissions to run the 'evalsha' command",
    "CLUSTERDOWN The cluster is down",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "WRONGTYPE Operation against a key holding the wrong kind of value",
    "ERR unknown error",
]
ERRORS: dict[str, str | RedisError] = {
    **{text.partition(" ")[0]: text for text in REPLIES},
    "dropped before": RedisConnectionError("Connection closed by server."),
    "dropped after": RedisConnectionError("Connection closed by server."),
    "timeout": RedisTimeoutError("Timeout reading from socket"),
}
RUNS_FIRST = ("dropped after", "timeout")
"""The errors after which the script has run, and its answer is lost."""

SAMPLE = "dropped after"
LONG_SECONDS = 3.0

APPS = ["locks", "orders", "vouchers", "seckill_site", "api", "backoffice"]
ROOT = Path(lua_script.__file__).parents[1]
FOLDERS = {
    "locks": ROOT / "locks/lua",
    "placing": ROOT / "orders/placing/lua",
    "inventory": ROOT / "vouchers/inventory/lua",
}
SCRIPTS = {
    f"{folder}/{path.stem}": LuaScript(path)
    for folder, parent in FOLDERS.items()
    for path in parent.glob("*.lua")
}
NAMES = {key: name for name, it in SCRIPTS.items() for key in (it.sha, it.source)}

UNUSED = {
    "locks/acquire_fair": "the shop has no fair lock",
    "locks/release_fair": "the shop has no fair lock",
    "locks/leave_queue": "the shop has no fair lock",
    "locks/acquire_read": "the shop has no read-write lock",
    "locks/acquire_write": "the shop has no read-write lock",
    "locks/release_read": "the shop has no read-write lock",
    "locks/look": "the shop asks no lock whether it is held",
    "locks/pass_wake_up_on": "only who waits for several locks at once passes a wake-up on",
}
"""The scripts that the shop never calls, and why."""

USED = SCRIPTS.keys() - UNUSED.keys()


class Faults:
    """What the ledger answers instead of running a script: one error.

    It comes at the first call of the scripts in ``once``, for a while from the first call on of
    those in ``lasting``, and until ``storm_until`` at all of them.
    """

    def __init__(self, error: str) -> None:
        self.error = error
        self.calls: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.once = set(USED)
        self.lasting = frozenset[str]()
        self.storm_until = 0.0
        self._ends: dict[str, float] = {}
        self.ended_at = running_s()

    def send(self, client: Redis, *commands: Command) -> list[Any]:
        """Take the place of ``send_once``."""
        name = NAMES.get(str(commands[0][1])) if commands[0][0] in ("EVAL", "EVALSHA") else None
        if name is None:
            return send_once(client, *commands)
        self.calls[name] += 1
        now = running_s()
        if name in self.lasting:
            self._ends.setdefault(name, now + LONG_SECONDS)
        until = max(self.storm_until, self._ends.get(name, 0))
        if not (name in self.once or now < until):
            return send_once(client, *commands)
        if self.error == "NOSCRIPT" and commands[0][0] == "EVAL":
            return send_once(client, *commands)
        self.once.discard(name)
        self.failed[name] += 1
        self.ended_at = max(now, until)
        error = ERRORS[self.error]
        if isinstance(error, str):  # the server itself says it, to the client as it is
            reply = ("EVAL", "return redis.error_reply(ARGV[1])", 0, error)
            return send_once(client, *[reply] * len(commands))
        if self.error in RUNS_FIRST:
            send_once(client, *commands)
        raise error


# --- The flow -------------------------------------------------------------------------------------


class Shop:
    """A shop in this process: web, worker and beat, its buyers and staff, and a life of orders.

    Messages are in ``queue``. With ``repeats`` off beat sends nothing again: the control.
    """

    def __init__(
        self, faults: Faults, history: History, patch: pytest.MonkeyPatch, *, repeats: bool = True
    ) -> None:
        self.faults, self.history, self.repeats = faults, history, repeats
        self.storms = False
        self.patience_s = RECOVERY_SECONDS if repeats else 4.0
        self.queue: deque[int] = deque()
        self.poisoned: dict[int, bool] = {}
        patch.setattr(lua_script, "send_once", faults.send)
        patch.setattr(publishing, "publish", self._publish)
        make_row = batch._row

        def row(sale: Any, entry: Any, known: Any, reason: Any) -> Any:
            if entry.user_id in self.poisoned and (not reason or self.poisoned[entry.user_id]):
                raise ZeroDivisionError
            return make_row(sale, entry, known, reason)

        patch.setattr(batch, "_row", row)
        self.sale = make_sale(stock=STOCK, loaded=False)
        self.keys = LedgerKeys(self.sale.pk)
        self.users = make_buyers(BUYERS)
        self.tokens: list[PurchaseToken] = []
        self.orders_asked = 0

    def _publish(self, task_name: str, *, in_s: float = 0, **arguments: int) -> bool:
        if task_name == publishing.FULFIL_SALE:
            self.queue.append(arguments["sale_id"])
        return True

    # Who repeats what

    def again(self, call: Callable[[], T], *more: type[Exception]) -> T:
        """Call until it succeeds, as staff or a command would after "try again"."""
        found: list[T] = []

        def succeeds() -> bool:
            with suppress(LedgerUnavailable, NotLoaded, Busy, *more):
                found.append(call())
            return bool(found)

        self.wait(succeeds, what="success", working=False)
        return found[0]

    def ask(
        self,
        user: User | None,
        method: str,
        path: str,
        *,
        record: Callable[[Answer], None] | None = None,
        **options: Any,
    ) -> Answer:
        """Ask until the answer is no 503, as a page does; every answer is on record.

        A path without a slash at its beginning is one of the sale.
        """
        url = path if path.startswith("/") else f"/vouchers/{self.sale.pk}/{path}"
        client, answers = Client(), list[Answer]()
        if user:
            client.force_login(user)
        options["headers"] = {"Accept": "application/json", **options.get("headers", {})}

        def told() -> bool:
            start = time.monotonic()
            response = getattr(client, method)(url, **options)
            headers: Mapping[str, str] = {k.lower(): v for k, v in response.headers.items()}
            body = response.json()
            self.orders_asked += path == "orders/"
            answers.append(Answer(response.status_code, headers, body, time.monotonic() - start))
            (record or self.history.note)(answers[-1])
            return bool(response.status_code != 503)

        self.wait(told, what=f"an answer of {path}", working=False)
        return answers[-1]

    def order(self, token: PurchaseToken) -> Answer:
        """Order until told, and once more with the same token."""
        data = {"token": token.sign(), "attempt": 2}
        record = partial(self.history.record, self.sale, token.sign())
        for _ in range(2):
            answer = self.ask(None, "post", "orders/", data=data, record=record)
        return answer

    def work(self) -> None:
        """Let worker and beat do what is due; a task that fails is gone, and beat sends more."""
        for _ in range(len(self.queue)):
            with suppress(LedgerUnavailable):
                tasks.fulfil_sale(sale_id=self.queue.popleft())
        if not self.repeats:
            return
        for task in (tasks.sweep, tasks.watch_ledger, tasks.reconcile, tasks.expire):
            with suppress(LedgerUnavailable):
                task()
        tasks.restore_lines()
        tasks.finish_refunds()
        tasks.advance_draws()

    def wait(self, condition: Callable[[], object], *, what: str, working: bool = True) -> None:
        """Work until the condition holds, and note how long that took after the last fault."""
        start = running_s()
        while True:
            with suppress(LedgerUnavailable, NotLoaded):
                if condition():
                    break
            waited_s = running_s() - max(start, self.faults.ended_at)
            assert waited_s < self.patience_s, f"{what} did not come about"
            if working:
                self.work()
            time.sleep(0.01)
        if self.faults.ended_at > start:
            self.history.recoveries.append(max(0.0, running_s() - self.faults.ended_at))

    # What there is to see

    def is_known_at_the_front_door(self) -> bool:
        """Ask for the first buyer as ``me/`` does there."""
        visitor = Visitor(draw=0)
        send(known_buyer_call(sale_id=self.sale.pk, user_id=self.users[0].pk, visitor=visitor))
        return True

    def ledger(self) -> Snapshot:
        return snapshot(sale_id=self.sale.pk)

    def is_quiet(self) -> bool:
        return self.ledger().pending == 0 and reconcile(sale_id=self.sale.pk).difference == 0

    def has(self, status: OrderStatus, *tokens: PurchaseToken) -> bool:
        ids = [token.order_id for token in tokens]
        return VoucherOrder.objects.filter(pk__in=ids, status=status).count() == len(ids)

    # The flow

    def storm(self) -> None:
        """Let every script fail from now on for a while, if the test wants storms."""
        if self.storms:
            self.faults.storm_until = running_s() + LONG_SECONDS

    def open(self) -> None:
        self.again(partial(load_sale, sale_id=self.sale.pk))
        self.tokens = self.again(partial(tokens_for, self.sale, self.users))
        issued = self.ask(self.users[0], "get", "token/")
        assert issued.status == 200

    def sell_out(self) -> None:
        """Sell all units; the entry of one buyer fails, and that of another has no row at all."""
        self.poisoned = {self.users[0].pk: False, self.users[1].pk: True}
        self.storm()
        for token in self.tokens[:STOCK]:
            assert self.order(token).status == 202
        found = self.ask(self.users[0], "get", f"/me/?sale={self.sale.pk}")
        assert (found.status, found.body["sale"]["buyer_id"]) == (200, str(self.users[0].pk))
        self.wait(self.is_known_at_the_front_door, what="an answer to me/")
        self.storm()
        self.wait(
            lambda: (
                self.ledger().set_aside == 1
                and self.has(OrderStatus.REFUSED, self.tokens[0])
                and self.has(OrderStatus.UNPAID, *self.tokens[2:STOCK])
            ),
            what="rows of all, and two poisoned entries aside",
        )
        self.poisoned.clear()
        retry = partial(retry_order, order_id=self.tokens[0].order_id, now=timezone.now())
        self.again(retry, StillPending)
        decide = partial(decide_unwritten, sale_id=self.sale.pk, decision=Decision.RETRY)
        self.again(decide)
        self.wait(lambda: self.has(OrderStatus.UNPAID, *self.tokens[:STOCK]), what="rows of all")

    def read_receipts(self) -> None:
        ledger_connection().delete(*self.keys.copies)  # they expire soon anyway
        for _ in range(2):
            for token in self.tokens[:STOCK]:
                headers = {"Purchase-Token": token.sign()}
                answer = self.ask(None, "get", f"orders/{token.order_id}/", headers=headers)
                assert (answer.status, answer.body["status"]) == (200, "unpaid")

    def wait_in_line(self) -> None:
        """Two join the waiting list, and one leaves it; then three units come back."""
        waiting = list(zip(self.users[STOCK:], self.tokens[STOCK:], strict=True))[:2]
        for user, token in waiting:
            assert self.order(token).body["code"] == "sold_out"
            answer = self.ask(user, "post", "waiting/", data={"token": token.sign()})
            assert answer.status in (200, 201, 202), answer
        self.ask(waiting[0][0], "get", "waiting/")
        self.ask(waiting[1][0], "post", "waiting/leave/")
        assert WaitingEntry.objects.filter(live=True).count() == 1
        cancelled, expired, refunded = self.tokens[2:5]
        self.storm()
        self.ask(self.users[2], "post", f"orders/{cancelled.order_id}/cancel/")
        self.wait(lambda: self.has(OrderStatus.UNPAID, waiting[0][1]), what="the waiter's order")
        past = timezone.now() - timedelta(seconds=1)
        VoucherOrder.objects.filter(pk=expired.order_id).update(pay_by=past)
        self.wait(lambda: self.has(OrderStatus.EXPIRED, expired), what="expiry")
        paid = VoucherOrder.objects.get(pk=refunded.order_id)
        payment = self.again(partial(make_payment, paid))
        choose_outcome(payment)
        self.again(partial(notify_shop, payment))
        self.again(partial(refund_order, order_id=paid.pk, by=SYSTEM, now=timezone.now()))
        self.wait(lambda: self.has(OrderStatus.REFUNDED, refunded), what="the refund")
        self.wait(lambda: self.ledger().remaining == 2, what="two units")

    def break_and_repair(self) -> None:
        """Lose a pending entry and a buyer, leave junk, a dead holder's lock and a high fence."""
        client, (one, two) = ledger_connection(), self.tokens[-2:]
        for token in (one, two):
            assert self.order(token).status == 202
        self.queue.clear()  # both messages are lost
        client.zrem(self.keys.pending, f"{one.order_id}:{one.user_id}:1")
        client.hdel(self.keys.buyers, f"{two.user_id}:1")
        client.zadd(self.keys.pending, {"junk": 1})
        client.set(self.keys.sale_lock, "dead", px=60_000)
        SeckillVoucher.objects.filter(pk=self.sale.pk).update(fence=F("fence") + 100)
        self.storm()
        with suppress(LedgerUnavailable):
            tasks.reconcile()  # before a worker sees the entry, which would be another repair
        self.wait(lambda: self.has(OrderStatus.UNPAID, one, two), what="repaired orders")
        self.wait(self.is_quiet, what="no difference")
        self.again(self._hold_long)

    def _hold_long(self) -> None:
        before = self.faults.calls["locks/renew"]
        with user_lock(sale_id=self.sale.pk, user_id=self.users[0].pk):
            self.wait(
                lambda: self.faults.calls["locks/renew"] > before + 1,
                what="renewals",
                working=False,
            )

    def edit_and_rebuild(self) -> None:
        for stock, seen in ((STOCK + 2, STOCK), (STOCK, STOCK + 2)):
            self.again(partial(resize_sale, sale_id=self.sale.pk, stock=stock, seen=seen))
        self.again(partial(rebuild_sale, sale_id=self.sale.pk))
        self.wait(self.is_quiet, what="no difference")

    def wait_in_room(self) -> None:
        """A waiting room opens; one comes, their visit becomes a row, and all are let in."""
        self.again(partial(open_room, sale_id=self.sale.pk, rate=1))
        visitor = self.users[STOCK + 1]  # who left the waiting list
        answer = self.ask(visitor, "get", "room/")
        assert (answer.status, answer.body["turn"]) == (200, "in")

        def is_stored() -> bool:
            tasks.store_visits()
            visits = RoomVisit.objects.filter(user=visitor, let_in_at__isnull=False)
            return visits.count() == 1 and not ledger_connection().exists(self.keys.visits)

        self.wait(is_stored, what="the row of a visit")
        self.again(partial(close_room, sale_id=self.sale.pk))
        self.wait(lambda: self.ledger().line is None, what="a closed room")

    def draw(self) -> None:
        """Three enter a draw of one unit, and one withdraws; one wins, and the other one waits."""
        sale = make_draw(stock=1, draw_wait_s=3_600, loaded=False)
        self.again(partial(load_sale, sale_id=sale.pk))
        buyers = self.users[:3]
        tokens = self.again(partial(tokens_for, sale, buyers))
        for token in tokens:
            answer = self.ask(
                None, "post", f"/vouchers/{sale.pk}/orders/", data={"token": token.sign()}
            )
            assert answer.status == 202, answer
        path = f"/vouchers/{sale.pk}/orders/{tokens[0].order_id}/"
        assert self.ask(buyers[0], "post", f"{path}withdraw/").body["reason"] == "withdrawn"
        self.again(partial(end, sale))
        self.wait(lambda: Draw.of(sale).finished_at, what="an order of the winner")
        self.wait(lambda: snapshot(sale_id=sale.pk).waiting == 1, what="one who waits")
        assert listed(sale) == sorted(token.order_id for token in tokens[1:])
        orders = VoucherOrder.objects.filter(seckill_voucher=sale, live=True)
        assert orders.count() == 1

    def remove_ledger(self) -> None:
        """The ledger of a sale that was over ten days ago leaves Redis."""
        sale = make_sale(begins_in_s=-11 * 86_400, ends_in_s=-10 * 86_400, loaded=False)
        self.again(partial(load_sale, sale_id=sale.pk))

        def is_removed() -> bool:
            tasks.remove_ledgers()
            return SeckillVoucher.objects.get(pk=sale.pk).ledger_removed_at is not None

        self.wait(is_removed, what="a removed ledger")

    def count_answers(self) -> None:
        """No answer is counted twice. What Redis refuses to count is lost, as documented."""
        for _ in range(3):
            flush_request_counts()
        counts = self.again(partial(read_request_counts, sale=self.sale))
        assert sum(it.count for it in counts) <= self.orders_asked

    def run(self) -> Outcome:
        steps = [
            self.open,
            self.sell_out,
            self.read_receipts,
            self.wait_in_line,
            self.break_and_repair,
            self.edit_and_rebuild,
            self.wait_in_room,
            self.draw,
            self.remove_ledger,
            self.count_answers,
        ]
        for step in steps:
            step()
        self.wait(self.is_quiet, what="a quiet sale")
        return self.history.check(self.sale, may_refuse=True, recovery_seconds=RECOVERY_SECONDS)


@pytest.fixture
def build(settings: Settings) -> Iterator[Callable[..., Shop]]:
    """Return a function that builds a shop whose ledger fails with an error."""
    settings.SECKILL_MAX_TRIES = 1
    with pytest.MonkeyPatch.context() as patch:

        def make(error: str, what: str, **options: Any) -> Shop:
            return Shop(Faults(error), History("R6", what), patch, **options)

        yield make


# --- The tests ------------------------------------------------------------------------------------


def test_r6_scripts_are_all_of_the_ledger() -> None:
    """Those of broker and cache are no ledger's; ``fail_once`` asserts that each script failed."""
    folders = {path.parent for app in APPS for path in (ROOT / app).rglob("lua/*.lua")}
    others = {ROOT / f"seckill_site/{folder}" for folder in ("broker/lua", "redis/lua", "lua")}
    assert folders == {*FOLDERS.values(), *others}
    assert UNUSED.keys() < SCRIPTS.keys()
    assert len(NAMES) == 2 * len(SCRIPTS)


@pytest.fixture
def quick(settings: Settings) -> None:
    for name, value in QUICK.items():
        setattr(settings, name, value)


def fail_once(build: Callable[..., Shop], error: str) -> Outcome:
    shop = build(error, f"{error}, once at each of {len(USED)} scripts")
    outcome = shop.run()
    assert shop.faults.failed.keys() == USED
    return outcome


@pytest.mark.usefixtures("quick")
def test_r6_lost_answer_of_each_script_loses_nothing(
    build: Callable[..., Shop], report: Report
) -> None:
    report(fail_once(build, SAMPLE))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("failing", [True, False], ids=["error", "no error"])
def test_r6_without_repeats_an_error_leaves_orders_pending(
    build: Callable[..., Shop], failing: bool
) -> None:
    """The control: the same flow without beat, with and without the errors."""
    shop = build("READONLY", "control", repeats=False)
    if not failing:
        shop.faults.once.clear()
        shop.patience_s = RECOVERY_SECONDS
    shop.open()
    with pytest.raises(AssertionError, match="rows of all") if failing else nullcontext():
        shop.sell_out()


@pytest.mark.faults
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("error", [it for it in ERRORS if it != SAMPLE])
def test_r6_any_error_at_each_script_loses_nothing(
    build: Callable[..., Shop], report: Report, error: str
) -> None:
    report(fail_once(build, error))


@pytest.mark.faults
@pytest.mark.usefixtures("shops_times")
def test_r6_errors_of_three_seconds_lose_nothing(
    build: Callable[..., Shop], report: Report
) -> None:
    """With the settings of the product, at four moments: of buyers, workers, a cancel, a repair."""
    shop = build("READONLY", "READONLY at all scripts for 3 s, four times")
    shop.faults.once.clear()
    shop.storms = True
    report(shop.run())


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("shops_times")
@pytest.mark.parametrize("error", [SAMPLE, "READONLY"])
def test_r6_scripts_that_fail_for_three_seconds_lose_nothing(
    build: Callable[..., Shop], report: Report, error: str
) -> None:
    """Each fails for a while from its first call on, one after the other."""
    shop = build(error, f"{error} for 3 s at each of {len(USED)} scripts")
    shop.faults.once.clear()
    shop.faults.lasting = frozenset(USED)
    report(shop.run())
    # While the look-up of receipts fails, the database answers, and no row is copied.
    assert USED - shop.faults.failed.keys() == {"inventory/cache_row"}
