"""Reservations: one unit of a sale promised to one buyer, in Redis.

Every function is one script or one command on the sale's keys. If Redis does not respond it raises
``LedgerUnavailable``: the outcome is unknown, and the same call again gives the same answer.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache, partial
from math import isfinite
from typing import Any, NamedTuple, Self, assert_never

from django.conf import settings
from redis.exceptions import RedisError

from locks.lua_script import ScriptCall
from seckill_site.kept_settings import kept
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory import sold_out_cache
from vouchers.inventory.holdings import MEMBER, Holding, put_junk_aside
from vouchers.inventory.keys import (
    ASIDE_MS,
    LedgerKeys,
    LedgerUnavailable,
    NotLoaded,
    OtherSale,
    ledger_errors,
    ledger_script,
    log_wrong_types,
    run_script,
)
from vouchers.inventory.order_limits import LimitKind, counted_subject, forget_first_order
from vouchers.inventory.purchases import further_ids
from vouchers.inventory.receipt_cache import ROTATION_MS

ENDED_RETENTION_MS = settings.SECKILL_TOKEN_GRACE_MS + 60 * 60 * 1000
"""The time that ended ids are kept after a sale: an hour longer than any token that names one."""

ACKNOWLEDGED_KICK_MS = 200
"""The lifetime of a kick after its task has started.

If it ended at once, each reservation during the task's work would send another task in vain.
"""

BACKOFF_MS = (250, 4_000)
"""The pause after the database took no order of a sale: the first, and the longest. It doubles."""

FAILURES_KEPT_MS = 4 * BACKOFF_MS[1]

_RESERVE = ledger_script("reserve")
_READ_PENDING = ledger_script("read_pending")
_CONFIRM = ledger_script("confirm")
_RELEASE = ledger_script("release")
_RETAKE = ledger_script("retake")
_SET_KICK = ledger_script("set_kick")
_CLEAR_KICK = ledger_script("clear_kick")
_CLAIM_SWEEP = ledger_script("claim_sweep")


logger = logging.getLogger(__name__)


class ReservationRefused(Exception):
    """The ledger refuses this buyer; the subclass says why."""


class NotStarted(ReservationRefused):
    """The sale has not started."""


class SaleEnded(ReservationRefused):
    """The sale has ended."""


class SalePaused(ReservationRefused):
    """The sale is paused."""


class NotAdmitted(ReservationRefused):
    """The sale has a waiting room, and it has not let this buyer in."""


class PriceChanged(ReservationRefused):
    """The buyer agreed to another price than this one, in cents."""


class OtherMode(ReservationRefused):
    """The token was issued while the sale had another mode."""


class SoldOut(ReservationRefused):
    """No unit is left. Both times are by the clock of Redis, and None if unknown."""

    def __init__(self, arrived_at_ms: int | None = None, sold_out_at_ms: int | None = None) -> None:
        super().__init__("no unit is left")
        self.arrived_at_ms = arrived_at_ms
        self.sold_out_at_ms = sold_out_at_ms


class AlreadyOrdered(ReservationRefused):
    """The buyer holds as many units as the limit allows, or an ended order bars another."""

    def __init__(self, order_id: int) -> None:
        super().__init__(f"the buyer has order {order_id}")
        self.order_id = order_id


class TooFew(ReservationRefused):
    """The buyer wants all of several units or none, and could get only ``left``."""

    def __init__(self, left: int) -> None:
        super().__init__(f"the buyer could get {left}")
        self.left = left


class OrdersLimited(ReservationRefused):
    """The client's address or the account has ordered too often; ``limit`` is which of them."""

    def __init__(self, subject: str, wait_ms: int) -> None:
        super().__init__(f"{subject} is at its limit for {wait_ms} ms")
        self.limit, self.wait_ms = LimitKind(subject[:1]), wait_ms


class StillPending(ReservationRefused):
    """The order is still pending: fulfilment decides on it first."""


class SaleBehind(Exception):
    """Orders are written too slowly: a new buyer would wait too long, or nobody knows how long."""

    def __init__(self, behind_ms: int) -> None:
        super().__init__(f"orders are written {behind_ms} ms late")
        self.behind_ms = behind_ms


