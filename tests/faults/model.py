"""A model of a sale: every procedure of the product in steps, and faults between any two of them.

No Redis and no database: plain values stand for them. A procedure is a generator. What it does
between two ``yield``s is one script, one command or one statement, so nobody sees the middle of it;
at a ``yield`` any other process may run, or this one may die. What a ``yield`` hands out says what
was just done, so that a failing seed prints as a story.

================  ==================================================================================
here              in the product
================  ==================================================================================
``place``         ``orders.placing.service.place_order`` with ``lua/reserve.lua``
``ask``           ``orders.receipts.service.find_receipt``
``fulfil``        ``orders.fulfilment.worker.fulfill_sale`` with ``batch_journal.record_batch``
``write_batch``   ``orders.fulfilment.batch.write_batch``
``_raise_fence``  the same of ``worker``, with ``rebuild.ensure_safe_fence``
``load``          ``vouchers.inventory.rebuild.load_sale``: ``_copy_terms``, ``_raise_epoch``
``build``         ``vouchers.inventory.rebuild._build_ledger`` with ``lua/load.lua``
``rebuild``       ``vouchers.inventory.rebuild.rebuild_sale``
``edit``          ``vouchers.catalogue.sales.edit_sale`` with ``lua/write_terms.lua``
``cancel``        the design (section 5): the row first, then Redis with ``lua/release.lua``
``sweep``         ``orders.fulfilment.sweep.sweep`` with ``lua/claim_sweep.lua``
``watch``         ``vouchers.inventory.restart_watch.rebuild_after_restart``
``reconcile``     ``orders.fulfilment.reconcile.reconcile`` with ``repair``
================  ==================================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any

Steps = Generator[str, None, None]
Token = tuple[int, int]

SENTINEL = "epoch"
BATCH = 2
BUYERS = ("ann", "bob", "cyd")
WAITS = "waits for the row"


class Cure(StrEnum):
    """What the design does against faults; a world may be made without some of it."""

    SAME_ID = "an order id that has its row is only reported again"
    UNIQUE_KEY = "a buyer has one live order, by a unique key"
    ROW_LOCK = "the row is locked before the stock is checked"
    FENCE = "an older fencing token is refused by the row"
    EPOCH = "the epoch rises before a ledger is built"
    ROW_HELD = "the row is held from reading the orders until the install"
    ONLY_IF_NONE = "a ledger is installed only if none stands"
    BATCH_NUMBER = "a batch number that the row has seen is refused"
    RUN_ID = "a ledger of another run of Redis is built anew"
    OWN_ID = "a release deletes only a field that holds this very id"
    SENTINEL = "buyers without the ledger's epoch are no buyers"
    ONE_SCRIPT = "reservation and promise are one script"
    SWEEP = "what is pending for too long is sent again"
    CONFIRM_LAST = "a promise is confirmed only after the commit"
    NARROW_FIRST = "an edit narrows Redis before the row"
    SECOND_LOOK = "a difference counts only if it is still there when read again"
    STRAY_TO_PENDING = "a buyer without a row goes to pending, never to release"
    RECONCILE = "ledger and database are compared and mended"
    OWN_EPOCH = "a build uses only the epoch that was raised for it"
    SURE_RECEIPT = "an id is lost or unknown only by a ledger of this run that stood all along"


class Violation(AssertionError):
    """An invariant does not hold: what stands before the colon is its name."""


class StaleFence(Exception):
    """``orders.fulfilment.batch.StaleFence``."""


class StaleBatchNumber(Exception):
    """``orders.fulfilment.batch.StaleBatchNumber``."""


@dataclass
class Order:
    """A row: live, or ended for a reason."""

    user: str
    reason: str = ""

    @property
    def live(self) -> bool:
        return not self.reason


@dataclass
class Row:
    """The sale's row."""

    stock: int
    sold: int = 0
    epoch: int = 0
    fence: Token = (0, 0)
    batch: int = 0


