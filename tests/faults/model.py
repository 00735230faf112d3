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
``fulfil``        ``orders.fulfilment.worker.fulfil_sale`` with ``batch_journal.record_batch``
``_write``        the same of ``worker``, ``_write_and_report``, with ``attempts.attempt``
``_control``      ``orders.fulfilment.attempts.write_control_row``
``write_batch``   ``orders.fulfilment.batch.write_batch``
``_raise_fence``  the same of ``worker``, with ``rebuild.ensure_safe_fence``
``load``          ``vouchers.inventory.rebuild.load_sale``: ``_copy_terms``, ``_raise_epoch``
``build``         ``vouchers.inventory.rebuild._build_ledger`` with ``lua/load.lua``
``rebuild``       ``vouchers.inventory.rebuild.rebuild_sale``
``edit``          ``vouchers.catalogue.sales.edit_sale`` with ``lua/write_terms.lua``
``wait``          ``orders.lifecycle.waiting_list.join`` with ``lua/join_waiting.lua``
``restore``       ``orders.lifecycle.waiting_list.restore_lines``
``World.give``    ``lua/include/give_units.lua``, in whatever frees a unit or looks for one
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

BATCH = 2
MAX_TRIES = 3
AGE, LEASE, JUMP = 3, 200, 10_000
"""In steps: the age at which the sweep sends an entry again, a lock's lease and a kick, and how far
a clock jumps: longer than a run, and no further than receipts tolerate."""
LIMIT = 3
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
    ONE_KEY = "the sale's state is lost with its buyers"
    ONE_SCRIPT = "reservation and promise are one script"
    SWEEP = "what is pending for too long is sent again"
    CONFIRM_LAST = "a promise is confirmed only after the commit"
    NARROW_FIRST = "an edit narrows Redis before the row"
    SECOND_LOOK = "a difference counts only if it is still there when read again"
    STRAY_TO_PENDING = "a buyer without a row goes to pending, never to release"
    RECONCILE = "ledger and database are compared and mended"
    OWN_EPOCH = "a build uses only the epoch that was raised for it"
    SURE_RECEIPT = "an id is lost or unknown only by a ledger of this run that stood all along"
    CONTROL_WRITE = "a failure counts against an entry only while a control write succeeds"
    HALVES = "a batch that fails is halved until an entry fails alone"
    ASIDE = "an entry that fails alone again and again is set aside"
    KEPT_UNIT = "an entry that is set aside keeps its unit"
    CAPS = "a lease or a kick that lasts longer than it should is capped"
    FUTURE_IS_OLD = "an entry from the future counts as old"
    NO_EXPIRY = "a message does not expire by the clock of a worker"
    DATABASE_TIME = "the time to pay follows from the clock of the database"
    TOLERANCE = "a receipt tolerates that the clock of Redis went back"
    OWN_LEDGER = "a ledger counts only with the identity of the sale's row"
    PUT_ASIDE = "a build puts the ledger of another sale aside"
    TOKEN_IDENTITY = "a token names its sale, and the ledger of another refuses it"
    WHOLE = "the units of a purchase are cut by nothing, and written in one transaction"
    PASS_OVER = "who waits for all of several is passed over until all are free"
    LINE_BY_IDS = "what the waiting list has given is known from the ids of the units"


class Violation(AssertionError):
    """An invariant does not hold: what stands before the colon is its name."""


class StaleFence(Exception):
    """``orders.fulfilment.batch.StaleFence``."""


class StaleBatchNumber(Exception):
    """``orders.fulfilment.batch.StaleBatchNumber``."""


class DatabaseRefuses(Exception):
    """A statement failed, or the answer to a commit got lost."""


class EntryFails(Exception):
    """An entry of the batch can have no row."""


class DatabaseAtFault(Exception):
    """``orders.fulfilment.attempts.DatabaseAtFault``."""


class NotLoaded(Exception):
    """``vouchers.inventory.keys.NotLoaded``."""