class ReserveCode(StrEnum):
    """The codes of ``reserve.lua``."""

    ACCEPTED = "ACCEPTED"
    ALREADY_ORDERED = "ALREADY_ORDERED"
    BEHIND = "BEHIND"
    LIMITED = "LIMITED"
    PRICE_CHANGED = "PRICE_CHANGED"
    SOLD_OUT = "SOLD_OUT"
    TOO_FEW = "TOO_FEW"
    NOT_LOADED = "NOT_LOADED"
    OTHER_SALE = "OTHER_SALE"
    PAUSED = "PAUSED"
    NOT_STARTED = "NOT_STARTED"
    ENDED = "ENDED"
    NOT_ADMITTED = "NOT_ADMITTED"
    OTHER_MODE = "OTHER_MODE"


class RetakeCode(StrEnum):
    """The codes of ``retake.lua``."""

    RETAKEN = "RETAKEN"
    PENDING = "PENDING"
    TAKEN = "TAKEN"
    SOLD_OUT = "SOLD_OUT"
    NOT_LOADED = "NOT_LOADED"


class Reservation(NamedTuple):
    """An accepted buyer. If ``kick_due``, the caller publishes one fulfil task."""

    order_id: int
    kick_due: bool


class NotReplicated(LedgerUnavailable):
    """The unit is reserved, but too few replicas acknowledged it. It is safe to repeat.

    As with any reservation, the caller publishes one fulfil task if its kick is due.
    """

    def __init__(self, reservation: Reservation, replicas: int, wanted: int) -> None:
        super().__init__(f"{replicas} of {wanted} replicas have order {reservation.order_id}")
        self.reservation = reservation


class Refused(NamedTuple):
    """The ledger's no to an order; ``first_of`` is the address that sent it as its first.

    It does not hold the error, which would then be in a frame of its own traceback: a cycle.
    """

    kind: type[Exception]
    about: tuple[Any, ...]
    sale_id: int
    first_of: str = ""


Reply = Reservation | Refused
"""What the ledger says to an order."""


@dataclass(frozen=True)
class PendingEntry(Holding):
    """A reservation that is not yet an order, with the Redis time at which it was accepted."""

    accepted_at_ms: int

    @classmethod
    def read(cls, member: str, score: str) -> Self | None:
        """Return what a member of ``pending`` and its score say; None if one cannot be parsed."""
        match, at_ms = MEMBER.fullmatch(member), float(score)
        if not match or not isfinite(at_ms):
            return None
        order_id, user_id, unit = match.groups()
        return cls(int(order_id), int(user_id), int(unit), int(at_ms))


@dataclass(frozen=True)
class Release:
    """A reservation or order that ended, why, and the live order that takes its unit if any.

    ``had_order`` says that the buyer had an order, which may bar another.
    """

    entry: Holding
    reason: str
    live_order_id: int | None = None
    had_order: bool = False


# --- Front half ----------------------------------------------------------------------------------


def reserve_call(
    *,
    sale_id: int,
    order_id: int,
    user_id: int,
    identity: int = 0,
    minted_ms: int | None = None,
    address: str = "",
    price_cents: int | None = None,
    quantity: int = 1,
    all_or_none: bool = False,
) -> ScriptCall[Reply]:
    """Build the call that reserves units for this buyer, the first under this order id.

    Safe to repeat: the same id gets the same answer. ``identity`` is that of the sale which the
    buyer asked for; 0 is not checked. ``minted_ms`` says when the id was minted, in ms since 1970;
    None if a waiting room has let the buyer in. ``address`` is the client's, empty if it has no
    limit. ``price_cents`` is what the buyer agrees to, None for any price. Of a ``quantity``, the
    buyer gets as many as are left; with ``all_or_none`` all of them, or is refused. An id without a
    block is good for one unit. What follows the reply, :func:`finish_reservation` does.
    """
    kick_ms, behind_ms, replicas, limits = reserve_settings()
    ids, wait = (str(order_id), str(user_id)), 1 if replicas else ""
    minted = "" if minted_ms is None else minted_ms
    subject, first = counted_subject(sale_id=sale_id, address=address, quantity=quantity)
    first_of = address if address and not subject else ""
    call = ScriptCall(
        script=_RESERVE,
        keys=_reserve_keys(sale_id),
        args=(
            *ids, kick_ms, behind_ms, str(identity or ""), minted, wait, subject, *limits, first,
            "" if price_cents is None else price_cents,
            *(_several(order_id, quantity, all_or_none) if quantity > 1 else ()),
        ),
        read=partial(read_reply, ReserveCode, sale_id, first_of),
    )  # fmt: skip
    return replicated(call, sale_id=sale_id, wanted=replicas) if replicas else call