@dataclass
class Redis:
    """One Redis: the ledger's keys (an empty one is a missing one), the locks, the side keys."""

    run_id: int = 1
    sale: dict[str, int] = field(default_factory=dict)
    buyers: dict[str, int] = field(default_factory=dict)
    pending: dict[int, str] = field(default_factory=dict)
    ended: dict[int, str] = field(default_factory=dict)
    side: dict[str, dict[Any, Any]] = field(default_factory=dict)
    kick: str = ""
    """Empty, ``sent`` or ``taken``."""
    lock: str | None = None
    fence: Token = (0, 0)


@dataclass
class World:
    """Everything there is, and what a watcher outside remembers of it."""

    without: Collection[Cure] = ()
    row: Row = field(default_factory=lambda: Row(stock=2))
    row_held_by: str | None = None
    orders: dict[int, Order] = field(default_factory=dict)
    redis: Redis = field(default_factory=Redis)
    tasks: int = 0
    now: int = 0
    # What was seen from outside:
    minted: dict[int, tuple[str, int]] = field(default_factory=dict)
    accepted: dict[int, int] = field(default_factory=dict)
    told_lost: set[int] = field(default_factory=set)
    last_token: Token = (0, 0)
    forgetful: bool = False

    def has(self, cure: Cure) -> bool:
        return cure not in self.without

    # --- Redis: each of these is one script -------------------------------------------------------

    def stands(self) -> bool:
        """Say whether the ledger is loaded and whole (``lua/include/read_ledger.lua``)."""
        sale, buyers = self.redis.sale, self.redis.buyers
        return bool(sale) and (not self.has(Cure.SENTINEL) or buyers.get(SENTINEL) == sale["epoch"])

    def held(self) -> dict[str, int]:
        return {user: i for user, i in self.redis.buyers.items() if user != SENTINEL}

    def take_lock(self, me: str, epoch: int) -> Token | None:
        """``locks/lua/acquire.lua``: a token above the counter and above the floor."""
        if self.redis.lock:
            return None
        floor = max(self.redis.fence, (epoch, 0))
        self.redis.lock, self.redis.fence = me, (floor[0], floor[1] + 1)
        return self.redis.fence

    def confirm(self, ids: Iterable[int]) -> None:
        for order_id in ids:
            self.redis.pending.pop(order_id, None)

    def release(self, ids: Iterable[int], instead: dict[int, int | None]) -> None:
        """``lua/release.lua``: the units of orders that ended go back on sale."""
        for order_id in ids:
            user = self.minted[order_id][0]
            held = self.redis.buyers.get(user)
            if held == order_id or (held and not self.has(Cure.OWN_ID)):
                if live_id := instead.get(order_id):
                    self.redis.buyers[user] = live_id
                else:
                    self.give_back(user)
            self.redis.pending.pop(order_id, None)
            self.redis.ended[order_id] = user

    def give_back(self, user: str) -> None:
        order_id = self.redis.buyers.pop(user)
        if order_id not in self.orders or self.orders[order_id].live:
            raise Violation(f"given back once: the unit of order {order_id}, which has not ended")

    def publish(self) -> None:
        self.tasks += 1

    # --- The database -----------------------------------------------------------------------------

    def live(self) -> set[int]:
        return {order_id for order_id, order in self.orders.items() if order.live}

    def live_of(self, user: str) -> int | None:
        return next((i for i in self.live() if self.orders[i].user == user), None)

    def lock_row(self, me: str) -> Steps:
        """``SELECT … FOR UPDATE``: what follows in the same step is done with the row held."""
        while self.row_held_by not in (None, me):
            yield WAITS
        self.row_held_by = me

    def raise_epoch(self) -> None:
        """Raise the row's epoch, and its fence with it."""
        self.row.epoch += 1
        self.row.fence = max(self.row.fence, (self.row.epoch, 0))
        self.last_token = max(self.last_token, self.row.fence)

    def unlock_row(self, me: str) -> None:
        if self.row_held_by == me:
            self.row_held_by = None

    # --- What must hold ---------------------------------------------------------------------------

    def check_always(self) -> None:
        live = [order.user for order in self.orders.values() if order.live]
        if len(live) > self.row.stock:
            raise Violation(f"no oversell: {len(live)} live orders of {self.row.stock}")
        if len(set(live)) < len(live):
            raise Violation("limit: a buyer has two live orders")
        if again := self.told_lost & self.live():
            raise Violation(f"same answer: {again} were told to be lost, and are live orders")

    def check_fenced(self, token: Token) -> None:
        if token < self.last_token:
            raise Violation(f"fenced: {token} wrote after {self.last_token}")
        self.last_token = token

    def tell(self, order_id: int, asked_at: int, loaded_at: int) -> None:
        """Somebody is told that an accepted order is nowhere."""
        if self.minted[order_id][1] >= loaded_at:
            raise Violation(f"same answer: {order_id} was accepted and is unknown now")
        if not self.forgetful:
            raise Violation(f"same answer: {order_id} is told to be lost, Redis lost nothing")
        if self.accepted[order_id] < asked_at:
            self.told_lost.add(order_id)

    def check_alarm(self, ids: Iterable[int]) -> None:
        """Called in the very step in which reconciling says that these ids fit nowhere."""
        for order_id in ids:
            in_ledger = order_id in self.held().values()
            if in_ledger and (order_id in self.redis.pending or order_id in self.live()):
                raise Violation(f"no false alarm: order {order_id} was only in flight")

    def check_quiet(self) -> None:
        """What must hold when no fault came for a while; each id has been asked for before."""
        redis, live = self.redis, self.live()
        if redis.pending:
            raise Violation(f"accepted ends: {list(redis.pending)} stay pending")
        for order_id in self.accepted:
            if order_id not in self.orders and order_id not in self.told_lost:
                raise Violation(f"accepted ends: {order_id} is no row, and nobody says it is lost")
            order = self.orders.get(order_id)
            if not self.forgetful and (order is None or order.reason not in ("", "cancelled")):
                raise Violation(f"promise kept: {order_id} ended as {order}, Redis lost nothing")
        if self.stands() and live - set(self.held().values()):
            raise Violation("conservation: a live order without a buyer in the ledger")
        if self.stands() and set(self.held().values()) - live:
            raise Violation("conservation: a buyer without a live order")
        if self.stands() and (redis.sale["total"], self.row.sold) != (self.row.stock, len(live)):
            raise Violation("conservation: total or sold is off")


