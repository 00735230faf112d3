"""A history of what buyers asked and were told, and the invariants that it is checked against.

::

    history = History("K1", "worker killed before COMMIT")
    history.fire(sale, tokens, url=web.url)
    with history.fault():
        worker.kill()
    history.settle(sale)           # waits until nothing is pending; measures the recovery
    history.ask_again(sale, url=web.url)  # who got no answer asks again
    outcome = history.check(sale)  # every invariant of FAULTS.md, once all is quiet

An answer is *accepted*, *refused* with its code, or *unknown*: none came, or it was a 503.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from backoffice.rehearsal.http_client import Address
from orders.fulfilment.reconcile import reconcile
from orders.models import OrderStatus, VoucherOrder
from orders.placing.service import finish_order, place_order
from orders.placing.tokens import PurchaseToken, read_token
from orders.proof.rows import check_rows
from orders.receipts.service import NoReceipt, Receipt, find_receipt
from seckill_site.clocks.machine import epoch_ms
from tests.concurrency.sales import TOLD_NOTHING, order_requests
from tests.support.crowd import NO_ANSWER, Answer, fire
from tests.support.patience import GENEROUS_S, Stalls, running_s, wait_for
from vouchers.chain import has_chain
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded
from vouchers.inventory.purchases import blocks_from, is_all_or_none, purchase_of
from vouchers.inventory.reservations import SoldOut, TooFew
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

ACCEPTED, UNKNOWN = "accepted", "unknown"
SLOWEST_SECONDS = 5.0
"""The longest that anybody may wait for an answer while something is broken."""

LATE_SECONDS = 0.3
"""A stall of the machine after which Redis may have been late for a buyer."""

CLIENT_SECONDS = 20.0
RECOVERY_SECONDS = 30.0
ENDED = (OrderStatus.CANCELLED, OrderStatus.EXPIRED, OrderStatus.REFUNDED)
BUYING_SECONDS = 120.0


@dataclass(frozen=True)
class Outcome:
    """One row of the table: what a fault did to so many orders.

    ``orders`` are live ones, ``accepted`` the order ids that somebody was told, ``unknown`` the
    answers that told nothing, ``refused`` the accepted ids that ended without an order and say so,
    ``lost`` those that say nothing.
    """

    fault: str
    what: str
    orders: int
    accepted: int
    unknown: int
    refused: int
    lost: int
    doubled: int
    oversold: int
    worst_recovery_s: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


Report = Callable[[Outcome], None]
"""What the fixture ``report`` gives a test."""


@dataclass(frozen=True)
class Event:
    """One request for an order and what came of it."""

    token: PurchaseToken
    text: str
    answer: Answer
    at: float

    @property
    def told(self) -> str:
        """``accepted``, ``unknown``, or the code of the refusal."""
        if self.answer.status == 202:
            return ACCEPTED
        if self.answer.status in TOLD_NOTHING:
            return UNKNOWN
        return str(self.answer.body["code"]) if isinstance(self.answer.body, dict) else "?"

    @property
    def order_id(self) -> int:
        return int(self.answer.body["order_id"])


class History:
    """Every request and its answer; any thread may add to it."""

    def __init__(self, fault: str, what: str) -> None:
        self.fault_name, self.what = fault, what
        self.events: list[Event] = []
        self.others: list[Answer] = []
        self.recoveries: list[float] = []
        self._guard = threading.Lock()
        self.stalls = Stalls()
        self._fault_ended: float | None = None

    # --- Recording --------------------------------------------------------------------------------

    def press(self, sale: SeckillVoucher, tokens: Sequence[str], *, quantity: int = 3) -> None:
        """Press with each token for several units; every second buyer wants all or none.

        In this process, which waits for each answer.
        """
        for number, text in enumerate(tokens):
            token = read_token(text, sale_id=sale.pk, now_ms=0)
            began = time.monotonic()
            wants_all = number % 2 == 1
            try:
                place_order(token, finish=finish_order, quantity=quantity, all_or_none=wants_all)
            except (SoldOut, TooFew) as refusal:
                answer = Answer(409, {}, {"code": type(refusal).__name__}, time.monotonic() - began)
            except (LedgerUnavailable, NotLoaded):
                answer = Answer(NO_ANSWER, {}, None, time.monotonic() - began)
            else:
                body = {"order_id": str(token.order_id)}
                answer = Answer(202, {}, body, time.monotonic() - began)
            self.record(sale, text, answer)

    def fire(
        self,
        sale: SeckillVoucher,
        tokens: Sequence[str],
        *,
        url: str,
        connections: int = 50,
        timeout_seconds: float = CLIENT_SECONDS,
        **wants: int,
    ) -> list[Answer]:
        """Send an order request for each token, and record the answers.

        Where the machine stood still meanwhile, whoever was told nothing asks once more: Redis may
        have been late, with nothing broken.
        """
        stalls = Stalls()
        send = partial(fire, url=url, connections=connections, timeout_seconds=timeout_seconds)
        requests = order_requests(sale, tokens, **wants)
        answers = send(requests)
        for text, answer in zip(tokens, answers, strict=True):
            self.record(sale, text, answer)
        if stalls.seconds() > LATE_SECONDS:
            untold = [n for n, it in enumerate(answers) if it.status in TOLD_NOTHING]
            for number, answer in zip(untold, send([requests[n] for n in untold]), strict=True):
                self.record(sale, tokens[number], answer)
                answers[number] = answer
        return answers

    @contextmanager
    def buying(
        self, sale: SeckillVoucher, tokens: Sequence[str], *, url: str, at_a_time: int = 4
    ) -> Iterator[threading.Thread]:
        """Let these buy, a few at a time, while the block runs; it ends when they are through."""
        todo = list(tokens)

        def buy() -> None:
            while todo:
                self.fire(sale, [todo.pop() for _ in todo[:at_a_time]], url=url)

        thread = threading.Thread(target=buy)
        thread.start()
        try:
            yield thread
        finally:
            thread.join(BUYING_SECONDS)
            assert not thread.is_alive()

    def record(self, sale: SeckillVoucher, text: str, answer: Answer) -> None:
        """Add the answer to an order request with this token."""
        token = read_token(text, sale_id=sale.pk, now_ms=0)
        with self._guard:
            self.events.append(Event(token, text, answer, time.monotonic()))

    def note(self, answer: Answer) -> None:
        """Add the answer to any other request: it is only to be bounded and no server error."""
        with self._guard:
            self.others.append(answer)

    def ask_again(self, sale: SeckillVoucher, *, url: str, **wants: int) -> None:
        """Let everyone who knows nothing yet ask until they are told, as a buyer's page does."""

        def everyone_is_told() -> bool:
            if tokens := self.not_told(sale):
                self.fire(sale, tokens, url=url, **wants)
            return not self.not_told(sale)

        wait_for(everyone_is_told, what="an answer for everyone")

    def not_told(self, sale: SeckillVoucher) -> list[str]:
        """Return the tokens that got none but unknown answers."""
        events = self._events_of(sale)
        told = {event.text for event in events if event.told != UNKNOWN}
        return list(dict.fromkeys(event.text for event in events if event.text not in told))

    @contextmanager
    def fault(self) -> Iterator[None]:
        """The fault lasts as long as the block; the recovery is measured from its end."""
        self._fault_ended = None
        yield
        self.fault_is_over()

    def fault_is_over(self) -> None:
        """The recovery is measured from now on."""
        self._fault_ended = running_s()

    def recovered(self) -> float:
        """Note that things are as they were, and return how long it took since the fault's end."""
        assert self._fault_ended is not None, "no fault has ended"
        seconds = running_s() - self._fault_ended
        with self._guard:
            self.recoveries.append(seconds)
        return seconds

    def settle(self, sale: SeckillVoucher, *, seconds: float = GENEROUS_S) -> None:
        """Wait until nothing is pending, and note how long that took after a fault's end."""
        wait_for(lambda: _is_quiet(sale), what="an empty pending set", seconds=seconds)
        if self._fault_ended is not None:
            self.recovered()

    # --- Reading ----------------------------------------------------------------------------------

    def accepted_ids(self, sale: SeckillVoucher) -> set[int]:
        return {event.order_id for event in self._events_of(sale) if event.told == ACCEPTED}

    def told(self) -> Counter[str]:
        """Count the answers by what they told."""
        return Counter(event.told for event in self.events)

    def outcome(self, sale: SeckillVoucher) -> Outcome:
        """Count what became of everything, without judging it."""
        ends = _Ends.of(sale, self._tokens(sale), self.accepted_ids(sale))
        return Outcome(
            fault=self.fault_name,
            what=self.what,
            orders=len(ends.live),
            accepted=len(self.accepted_ids(sale)),
            unknown=sum(event.told == UNKNOWN for event in self._events_of(sale)),
            refused=len(ends.refused),
            lost=len(ends.lost),
            doubled=ends.doubled + len(self._two_answers(sale)),
            oversold=ends.oversold,
            worst_recovery_s=round(max(self.recoveries, default=0.0), 2),
        )

    # --- Checking ---------------------------------------------------------------------------------

    def check(
        self,
        sale: SeckillVoucher,
        *,
        may_refuse: bool = False,
        window: bool = True,
        slowest_seconds: float = SLOWEST_SECONDS,
        recovery_seconds: float = RECOVERY_SECONDS,
    ) -> Outcome:
        """Assert every invariant; nothing may be going on any more.

        :param may_refuse: an accepted order may have ended as a refusal that its receipt shows
        :param window: nobody moved the sale's begin or end
        """
        sale.refresh_from_db()
        outcome = self.outcome(sale)
        self.check_answers(slowest_seconds=slowest_seconds)
        assert not self._two_answers(sale), "a token got two order ids"
        assert (outcome.lost, outcome.doubled, outcome.oversold) == (0, 0, 0), outcome
        assert may_refuse or not outcome.refused, f"refused after they were accepted: {outcome}"
        assert outcome.worst_recovery_s <= recovery_seconds, outcome
        self._check_no_stranger(sale)
        check_conservation(sale)
        check_chain(sale)
        check_purchases(sale)
        if window:
            check_window(sale)
        return outcome

    def check_answers(self, *, slowest_seconds: float = SLOWEST_SECONDS) -> None:
        """Assert that every answer came in time and is one that a buyer may get."""
        answers = [event.answer for event in self.events] + self.others
        slowest_seconds += self.stalls.seconds()
        for answer in answers:
            assert answer.seconds <= slowest_seconds, f"too slow: {answer}"
            if answer.status == NO_ANSWER:
                continue
            assert 200 <= answer.status < 500 or answer.status == 503, answer
            assert answer.status != 503 or answer.headers.get("retry-after"), answer

    def _check_no_stranger(self, sale: SeckillVoucher) -> None:
        """Every order of the sale is one that was asked for and not refused."""
        asked = {
            event.token.order_id
            for event in self._events_of(sale)
            if event.told in (ACCEPTED, UNKNOWN)
        }
        waited = {
            purchase
            for order_id, quantity in sale.waiting_entries.values_list("order_id", "quantity")
            for purchase in blocks_from(order_id, count=quantity)
        }
        live = {purchase_of(pk) for pk in _live_ids(sale)}
        strangers = live - asked - waited
        assert not strangers, f"orders that nobody was promised: {sorted(strangers)[:5]}"

    def _events_of(self, sale: SeckillVoucher) -> list[Event]:
        with self._guard:
            return [event for event in self.events if event.token.sale_id == sale.pk]

    def _tokens(self, sale: SeckillVoucher) -> dict[int, PurchaseToken]:
        return {event.token.order_id: event.token for event in self._events_of(sale)}

    def _two_answers(self, sale: SeckillVoucher) -> list[str]:
        """Return the tokens that were told another order id than their own."""
        events = [event for event in self._events_of(sale) if event.told == ACCEPTED]
        return [event.text for event in events if event.order_id != event.token.order_id]