def _several(order_id: int, quantity: int, all_or_none: bool) -> tuple[int | str, ...]:
    """Return the fewest units to give, and the order ids of those after the first."""
    ids = further_ids(order_id, quantity=quantity, all_or_none=all_or_none)
    return (quantity if all_or_none else 1, *map(str, ids))


@kept
def reserve_settings() -> tuple[int, int, int, tuple[int, int]]:
    """Return the kick's and the longest delay's milliseconds, the replicas, and the limits."""
    kick_ms, behind_ms = settings.SECKILL_KICK_MS, settings.SECKILL_BEHIND_MS
    limits = settings.SECKILL_ORDERS_PER_ADDRESS, settings.SECKILL_ORDERS_PER_ACCOUNT
    return kick_ms, behind_ms, settings.SECKILL_LEDGER_REPLICAS, limits


@lru_cache(maxsize=1024)
def _reserve_keys(sale_id: int) -> tuple[str, ...]:
    keys = LedgerKeys(sale_id)
    return (*keys.contents, keys.kick, keys.pace, keys.limits, keys.limited, keys.price, keys.sale)


def replicated(call: ScriptCall[Reply], *, sale_id: int, wanted: int) -> ScriptCall[Reply]:
    """Let ``WAIT`` follow in the same write, and refuse what too few replicas have."""

    def read(replies: Sequence[Any]) -> Reply:
        reply, replicas = call.read(replies[0]), int(replies[1])
        if isinstance(reply, Refused) or replicas >= wanted:
            return reply
        return Refused(NotReplicated, (reply, replicas, wanted), sale_id)

    wait = ("WAIT", wanted, settings.SECKILL_LEDGER_REPLICAS_MS)
    return call._replace(then=[wait], read=read)


REFUSALS: dict[str, tuple[type[Exception], str]] = {
    ReserveCode.NOT_LOADED: (NotLoaded, "is not loaded"),
    ReserveCode.OTHER_SALE: (OtherSale, "has the ledger of another sale"),
    ReserveCode.PAUSED: (SalePaused, "is paused"),
    ReserveCode.NOT_STARTED: (NotStarted, "has not started"),
    ReserveCode.ENDED: (SaleEnded, "has ended"),
    ReserveCode.OTHER_MODE: (OtherMode, "has another mode than the token"),
    ReserveCode.NOT_ADMITTED: (NotAdmitted, "has a waiting room that did not let this buyer in"),
}
"""The exceptions of codes that carry no figures; the scripts share these codes."""


def read_reply(codes: type[StrEnum], sale_id: int, first_of: str, reply: str) -> Reply:
    """Read the reply of a script with these codes to an order."""
    code, *figures = reply.split(" ")
    kind: type[Exception]
    about: tuple[Any, ...]
    match codes(code):
        case ReserveCode.ACCEPTED:
            return Reservation(int(figures[0]), kick_due=figures[1:] == ["1"])
        case ReserveCode.SOLD_OUT:
            kind, about = SoldOut, (int(figures[0]), int(figures[1]) if figures[1] else None)
        case ReserveCode.ALREADY_ORDERED:
            kind, about = AlreadyOrdered, (int(figures[0]),)
        case ReserveCode.TOO_FEW:
            kind, about = TooFew, (int(figures[0]),)
        case ReserveCode.PRICE_CHANGED:
            kind, about = PriceChanged, (int(figures[0]),)
        case ReserveCode.BEHIND:
            kind, about = SaleBehind, (int(figures[0]),)
        case ReserveCode.LIMITED:
            kind, about = OrdersLimited, (figures[0], int(figures[1]))
        case other:
            kind, text = REFUSALS[other]
            about = (f"sale {sale_id} {text}",)
    return Refused(kind, about, sale_id, first_of)