# --- Front half -----------------------------------------------------------------------------------


def place(w: World, me: str, order_id: int) -> Steps:
    """A buyer sends a token; what is accepted is accepted, also where the answer gets lost."""
    if not w.stands():
        yield from load(w, me)
    redis, user = w.redis, w.minted[order_id][0]
    held = redis.buyers.get(user)
    if not w.stands():
        return
    if held == order_id or redis.ended.get(order_id) == user:
        w.told_lost.discard(order_id)
        yield f"{order_id} is known already"
        return
    if held or len(w.held()) >= redis.sale["total"]:
        yield f"{order_id} is refused"
        return
    redis.buyers[user] = order_id
    w.accepted[order_id] = w.now
    w.told_lost.discard(order_id)
    if not w.has(Cure.ONE_SCRIPT):
        yield f"{order_id} is reserved"
    w.redis.pending[order_id] = user
    kicked, w.redis.kick = not w.redis.kick, w.redis.kick or "sent"
    yield f"{order_id} is accepted"
    if kicked:
        w.publish()
        yield "publishes a task"


def ask(w: World, me: str, order_id: int) -> Steps:
    """The receipt of an id: its row, else queued, else ended, else lost with an older ledger."""
    asked_at = w.now
    if order_id in w.orders:
        return
    yield f"{order_id} has no row"
    if not w.stands():
        yield from load(w, me)
    loaded_at = w.redis.sale.get("loaded_at", 0)
    yield "reads when the ledger was loaded"
    if not w.stands() or order_id in w.held().values() or order_id in w.redis.ended:
        return
    yield f"{order_id} is not in the ledger"
    if order_id in w.orders or w.accepted[order_id] >= asked_at:
        return
    yield f"{order_id} still has no row"
    sale, run_id = w.redis.sale, w.redis.run_id
    sure = (sale.get("loaded_at"), sale.get("run_id")) == (loaded_at, run_id)
    if sure or not w.has(Cure.SURE_RECEIPT):
        w.tell(order_id, asked_at, loaded_at)
        yield f"tells that {order_id} is lost"