@dataclass
class Order:
    """A row: live, or ended for a reason."""

    user: str
    reason: str = ""

    @property
    def live(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class Entry:
    """A row of the waiting list: the ids of each purchase to which it can lead, in turn."""

    buyer: str
    quantity: int
    whole: bool
    blocks: tuple[tuple[int, ...], ...]


@dataclass
class Row:
    """The sale's row."""

    stock: int
    identity: int = 1
    sold: int = 0
    epoch: int = 0
    fence: Token = (0, 0)
    batch: int = 0


@dataclass
class Redis:
    """One Redis: the ledger's keys (an empty one is a missing one), the locks, the side keys."""

    run_id: int = 1
    state: dict[str, int] = field(default_factory=dict)
    """The sale's terms, which are a field of ``buyers``."""
    sale: dict[str, int] = field(default_factory=dict)
    """The identity of the sale, and the run of Redis on which its ledger was built."""
    buyers: dict[str, int] = field(default_factory=dict)
    pending: dict[int, str] = field(default_factory=dict)
    ended: dict[int, str] = field(default_factory=dict)
    side: dict[str, dict[Any, Any]] = field(default_factory=dict)
    line: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The waiting list: entry, by the order of joining → its next block, what it still wants."""
    since: dict[int, int] = field(default_factory=dict)
    """When an entry was accepted: its score in ``pending``."""
    aside: set[int] = field(default_factory=set)
    """Entries whose score is out of the reach of workers."""
    tries: dict[int, int] = field(default_factory=dict)
    kick: str = ""
    """Empty, ``sent`` or ``taken``."""
    kick_until: int = 0
    lock: str | None = None
    lock_until: int = 0
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
    redis_ahead: int = 0
    worker_ahead: int = 0
    refuses: str = ""
    """What the database refuses: nothing, ``writes`` or ``everything``."""
    poisoned: set[int] = field(default_factory=set)
    # What was seen from outside:
    minted: dict[int, tuple[str, int]] = field(default_factory=dict)
    sale_of: dict[int, int] = field(default_factory=dict)
    purchases: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The ids of a purchase of several units, by each of them; its buyer wants all or none."""
    entries: dict[int, Entry] = field(default_factory=dict)
    """The rows of the waiting list, by the order of joining."""
    accepted: dict[int, int] = field(default_factory=dict)
    told_lost: set[int] = field(default_factory=set)
    last_token: Token = (0, 0)
    forgetful: bool = False

    def has(self, cure: Cure) -> bool:
        return cure not in self.without

    def units(self, order_id: int) -> tuple[int, ...]:
        return self.purchases.get(order_id, (order_id,))

    def by_purchase(self, entries: dict[int, str]) -> list[dict[int, str]]:
        """Cut a batch between its purchases, or between all its entries."""
        groups: dict[int, dict[int, str]] = {}
        for order_id, user in entries.items():
            purchase = self.units(order_id)[0] if self.has(Cure.WHOLE) else order_id
            groups.setdefault(purchase, {})[order_id] = user
        return list(groups.values())

    # --- Redis: each of these is one script -------------------------------------------------------

    def stands(self) -> bool:
        """Say whether the ledger is loaded and whole (``lua/include/read_ledger.lua``)."""
        return bool(self.redis.state)

    def stands_for_row(self) -> bool:
        """Say whether a ledger stands that is this very sale's, not one of another with its id."""
        own = self.redis.state.get("identity") == self.row.identity
        return self.stands() and (own or not self.has(Cure.OWN_LEDGER))

    def redis_now(self) -> int:
        return self.now + self.redis_ahead

    def expire_keys(self) -> None:
        """What Redis does by its own clock."""
        if self.redis_now() >= self.redis.lock_until:
            self.redis.lock = None
        if self.redis_now() >= self.redis.kick_until:
            self.redis.kick = ""

    def cap(self, name: str) -> None:
        """``locks/lua/cap_leases.lua`` and ``include/repair_key.lua``."""
        if self.has(Cure.CAPS):
            left = min(getattr(self.redis, name), self.redis_now() + LEASE)
            setattr(self.redis, name, left)

    def set_kick(self, value: str) -> None:
        self.redis.kick, self.redis.kick_until = value, self.redis_now() + LEASE

    def workable(self) -> dict[int, str]:
        aside = self.redis.aside
        return {i: user for i, user in self.redis.pending.items() if i not in aside}

    def held(self) -> dict[str, int]:
        return dict(self.redis.buyers)

    def take_lock(self, me: str, epoch: int) -> Token | None:
        """``locks/lua/acquire.lua``: a token above the counter and above the floor."""
        if self.redis.lock:
            self.cap("lock_until")
            return None
        self.redis.lock_until = self.redis_now() + LEASE
        floor = max(self.redis.fence, (epoch, 0))
        self.redis.lock, self.redis.fence = me, (floor[0], floor[1] + 1)
        return self.redis.fence

    def confirm(self, ids: Iterable[int]) -> None:
        for order_id in ids:
            self.redis.pending.pop(order_id, None)
            self.redis.tries.pop(order_id, None)

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
        self.give()

    def give(self) -> None:
        """Give free units to the line: the first to have joined that can be served, and again."""
        redis = self.redis
        while self.stands() and (free := redis.state["total"] - len(redis.buyers)) > 0:
            chosen = next((it for it in sorted(redis.line) if self._fits(it, free)), None)
            if chosen is None:
                return
            entry, (block, wanted) = self.entries[chosen], redis.line.pop(chosen)
            spare = [it for it in unit_names(entry.buyer) if it not in redis.buyers]
            count = min(wanted, free, len(spare))
            if entry.whole and count < wanted and self.has(Cure.PASS_OVER):
                continue  # the limit does not leave so many
            ids = entry.blocks[block][:count]
            for lost in entry.blocks[block]:  # given before, and lost with Redis before the row
                self.purchases.pop(lost, None)
            for order_id, name in zip(ids, spare, strict=False):
                self.minted[order_id] = (name, self.redis_now())
                self.purchases[order_id] = ids
                redis.buyers[name], redis.pending[order_id] = order_id, name
                redis.since[order_id] = self.redis_now()
            if count < min(wanted, len(spare)):
                redis.line[chosen] = (block + 1, wanted - count)

    def _fits(self, number: int, free: int) -> bool:
        wanted = self.redis.line[number][1]
        return not (self.entries[number].whole and self.has(Cure.PASS_OVER)) or wanted <= free

    def rest_of(self, number: int, served: Collection[int]) -> tuple[int, int]:
        """Return the next block of an entry and what it still wants, by the ids that had a unit."""
        entry = self.entries[number]
        block, wanted = 0, entry.quantity
        while wanted and entry.blocks[block][0] in served and self.has(Cure.LINE_BY_IDS):
            wanted -= sum(it in served for it in entry.blocks[block][:wanted])
            block += 1
            if entry.whole:
                wanted = 0
        return block, wanted

    def give_back(self, user: str) -> None:
        order_id = self.redis.buyers.pop(user)
        if order_id not in self.orders or self.orders[order_id].live:
            raise Violation(f"given back once: the unit of order {order_id}, which has not ended")

    def forget_nameless(self) -> None:
        """A known limit: entries of another sale that name none are taken for this one's."""
        redis, ids = self.redis, {*self.held().values(), *self.redis.pending}
        foreign = any(self.sale_of[i] != self.row.identity for i in ids)
        if foreign and not redis.state and not redis.sale:
            redis.buyers, redis.pending = {}, {}

    def publish(self) -> None:
        self.tasks += 1

    # --- The database -----------------------------------------------------------------------------

    def sql(self, *, write: bool = False) -> None:
        """Fail like a statement while the database refuses everybody."""
        if self.refuses == "everything" or (write and self.refuses):
            raise DatabaseRefuses

    def live(self) -> set[int]:
        return {order_id for order_id, order in self.orders.items() if order.live}

    def live_of(self, user: str) -> int | None:
        return next((i for i in self.live() if self.orders[i].user == user), None)

    def lock_row(self, me: str) -> Steps:
        """``SELECT … FOR UPDATE``: what follows in the same step is done with the row held."""
        while self.row_held_by not in (None, me):
            yield WAITS
        self.sql()
        self.row_held_by = me

    def raise_epoch(self) -> None:
        """Raise the row's epoch, and its fence with it."""
        self.sql(write=True)
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
        for units in set(self.purchases.values()):
            ends = {i in self.orders and self.orders[i].reason for i in units}
            if len({end if end in (False, "cancelled") else not end for end in ends}) > 1:
                raise Violation(f"whole: {units} have ended as {ends}")
        self.check_wanted()
        if other := {i for i in self.orders if self.sale_of[i] != self.row.identity}:
            raise Violation(f"own sale: {other} were never ordered in this sale")

    def check_wanted(self) -> None:
        for entry in self.entries.values():
            got = [i for block in entry.blocks for i in block if i in self.orders]
            if len(got) > entry.quantity or (entry.whole and 0 < len(got) < entry.quantity):
                raise Violation(f"as wanted: {got} for {entry}")

    def check_fenced(self, token: Token) -> None:
        if token < self.last_token:
            raise Violation(f"fenced: {token} wrote after {self.last_token}")
        self.last_token = token

    def tell(self, order_id: int, asked_at: int, loaded_at: int) -> None:
        """Somebody is told that an accepted order is nowhere."""
        tolerance = JUMP if self.row.epoch > 1 and self.has(Cure.TOLERANCE) else 0
        if self.minted[order_id][1] >= loaded_at + tolerance:
            raise Violation(f"same answer: {order_id} was accepted and is unknown now")
        if not self.forgetful:
            raise Violation(f"same answer: {order_id} is told to be lost, Redis lost nothing")
        if self.accepted[order_id] < asked_at:
            self.told_lost.add(order_id)

    def check_blame(self, order_id: int) -> None:
        if not self.poisoned & {*self.units(order_id)}:
            raise Violation(f"no innocent: {order_id} is set aside, and nothing is wrong with it")

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
        self.check_line_quiet()
        if self.stands() and (redis.state["total"], self.row.sold) != (self.row.stock, len(live)):
            raise Violation("conservation: total or sold is off")

    def check_line_quiet(self) -> None:
        redis = self.redis
        for number in self.entries:
            _, wanted = self.rest_of(number, {*self.orders})
            if self.stands() and wanted and redis.line.get(number, (0, wanted))[1] != wanted:
                raise Violation(f"as wanted: entry {number} waits for {redis.line[number]}")
        free = redis.state["total"] - len(redis.buyers) if self.stands() else 0
        if free and any(self._fits(number, free) for number in redis.line):
            raise Violation(f"nobody waits for a free unit: {redis.line}, and {free} are free")


def unit_names(buyer: str) -> list[str]:
    """Return the fields of ``buyers`` that a buyer of several units may have."""
    return [f"{buyer}'s unit {unit}" for unit in range(1, LIMIT + 1)]


# --- Front half -----------------------------------------------------------------------------------


def place(w: World, me: str, order_id: int) -> Steps:
    """A buyer sends a token; what is accepted is accepted, also where the answer gets lost."""
    if not w.stands():
        yield from load(w, me)
    redis, user = w.redis, w.minted[order_id][0]
    held = redis.buyers.get(user)
    if not w.stands():
        return
    if redis.state["identity"] != w.sale_of[order_id] and w.has(Cure.TOKEN_IDENTITY):
        yield f"{order_id} is of another sale"
        yield from load(w, me)
        return
    units = w.units(order_id)
    if held == order_id or redis.ended.get(order_id) == user:
        w.told_lost -= {*units}
        yield f"{order_id} is known already"
        return
    w.give()
    if held or len(w.held()) + len(units) > redis.state["total"]:
        yield f"{order_id} is refused"
        return
    if {w.minted[it][0] for it in units} & redis.buyers.keys():
        yield f"{order_id} is refused: the line has given its buyer a unit"
        return
    yield from _reserve(w, order_id)


def _reserve(w: World, order_id: int) -> Steps:
    units = {unit: w.minted[unit][0] for unit in w.units(order_id)}
    for unit, user in units.items():
        w.redis.buyers[user] = unit
        if w.sale_of[unit] == w.row.identity:
            w.accepted[unit] = w.now
    w.told_lost -= units.keys()
    if not w.has(Cure.ONE_SCRIPT):
        yield f"{order_id} is reserved"
    w.redis.pending |= units
    w.redis.since |= dict.fromkeys(units, w.redis_now())
    if kicked := not w.redis.kick:
        w.set_kick("sent")
    yield f"{order_id} is accepted"
    if kicked:
        w.publish()
        yield "publishes a task"


def ask(w: World, me: str, order_id: int) -> Steps:
    """The receipt of an id: its row, else queued, else ended, else lost with an older ledger."""
    asked_at = w.now
    w.sql()
    if order_id in w.orders:
        return
    yield f"{order_id} has no row"
    if not w.stands():
        yield from load(w, me)
    loaded_at = w.redis.state.get("loaded_at", 0)
    yield "reads when the ledger was loaded"
    known = {*w.held().values(), *w.redis.pending, *w.redis.ended}
    if not w.stands() or order_id in known:
        return
    yield f"{order_id} is not in the ledger"
    w.sql()
    if order_id in w.orders or w.accepted[order_id] >= asked_at:
        return
    yield f"{order_id} still has no row"
    found = w.redis.state.get("loaded_at"), w.redis.sale.get("run_id")
    sure = found == (loaded_at, w.redis.run_id)
    if sure or not w.has(Cure.SURE_RECEIPT):
        w.tell(order_id, asked_at, loaded_at)
        yield f"tells that {order_id} is lost"


# --- Back half ------------------------------------------------------------------------------------


def fulfil(w: World, me: str) -> Steps:
    """One task: lock, pending, number, transaction, then the ledger; what is left goes on."""
    if w.redis.kick:
        w.set_kick("taken")
    yield "takes the kick"
    w.sql()
    if not w.stands_for_row():
        yield from load(w, me)
    epoch = w.redis.state.get("epoch", 0)
    yield f"reads epoch {epoch}"
    token = w.take_lock(me, epoch)
    if token is None:
        return
    yield f"has the lock, token {token}"
    entries = dict(islice(w.workable().items(), BATCH))
    if w.has(Cure.WHOLE):
        cut = {unit for order_id in entries for unit in w.units(order_id)}
        entries |= {unit: user for unit, user in w.workable().items() if unit in cut}
    yield f"reads pending {list(entries)}"
    settled = yield from _settle(w, me, entries, token)
    if w.redis.lock == me:
        w.redis.lock = None
    yield "lets go"
    if settled:
        yield from _end_task(w)


def _end_task(w: World) -> Steps:
    if w.redis.kick == "taken":
        w.redis.kick = ""
    yield "ends the kick"
    if w.workable() and w.redis.kick != "sent":
        w.set_kick("sent")
        w.publish()
    yield "looks for the last time"


def _settle(w: World, me: str, entries: dict[int, str], token: Token) -> Generator[str, None, bool]:
    """Write a batch; return False if the database is at fault, so that the sale is left alone."""
    try:
        if entries:
            yield from _write_or_recover(w, me, entries, token)
    except (DatabaseAtFault, DatabaseRefuses):
        w.unlock_row(me)
        return False
    return True


def _write_or_recover(w: World, me: str, entries: dict[int, str], token: Token) -> Steps:
    if not w.has(Cure.CONFIRM_LAST):
        w.confirm(entries)
        yield "confirms too early"
    try:
        yield from _write(w, me, entries, token)
    except NotLoaded:
        yield "finds no ledger"
    except StaleFence as error:
        (stored,) = error.args
        yield "is refused by the fence"
        yield from _raise_fence(w, me, stored)
    except StaleBatchNumber:
        yield f"is refused: the row has seen batch {w.row.batch}"
        if w.redis.state.get("batch", w.row.batch) < w.row.batch:
            yield from rebuild(w, me)


def _write(w: World, me: str, entries: dict[int, str], token: Token) -> Steps:
    """Write these entries, halving a batch that fails; blame one that fails alone."""
    try:
        refused = yield from _attempt(w, me, entries, token)
    except (EntryFails, DatabaseRefuses):
        yield f"fails with {list(entries)}"
        parts = w.by_purchase(entries)
        if len(parts) > 1 and w.has(Cure.HALVES):
            for part in parts:
                yield from _write(w, me, part, token)
            return
        yield from _control(w, me, token)
        for part in parts:
            yield from _count_failure(w, list(part))
        return
    if any(w.orders[order_id].reason == "sold out" for order_id in refused):
        yield from load(w, me)
    w.release(refused, refused)
    yield f"releases {list(refused)}"
    w.confirm(entries.keys() - refused.keys())
    yield f"confirms {list(entries.keys() - refused.keys())}"


def _attempt(
    w: World, me: str, entries: dict[int, str], token: Token
) -> Generator[str, None, dict[int, int | None]]:
    """Write a batch, and once more if it fails although the database takes a control write."""
    try:
        return (yield from _write_numbered(w, me, entries, token))
    except (EntryFails, DatabaseRefuses):
        w.unlock_row(me)
        yield f"fails to write {list(entries)}"
    yield from _control(w, me, token)
    return (yield from _write_numbered(w, me, entries, token))


def _control(w: World, me: str, token: Token) -> Steps:
    """Write for no buyer, to find out who is at fault."""
    if not w.has(Cure.CONTROL_WRITE):
        return
    try:
        yield from _write_numbered(w, me, {}, token)
    except DatabaseRefuses:
        raise DatabaseAtFault from None


def _write_numbered(
    w: World, me: str, entries: dict[int, str], token: Token
) -> Generator[str, None, dict[int, int | None]]:
    if not w.stands_for_row():
        raise NotLoaded
    w.redis.state["batch"] += 1
    number = w.redis.state["batch"]
    yield f"begins batch {number}"
    return (yield from write_batch(w, me, entries, token, number))


def _count_failure(w: World, units: list[int]) -> Steps:
    order_id = units[0]
    failures = w.redis.tries[order_id] = w.redis.tries.get(order_id, 0) + 1
    yield f"counts failure {failures} of {order_id}"
    if failures < MAX_TRIES or not w.has(Cure.ASIDE) or order_id not in w.redis.pending:
        return
    w.check_blame(order_id)
    w.redis.aside.update(units)
    user = w.minted[order_id][0]
    if w.redis.buyers.get(user) == order_id and not w.has(Cure.KEPT_UNIT):
        w.give_back(user)
    yield f"sets {order_id} aside"


def _raise_fence(w: World, me: str, stored: Token) -> Steps:
    """Let the next token be above the row's, but never one of an epoch that a build may use."""
    epoch = w.redis.state.get("epoch")
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
    w.sql()
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
    if w.poisoned & entries.keys() - w.orders.keys():
        raise EntryFails
    w.sql(write=True)
    new = {i: Order(entries[i], reason) for i, reason in reasons.items() if i not in w.orders}
    w.orders |= new
    w.row.sold += sum(order.live for order in new.values())
    w.row.fence, w.row.batch = token, number
    w.check_fenced(token)
    pay_by = w.now + LEASE + (0 if w.has(Cure.DATABASE_TIME) else w.worker_ahead)
    if new and pay_by <= w.now:
        raise Violation(f"time to pay: {list(new)} could never be paid for")
    yield f"commits {reasons}"
    w.sql(write=True)  # the answer to the commit may get lost
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
        if reasons[order_id] and order_id not in w.orders:
            room += _refuse_all(w, reasons, order_id)
    for order_id in reasons.keys() - w.orders.keys():
        refused = [reasons[it] for it in w.units(order_id) if reasons.get(it)]
        reasons[order_id] = reasons[order_id] or (refused or [""])[0]
    return reasons


def _refuse_all(w: World, reasons: dict[int, str], order_id: int) -> int:
    """Refuse the units before this one of a purchase, too; return how many are free again."""
    before = [it for it in w.units(order_id) if it in reasons and not reasons[it]]
    new = [it for it in before if it not in w.orders]
    reasons |= dict.fromkeys(new, reasons[order_id])
    return len(new)


def sweep(w: World, me: str) -> Steps:
    """Send a task where something is pending and none is on its way."""
    w.cap("kick_until")
    age = w.redis_now() - min((w.redis.since.get(i, 0) for i in w.workable()), default=0)
    is_old = age >= AGE or (age < 0 and w.has(Cure.FUTURE_IS_OLD))
    if w.workable() and is_old and not w.redis.kick:
        w.set_kick("sent")
        yield "kicks"
        w.publish()
        yield "publishes a task"


# --- Loading --------------------------------------------------------------------------------------


def load(w: World, me: str) -> Steps:
    """Copy the figures into a ledger that stands, else raise the epoch and build one."""
    yield from w.lock_row(me)
    yield "holds the row"
    if w.stands_for_row():
        w.redis.state["total"] = w.row.stock
        w.give()
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
    _put_foreign_aside(w)
    if w.stands() and w.has(Cure.ONLY_IF_NONE):
        w.unlock_row(me)
        return
    survivors = {user: i for i, user in w.redis.pending.items()} | w.held()
    promised = dict(w.redis.pending)
    yield f"reads survivors {survivors}, pending {list(promised)}"
    w.sql()
    live = {w.orders[i].user: i for i in w.live()}
    ended = {i: order.user for i, order in w.orders.items() if not order.live}
    stock, batch = w.row.stock, w.row.batch
    yield f"reads orders {live}"
    if not w.has(Cure.ROW_HELD):
        w.unlock_row(me)
    epoch, identity = w.row.epoch, w.row.identity
    buyers = survivors | live
    promised = {i: user for i, user in promised.items() if i not in live.values()}
    promised |= {i: u for u, i in survivors.items() if i == buyers[u] and i not in live.values()}
    w.redis.side |= {f"{me} buyers": buyers}
    yield "writes side keys: buyers"
    w.redis.side |= {f"{me} pending": promised, f"{me} ended": ended}
    served = {*buyers.values(), *ended, *promised}
    rests = {number: w.rest_of(number, served) for number in w.entries}
    line = {number: rest for number, rest in rests.items() if rest[1]}
    yield "writes side keys: pending, ended"
    run_id = w.redis.run_id
    yield f"reads run id {run_id}"
    side = [w.redis.side.pop(f"{me} {name}", None) for name in ("buyers", "pending", "ended")]
    if None not in side and not (w.stands() and w.has(Cure.ONLY_IF_NONE)):
        w.redis.buyers, w.redis.pending, w.redis.ended = (it or {} for it in side)
        w.redis.sale = {"identity": identity, "run_id": run_id}
        w.redis.state = {"epoch": epoch, "identity": identity, "total": stock, "batch": batch}
        w.redis.state["loaded_at"] = w.redis_now()
        w.redis.kick = ""
        w.redis.line = {n: rest for n, rest in line.items() if n in w.entries}
        w.give()
    yield f"installs buyers {w.held()}, pending {list(w.redis.pending)}"
    w.unlock_row(me)


def _put_foreign_aside(w: World) -> None:
    """``lua/put_foreign_aside.lua``: the state or ``sale`` tells whose ledger it is."""
    found = w.redis.state.get("identity") or w.redis.sale.get("identity")
    if found and found != w.row.identity and w.has(Cure.PUT_ASIDE):
        run_id, fence = w.redis.run_id, w.redis.fence
        lock, lock_until = w.redis.lock, w.redis.lock_until
        w.redis = Redis(run_id=run_id, fence=fence, lock=lock, lock_until=lock_until)


def rebuild(w: World, me: str) -> Steps:
    """Close a sale whose ledger cannot be believed, and build it from what is left of it."""
    w.sql()
    _put_foreign_aside(w)
    yield "puts the ledger of another sale aside"
    w.redis.state = {}
    yield "closes the sale"
    yield from load(w, me)


def watch(w: World, me: str) -> Steps:
    """Build a ledger anew that was built on another run of Redis."""
    run_id = w.redis.run_id
    yield f"reads run id {run_id}"
    state, built_on = w.redis.state, w.redis.sale.get("run_id")
    other_run = built_on != run_id and w.has(Cure.RUN_ID)
    w.sql()
    other_sale = state.get("identity") != w.row.identity and w.has(Cure.OWN_LEDGER)
    if state and (other_run or other_sale):
        yield "finds a ledger of another run or sale"
        yield from rebuild(w, me)


# --- The waiting list -----------------------------------------------------------------------------


def wait(w: World, me: str, number: int, entry: Entry) -> Steps:
    """Join the line: the row first, then the ledger."""
    w.sql(write=True)
    w.entries[number] = entry
    yield f"waits for {entry.quantity}, {'all or none' if entry.whole else 'as they come'}"
    yield from _put_in_line(w, me, number)


def restore(w: World, me: str) -> Steps:
    """Put entries back that Redis has lost, without what they were given."""
    w.sql()
    missing = [number for number in w.entries if number not in w.redis.line]
    yield f"misses {missing} in the line"
    for number in missing:
        yield from _put_in_line(w, me, number)
    yield from load(w, me)


def _put_in_line(w: World, me: str, number: int) -> Steps:
    if not w.stands_for_row():
        yield from load(w, me)
    if not w.stands_for_row() or number in w.redis.line or number not in w.entries:
        return
    rest = w.rest_of(number, {*w.redis.buyers.values(), *w.redis.ended})
    if rest[1]:
        w.redis.line[number] = rest
        yield f"puts entry {number} in line: {rest}"


# --- The shop and the buyer change their minds ----------------------------------------------------


def edit(w: World, me: str, stock: int) -> Steps:
    """Set the units offered: down in Redis first, while the row is held; up in the row first."""
    yield from w.lock_row(me)
    yield f"holds the row, to make stock {stock}"
    down = stock < w.row.stock
    if stock < w.row.sold or (down and (not w.stands_for_row() or stock < len(w.held()))):
        w.unlock_row(me)
        return
    if down and w.has(Cure.NARROW_FIRST):
        w.redis.state["total"] = stock
        yield f"narrows total to {stock}"
    elif down:
        yield "has seen that fewer are taken"
    w.sql(write=True)
    w.row.stock = stock
    w.unlock_row(me)
    yield f"commits stock {stock}"
    yield from load(w, me)


def cancel(w: World, me: str, order_id: int) -> Steps:
    """A buyer gives an order up: in the database first, then in Redis."""
    yield from w.lock_row(me)
    w.unlock_row(me)
    units = [it for it in w.units(order_id) if it in w.live()]
    if order_id not in units:
        return
    w.sql(write=True)
    for unit in units:
        w.orders[unit].reason = "cancelled"
    w.row.sold -= len(units)
    yield f"commits that {order_id} is cancelled"
    w.release(units, {})
    yield f"releases {order_id}"


# --- Reconciling ----------------------------------------------------------------------------------


def reconcile(w: World, me: str) -> Steps:
    """Compare by ids in the order buyers, pending, orders; look again; mend."""
    w.sql()
    if not w.stands_for_row():
        yield from load(w, me)
        return
    buyers = set(w.held().values())
    yield f"reads buyers {buyers}"
    pending = set(w.redis.pending)
    yield f"reads pending {pending}"
    w.sql()
    live = w.live()
    stray, missing, promised = buyers - pending - live, live - buyers, pending - buyers - live
    if w.has(Cure.SECOND_LOOK) and (stray or missing or promised):
        yield "has differences, looks again"
        w.sql()
        missing &= w.live()
        yield "reads the orders again"
        held = set(w.held().values())
        missing, promised = missing - held, (promised & w.redis.pending.keys()) - held
        w.check_alarm(missing | promised)
        stray = (stray & held) - w.redis.pending.keys()
        yield "reads the ledger again"
        w.sql()
        stray -= w.live()
    else:
        w.check_alarm(missing | promised | stray)
    yield f"counts stray {stray}, missing {missing}, promised only {promised}"
    yield from load(w, me)
    yield from _mend(w, me, stray, missing, promised)


def _mend(w: World, me: str, stray: set[int], missing: set[int], promised: set[int]) -> Steps:
    for units in w.by_purchase({it: w.minted[it][0] for it in sorted(stray)}):
        for order_id, user in units.items():
            if w.redis.buyers.get(user) == order_id and w.has(Cure.STRAY_TO_PENDING):
                w.redis.pending.setdefault(order_id, user)
            elif w.redis.buyers.get(user) == order_id:
                w.give_back(user)
        yield f"puts {', '.join(map(str, units))} back to pending"
    for order_id in sorted(promised & w.redis.pending.keys()):
        w.redis.buyers.setdefault(w.minted[order_id][0], order_id)
        yield f"makes {order_id} a buyer again"
    yield from w.lock_row(me)
    missing &= w.live()
    yield "holds the row"
    for order_id in sorted(missing):
        w.redis.buyers.setdefault(w.orders[order_id].user, order_id)
    yield f"enters {missing} among the buyers"
    w.sql(write=True)
    w.row.sold = len(w.live())
    w.unlock_row(me)
    yield f"counts sold again: {w.row.sold}"