def finish_reservation(reply: Reply) -> Reservation:
    """Return a reservation; remember a refusal as far as later requests need it, and raise it.

    :raises OtherSale: the ledger is that of another sale with this id.
    :raises ReservationRefused: the ledger refuses this buyer; the subclass says why.
    :raises NotAdmitted: the waiting room was open when the id was minted, and the buyer waits.
    :raises OrdersLimited: the address or the account has ordered too often.
    :raises SaleBehind: orders are written too slowly; a later call may be accepted.
    :raises NotReplicated: reserved, but fewer than ``SECKILL_LEDGER_REPLICAS`` replicas know it.
    :raises NotLoaded: the sale has to be loaded first.
    """
    if isinstance(reply, Reservation):
        return reply
    if reply.first_of:
        forget_first_order(sale_id=reply.sale_id, address=reply.first_of)
    if reply.kind is SoldOut:
        arrived_at_ms, sold_out_at_ms = reply.about
        sold_out_cache.remember_sold_out(
            sale_id=reply.sale_id, arrived_at_ms=arrived_at_ms, sold_out_at_ms=sold_out_at_ms
        )
    raise reply.kind(*reply.about)


def ended_reason(*, sale_id: int, order_id: int, user_id: int) -> str | None:
    """Return why this buyer's order id ended, or None if the ledger does not know it."""
    with ledger_errors():
        value = ledger_connection().hget(LedgerKeys(sale_id).ended, str(order_id))
    owner, _, reason = (value or "").partition(":")
    return reason if owner == str(user_id) else None


def ended_reasons(*, sale_id: int) -> dict[int, str]:
    """Return why each order id ended that this ledger still knows."""
    with ledger_errors():
        ended = ledger_connection().hgetall(LedgerKeys(sale_id).ended)
    return {int(it): text.partition(":")[2] for it, text in ended.items() if it.isdecimal()}


# --- Back half -----------------------------------------------------------------------------------


def pending_entries(*, sale_id: int, skip: int, count: int) -> list[PendingEntry]:
    """Return up to ``count`` pending entries, oldest first, after skipping ``skip``.

    Entries that are set aside are left out.
    """
    return _read_pending(sale_id, "-inf", f"({ASIDE_MS}", skip, count)


def entries_set_aside(*, sale_id: int) -> list[PendingEntry]:
    """Return the entries that are set aside without a row, oldest first."""
    entries = _read_pending(sale_id, ASIDE_MS, "+inf", 0, -1)
    return [replace(entry, accepted_at_ms=entry.accepted_at_ms - ASIDE_MS) for entry in entries]


def _read_pending(
    sale_id: int, first: str | int, last: str | int, skip: int, count: int
) -> list[PendingEntry]:
    keys = [LedgerKeys(sale_id).pending]
    flat: list[str] = run_script(_READ_PENDING, keys, first, last, skip, count, read=list)
    entries = [PendingEntry.read(*pair) for pair in zip(flat[::2], flat[1::2], strict=True)]
    junk = [member for member, entry in zip(flat[::2], entries, strict=True) if entry is None]
    if junk:
        put_junk_aside(sale_id=sale_id, names=junk)
        return _read_pending(sale_id, first, last, skip, count)
    return [entry for entry in entries if entry]


def confirm(
    *,
    sale_id: int,
    entries: Sequence[PendingEntry],
    rows: Mapping[int, str] | None = None,
    number: int = 0,
) -> None:
    """Take entries whose orders are committed out of pending and end their batch. Safe to repeat.

    ``rows`` maps order ids to what the new rows say, for the receipt cache. ``number`` is that of
    the batch, if another may have been recorded since.
    """
    keys, rows = LedgerKeys(sale_id), rows or {}
    contents = [keys.buyers, keys.pending, keys.tries, keys.trying]
    run_script(
        _CONFIRM,
        [*contents, *keys.copies, keys.changing, keys.failures, keys.pace],
        ROTATION_MS,
        number,
        *[entry.member for entry in entries],
        *[str(entry.order_id) for entry in entries],
        *[rows.get(entry.order_id, "") for entry in entries],
        read=int,
    )


def release(*, sale_id: int, releases: Sequence[Release]) -> int:
    """Give reserved units back, each only if its order id still holds it. Safe to repeat.

    Return how many units went to the waiting list: they are pending.
    """
    if not releases:
        return 0
    args: list[str | int] = [ENDED_RETENTION_MS]
    for item in releases:
        entry, live_id = item.entry, item.live_order_id
        args += [str(entry.order_id), str(entry.user_id), entry.unit]
        args += [item.reason, live_id or "", int(item.had_order)]
    keys = LedgerKeys(sale_id)
    return run_script(_RELEASE, [*keys.contents, *keys.copies, keys.sale], *args, read=int)