# --- Back half ------------------------------------------------------------------------------------


def fulfil(w: World, me: str) -> Steps:
    """One task: lock, pending, number, transaction, then the ledger; what is left goes on."""
    w.redis.kick = w.redis.kick and "taken"
    yield "takes the kick"
    if not w.stands():
        yield from load(w, me)
    epoch = w.redis.sale.get("epoch", 0)
    yield f"reads epoch {epoch}"
    token = w.take_lock(me, epoch)
    if token is None:
        return
    yield f"has the lock, token {token}"
    entries = dict(islice(w.redis.pending.items(), BATCH))
    yield f"reads pending {list(entries)}"
    if entries and w.stands():
        w.redis.sale["batch"] += 1
        number = w.redis.sale["batch"]
        yield f"begins batch {number}"
        yield from _settle(w, me, entries, token, number)
    if w.redis.lock == me:
        w.redis.lock = None
    yield "lets go"
    if w.redis.kick == "taken":
        w.redis.kick = ""
    yield "ends the kick"
    if w.redis.pending and w.redis.kick != "sent":
        w.redis.kick = "sent"
        w.publish()
    yield "looks for the last time"


def _settle(w: World, me: str, entries: dict[int, str], token: Token, number: int) -> Steps:
    if not w.has(Cure.CONFIRM_LAST):
        w.confirm(entries)
        yield "confirms too early"
    try:
        refused = yield from write_batch(w, me, entries, token, number)
    except StaleFence as error:
        (stored,) = error.args
        yield "is refused by the fence"
        yield from _raise_fence(w, me, stored)
        return
    except StaleBatchNumber:
        yield f"is refused: number {number}, the row has seen {w.row.batch}"
        if w.redis.sale.get("batch", w.row.batch) < w.row.batch:
            yield from rebuild(w, me)
        return
    if any(w.orders[order_id].reason == "sold out" for order_id in refused):
        yield from load(w, me)
    w.release(refused, refused)
    yield f"releases {list(refused)}"
    w.confirm(entries.keys() - refused.keys())
    yield f"confirms {list(entries.keys() - refused.keys())}"


def _raise_fence(w: World, me: str, stored: Token) -> Steps:
    """Let the next token be above the row's, but never one of an epoch that a build may use."""
    epoch = w.redis.sale.get("epoch")
    if epoch is None:
        return
    if stored[0] > epoch:
        yield "finds a ledger older than the row's epoch"
        yield from w.lock_row(me)
        w.raise_epoch()
        stored = w.row.fence
        w.unlock_row(me)
        yield f"raises the epoch to {stored[0]}"
    w.redis.fence = max(w.redis.fence, stored)
    yield "raises the counter"


def write_batch(
    w: World, me: str, entries: dict[int, str], token: Token, number: int
) -> Generator[str, None, dict[int, int | None]]:
    """The transaction is one step, as nobody sees the middle of it. Return what was refused."""
    if w.has(Cure.ROW_LOCK):
        yield from w.lock_row(me)
    fence, batch = w.row.fence, w.row.batch
    reasons = _decide(w, entries)
    if not w.has(Cure.ROW_LOCK):
        yield "decides without the row"
    w.unlock_row(me)
    if token < fence and w.has(Cure.FENCE):
        raise StaleFence(fence)
    if number <= batch and w.has(Cure.BATCH_NUMBER):
        raise StaleBatchNumber
    if not w.has(Cure.SAME_ID) and entries.keys() & w.orders.keys():
        return {}  # the primary key fails the batch each time; it comes to nothing
    new = {i: Order(entries[i], reason) for i, reason in reasons.items() if i not in w.orders}
    w.orders |= new
    w.row.sold += sum(order.live for order in new.values())
    w.row.fence, w.row.batch = token, number
    w.check_fenced(token)
    yield f"commits {reasons}"
    return {i: w.live_of(entries[i]) for i, reason in reasons.items() if reason}