@dataclass(frozen=True)
class _Ends:
    """What became of each accepted id, and whether a buyer or the sale has too many."""

    live: set[int]
    refused: set[int]
    lost: set[int]
    doubled: int
    oversold: int

    @classmethod
    def of(
        cls, sale: SeckillVoucher, tokens: dict[int, PurchaseToken], accepted: set[int]
    ) -> _Ends:
        live = _live_ids(sale)
        ended = {pk: _told_end(tokens[pk]) for pk in accepted - live if pk in tokens}
        lost = {pk for pk in accepted - live if not ended.get(pk)}
        return cls(live, accepted - live - lost, lost, _doubled(sale), _oversold(sale, len(live)))


def _is_quiet(sale: SeckillVoucher) -> bool:
    try:
        return snapshot(sale_id=sale.pk).pending == 0
    except (NotLoaded, LedgerUnavailable):
        return False  # it is being built


def _live_ids(sale: SeckillVoucher) -> set[int]:
    orders = VoucherOrder.objects.filter(seckill_voucher=sale, live=True)
    return set(orders.values_list("pk", flat=True))


def _told_end(token: PurchaseToken) -> bool:
    """Say whether the receipt of an accepted id without an order names an end and a reason."""
    receipt = receipt_of(token)
    return receipt is not None and (receipt.status in ENDED or bool(receipt.reason))