def retake(*, sale_id: int, holdings: Sequence[Holding]) -> None:
    """Reserve units again for orders that were set aside, under their own ids. Safe to repeat.

    The caller holds the sale's row ``FOR UPDATE`` and makes the orders live in that transaction.

    :raises AlreadyOrdered: another order holds one of these units of the buyer.
    :raises StillPending: the release of one of these orders has not arrived yet.
    :raises SoldOut: too few units are left in the ledger.
    :raises NotLoaded: the sale has to be loaded first.
    """

    def read(reply: list[str]) -> None:
        match RetakeCode(reply[0]):
            case RetakeCode.RETAKEN:
                return
            case RetakeCode.PENDING:
                raise StillPending(f"order {reply[1]} is still pending")
            case RetakeCode.TAKEN:
                raise AlreadyOrdered(int(reply[1]))
            case RetakeCode.SOLD_OUT:
                raise SoldOut
            case RetakeCode.NOT_LOADED:
                raise NotLoaded(f"sale {sale_id} is not loaded")
            case unknown:
                assert_never(unknown)

    args = [text for it in holdings for text in (it.field, str(it.order_id))]
    run_script(_RETAKE, LedgerKeys(sale_id).contents, *args, read=read)


def set_kick(*, sale_id: int) -> bool:
    """Note that a fulfil task is being sent; False if one is queued already."""
    kick = LedgerKeys(sale_id).kick
    return run_script(_SET_KICK, [kick], settings.SECKILL_KICK_MS, read=bool)


def claim_kick(*, sale_id: int) -> bool:
    """Note that a fulfil task is being sent, as a reservation does; False if none is needed.

    None is needed beside a queued task, nor beside a running one, which looks again at its end.
    """
    with ledger_errors():
        kick = LedgerKeys(sale_id).kick
        return bool(ledger_connection().set(kick, "1", nx=True, px=settings.SECKILL_KICK_MS))


def acknowledge_kick(*, sale_id: int) -> bool:
    """Note that the fulfil task has started: no reservation sends another for a moment.

    Return whether it may work: not during the backoff after a failure of the database.
    """
    keys = LedgerKeys(sale_id)
    with ledger_errors(), ledger_connection().pipeline(transaction=False) as pipe:
        pipe.set(keys.kick, "0", xx=True, px=ACKNOWLEDGED_KICK_MS)
        pipe.exists(keys.backoff)
        return not pipe.execute()[1]


def clear_kick(*, sale_id: int) -> None:
    """Let the next reservation send a fulfil task; call it before the task's last look."""
    run_script(_CLEAR_KICK, [LedgerKeys(sale_id).kick], read=bool)


def claim_due_sweeps(*, sale_ids: Iterable[int], at_once: bool = False) -> list[int]:
    """Return the sales that need a fulfil task now, with the kick of each set.

    A sale is due if its oldest pending entry has waited too long (``at_once``: at all), no task is
    queued, and the pause is over: the backoff after failures of the database, else that after a
    sweep without progress.
    """
    sales = [LedgerKeys(sale_id) for sale_id in sale_ids]
    first_ms, longest_ms = settings.SECKILL_SWEEP_AGE_MS, settings.SECKILL_SWEEP_PAUSE_MS
    age_ms = 0 if at_once else first_ms
    args = [age_ms, longest_ms, settings.SECKILL_KICK_MS, FAILURES_KEPT_MS, ASIDE_MS, first_ms]
    args.append(BACKOFF_MS[1])
    keys = [[it.pending, it.kick, it.swept, it.backoff, it.failures, it.sale] for it in sales]
    with ledger_errors():
        replies = _CLAIM_SWEEP.run_each(ledger_connection(), [(some, args) for some in keys])
    due = []
    for it, reply in zip(sales, replies, strict=True):
        if isinstance(reply, RedisError):  # one sale must not stop the others
            logger.error("sale %s cannot be swept: %s", it.sale_id, reply)
            continue
        is_due, *dropped = reply
        if is_due:
            due.append(it.sale_id)
        log_wrong_types(sale_id=it.sale_id, keys=dropped)
    return due