def _decide(w: World, entries: dict[int, str]) -> dict[int, str]:
    """Say of each entry why it is refused; an empty reason is a live order."""
    room, reasons = w.row.stock - w.row.sold, {}
    ordered = {w.orders[order_id].user for order_id in w.live()}
    for order_id, user in entries.items():
        if order_id in w.orders and w.has(Cure.SAME_ID):
            reasons[order_id] = w.orders[order_id].reason
        elif user in ordered and w.has(Cure.UNIQUE_KEY):
            reasons[order_id] = "already ordered"
        elif room <= 0:
            reasons[order_id] = "sold out"
        else:
            reasons[order_id], room = "", room - 1
            ordered.add(user)
    return reasons


def sweep(w: World, me: str) -> Steps:
    """Send a task where something is pending and none is on its way."""
    if w.redis.pending and not w.redis.kick:
        w.redis.kick = "sent"
        yield "kicks"
        w.publish()
        yield "publishes a task"


# --- Loading --------------------------------------------------------------------------------------


def load(w: World, me: str) -> Steps:
    """Copy the figures into a ledger that stands, else raise the epoch and build one."""
    yield from w.lock_row(me)
    yield "holds the row"
    if w.stands():
        w.redis.sale["total"] = w.row.stock
        yield f"copies total {w.row.stock}"
        w.unlock_row(me)
        return
    w.unlock_row(me)
    yield "finds no ledger"
    if w.has(Cure.EPOCH):
        yield from w.lock_row(me)
        w.raise_epoch()
        w.unlock_row(me)
    epoch = w.row.epoch
    yield f"raises the epoch to {epoch}"
    yield from build(w, me, epoch)


def build(w: World, me: str, epoch: int) -> Steps:
    """Build a ledger from the live orders and what survived, in side keys, and install it."""
    yield from w.lock_row(me)
    if w.has(Cure.OWN_EPOCH) and w.row.epoch != epoch:
        w.unlock_row(me)
        return
    yield "holds the row"
    if w.stands() and w.has(Cure.ONLY_IF_NONE):
        w.unlock_row(me)
        return
    survivors = {user: i for i, user in w.redis.pending.items()} | w.held()
    promised = dict(w.redis.pending)
    yield f"reads survivors {survivors}, pending {list(promised)}"
    live = {w.orders[i].user: i for i in w.live()}
    ended = {i: order.user for i, order in w.orders.items() if not order.live}
    stock, batch = w.row.stock, w.row.batch
    yield f"reads orders {live}"
    if not w.has(Cure.ROW_HELD):
        w.unlock_row(me)
    buyers = {SENTINEL: w.row.epoch} | survivors | live
    promised = {i: user for i, user in promised.items() if i not in live.values()}
    promised |= {i: u for u, i in survivors.items() if i == buyers[u] and i not in live.values()}
    w.redis.side |= {f"{me} buyers": buyers}
    yield "writes side keys: buyers"
    w.redis.side |= {f"{me} pending": promised, f"{me} ended": ended}
    yield "writes side keys: pending, ended"
    run_id = w.redis.run_id
    yield f"reads run id {run_id}"
    side = [w.redis.side.pop(f"{me} {name}", {}) for name in ("buyers", "pending", "ended")]
    if side[0] and not (w.stands() and w.has(Cure.ONLY_IF_NONE)):
        w.redis.buyers, w.redis.pending, w.redis.ended = side
        w.redis.sale = {"epoch": side[0][SENTINEL], "total": stock, "batch": batch}
        w.redis.sale |= {"run_id": run_id, "loaded_at": w.now}
        w.redis.kick = ""
    yield f"installs buyers {w.held()}, pending {list(w.redis.pending)}"
    w.unlock_row(me)