def get_receipt(sale: SeckillVoucher, text: str, *, url: str) -> Answer:
    """Ask for a receipt over HTTP, with the purchase token as the proof of who asks."""
    path = f"/vouchers/{sale.pk}/orders/{text.partition('-')[0]}/"
    headers = {"Accept": "application/json", "Purchase-Token": text}
    return fire([Address.of("http://localhost").request("GET", path, headers=headers)], url=url)[0]


def receipt_of(token: PurchaseToken) -> Receipt | None:
    """Return what the receipt of this token says, or None where there is none."""
    try:
        return find_receipt(
            sale_id=token.sale_id, order_id=token.order_id, user_id=token.user_id, has_token=True
        )
    except NoReceipt:
        return None


def _doubled(sale: SeckillVoucher) -> int:
    """Return how many live orders are beyond their buyer's limit."""
    held: dict[int | None, int] = defaultdict(int)
    orders = VoucherOrder.objects.filter(seckill_voucher=sale, live=True)
    for user_id in orders.values_list("user_id", flat=True):
        held[user_id] += 1
    return sum(max(0, count - sale.limit) for count in held.values())


def _oversold(sale: SeckillVoucher, live: int) -> int:
    """Return how many units too many the database or the ledger has given away."""
    return max(0, live - sale.stock, snapshot(sale_id=sale.pk).taken - sale.stock)