def rebuild(w: World, me: str) -> Steps:
    """Close a sale whose ledger cannot be believed, and build it from what is left of it."""
    w.redis.sale = {}
    yield "closes the sale"
    yield from load(w, me)


def watch(w: World, me: str) -> Steps:
    """Build a ledger anew that was built on another run of Redis."""
    run_id = w.redis.run_id
    yield f"reads run id {run_id}"
    if w.redis.sale.get("run_id", run_id) != run_id and w.has(Cure.RUN_ID):
        yield "finds a ledger of another run"
        yield from rebuild(w, me)


# --- The shop and the buyer change their minds ----------------------------------------------------


def edit(w: World, me: str, stock: int) -> Steps:
    """Set the units offered: down in Redis first, while the row is held; up in the row first."""
    yield from w.lock_row(me)
    yield f"holds the row, to make stock {stock}"
    down = stock < w.row.stock
    if stock < w.row.sold or (down and (not w.stands() or stock < len(w.held()))):
        w.unlock_row(me)
        return
    if down and w.has(Cure.NARROW_FIRST):
        w.redis.sale["total"] = stock
        yield f"narrows total to {stock}"
    elif down:
        yield "has seen that fewer are taken"
    w.row.stock = stock
    w.unlock_row(me)
    yield f"commits stock {stock}"
    yield from load(w, me)


def cancel(w: World, me: str, order_id: int) -> Steps:
    """A buyer gives an order up: in the database first, then in Redis."""
    yield from w.lock_row(me)
    w.unlock_row(me)
    if not w.orders[order_id].live:
        return
    w.orders[order_id].reason = "cancelled"
    w.row.sold -= 1
    yield f"commits that {order_id} is cancelled"
    w.release([order_id], {})
    yield f"releases {order_id}"


# --- Reconciling ----------------------------------------------------------------------------------


def reconcile(w: World, me: str) -> Steps:
    """Compare by ids in the order buyers, pending, orders; look again; mend."""
    if not w.stands():
        yield from load(w, me)
        return
    buyers = set(w.held().values())
    yield f"reads buyers {buyers}"
    pending = set(w.redis.pending)
    yield f"reads pending {pending}"
    live = w.live()
    stray, missing, promised = buyers - pending - live, live - buyers, pending - buyers - live
    if w.has(Cure.SECOND_LOOK) and (stray or missing or promised):
        yield "has differences, looks again"
        missing &= w.live()
        yield "reads the orders again"
        held = set(w.held().values())
        missing, promised = missing - held, (promised & w.redis.pending.keys()) - held
        w.check_alarm(missing | promised)
        stray = (stray & held) - w.redis.pending.keys()
        yield "reads the ledger again"
        stray -= w.live()
    else:
        w.check_alarm(missing | promised | stray)
    yield f"counts stray {stray}, missing {missing}, promised only {promised}"
    yield from load(w, me)
    yield from _mend(w, me, stray, missing, promised)


def _mend(w: World, me: str, stray: set[int], missing: set[int], promised: set[int]) -> Steps:
    for order_id in sorted(stray):
        user = w.minted[order_id][0]
        if w.redis.buyers.get(user) == order_id and w.has(Cure.STRAY_TO_PENDING):
            w.redis.pending.setdefault(order_id, user)
        elif w.redis.buyers.get(user) == order_id:
            w.give_back(user)
        yield f"puts {order_id} back to pending"
    for order_id in sorted(promised & w.redis.pending.keys()):
        w.redis.buyers.setdefault(w.minted[order_id][0], order_id)
        yield f"makes {order_id} a buyer again"
    yield from w.lock_row(me)
    missing &= w.live()
    yield "holds the row"
    for order_id in sorted(missing):
        w.redis.buyers.setdefault(w.orders[order_id].user, order_id)
    yield f"enters {missing} among the buyers"
    w.row.sold = len(w.live())
    w.unlock_row(me)
    yield f"counts sold again: {w.row.sold}"