def check_conservation(sale: SeckillVoucher) -> None:
    """Assert that both sides agree to the unit, and that nothing is on its way."""
    compared = reconcile(sale_id=sale.pk)
    assert compared.difference == 0, compared
    assert compared.pending == 0, compared
    assert compared.sold == compared.live_orders == compared.buyers, compared
    assert compared.remaining is not None, compared
    assert compared.remaining + compared.buyers == compared.total == sale.stock, compared


def check_chain(sale: SeckillVoucher) -> None:
    """Assert that the chain of a first-come sale has each order once, as it was written."""
    if has_chain(sale):
        chain, problems = check_rows(sale)
        assert [*problems, *chain.problems()] == []


def check_purchases(sale: SeckillVoucher) -> None:
    """Assert that one transaction wrote each purchase, and that all or none is all or none."""
    orders = VoucherOrder.objects.filter(seckill_voucher=sale).order_by("pk")
    units: dict[int, list[VoucherOrder]] = defaultdict(list)
    for order in orders:
        units[purchase_of(order.pk)].append(order)
    for purchase in units.values():
        assert len({(it.user_id, it.accepted_at, it.created_at) for it in purchase}) == 1, purchase
        if any(is_all_or_none(it.pk) for it in purchase):
            ends = {it.status == OrderStatus.REFUSED for it in purchase}
            assert len(ends) == 1, f"a part of {purchase} is refused"


def check_window(sale: SeckillVoucher) -> None:
    """Assert that everything was accepted between begin and end, by the clock of Redis."""
    for accepted_at in VoucherOrder.objects.filter(seckill_voucher=sale).values_list(
        "accepted_at", flat=True
    ):
        # The ledger counts in milliseconds.
        assert epoch_ms(sale.begins_at) <= epoch_ms(accepted_at) < epoch_ms(sale.ends_at)
