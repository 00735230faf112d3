"""Reservations: one unit of a sale promised to one buyer, in Redis.

Every function is one script or one command on the sale's keys. A Redis error means *unknown*, never
*failed*, and leaves as ``LedgerUnavailable``: the same call made again gives the same answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from django.conf import settings

from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory import sold_out_cache
from vouchers.inventory.keys import Holding, LedgerKeys, NotLoaded, ledger_errors, ledger_script
from vouchers.inventory.receipt_cache import TURN_MS

ENDED_RETENTION_MS = settings.SECKILL_TOKEN_GRACE_MS + 60 * 60 * 1000
"""How long after a sale the ended ids are kept: an hour longer than any token that names one."""

TAKEN_KICK_MS = 200
"""How long a kick stands after its task has come.

Were it gone at once, each reservation beside a working task would send another, in vain.
"""

_RESERVE = ledger_script("reserve")
_CONFIRM = ledger_script("confirm")
_RELEASE = ledger_script("release")
_SWEEP = ledger_script("claim_sweep")
_CLAIM = ledger_script("claim")
_KICK = ledger_script("set_kick")
_END_KICK = ledger_script("clear_kick")


class ReservationRefused(Exception):
    """The ledger says no to this buyer; the subclass says why."""


class NotStarted(ReservationRefused):
    """The sale has not begun."""


class SaleEnded(ReservationRefused):
    """The sale is over."""


class SalePaused(ReservationRefused):
    """The sale is paused."""


class SoldOut(ReservationRefused):
    """No unit is left; where the ledger says it, since when, by the clock of Redis."""

    def __init__(self, arrived_at_ms: int | None = None, sold_out_at_ms: int | None = None) -> None:
        super().__init__(arrived_at_ms, sold_out_at_ms)
        self.arrived_at_ms = arrived_at_ms
        self.sold_out_at_ms = sold_out_at_ms


class SaleBehind(Exception):
    """Orders are written too slowly now: nobody new is accepted, until they have caught up."""

    def __init__(self, behind_ms: int) -> None:
        super().__init__(behind_ms)
        self.behind_ms = behind_ms


class AlreadyOrdered(ReservationRefused):
    """The buyer holds as many units as the sale's limit allows."""

    def __init__(self, order_id: int) -> None:
        super().__init__(order_id)
        self.order_id = order_id


class StillPending(ReservationRefused):
    """The order is still pending: fulfilment decides on it first."""


class _Code(StrEnum):
    """What ``reserve.lua`` answers."""

    ACCEPTED = "ACCEPTED"
    ALREADY_ORDERED = "ALREADY_ORDERED"
    NOT_LOADED = "NOT_LOADED"
    PAUSED = "PAUSED"
    NOT_STARTED = "NOT_STARTED"
    ENDED = "ENDED"
    SOLD_OUT = "SOLD_OUT"
    BEHIND = "BEHIND"


_REFUSALS: dict[_Code, type[ReservationRefused]] = {
    _Code.PAUSED: SalePaused,
    _Code.NOT_STARTED: NotStarted,
    _Code.ENDED: SaleEnded,
}


class _ClaimCode(StrEnum):
    """What ``claim.lua`` answers."""

    CLAIMED = "CLAIMED"
    PENDING = "PENDING"
    TAKEN = "TAKEN"
    SOLD_OUT = "SOLD_OUT"
    NOT_LOADED = "NOT_LOADED"


@dataclass(frozen=True)
class Reservation:
    """An accepted buyer. Where ``kick_due``, the caller publishes one fulfil task."""

    order_id: int
    kick_due: bool


@dataclass(frozen=True)
class PendingEntry(Holding):
    """One promise that is not yet an order; ``accepted_at_ms`` is Redis time since 1970."""

    accepted_at_ms: int


@dataclass(frozen=True)
class Release:
    """A reservation or order that is over, why, and the order that takes its place if any.

    ``had_order`` says that the buyer has had an order, which may bar another.
    """

    entry: Holding
    reason: str
    live_order_id: int | None = None
    had_order: bool = False


# --- Front half ----------------------------------------------------------------------------------


def reserve(*, sale_id: int, order_id: int, user_id: int) -> Reservation:
    """Reserve one unit for this buyer under this order id, or get the earlier answer again.

    :raises ReservationRefused: by its subclass.
    :raises SaleBehind: not accepted, and why; the same call later is a new one.
    :raises NotLoaded: the sale has to be loaded first.
    :raises LedgerUnavailable: unknown; the same call again is safe.
    """
    keys = LedgerKeys(sale_id)
    with ledger_errors():
        answer = _RESERVE.run(
            ledger_connection(),
            keys=[*keys.contents, keys.kick],
            args=[
                str(order_id),
                str(user_id),
                settings.SECKILL_KICK_MS,
                settings.SECKILL_BEHIND_MS,
            ],
        )
    code = _Code(answer[0])
    if code is _Code.ACCEPTED:
        return Reservation(order_id=order_id, kick_due=bool(answer[2]))
    if code is _Code.ALREADY_ORDERED:
        raise AlreadyOrdered(int(answer[1]))
    if code is _Code.BEHIND:
        raise SaleBehind(int(answer[1]))
    if code is _Code.SOLD_OUT:
        arrived_at_ms, sold_out_at_ms = int(answer[1]), int(answer[2]) if answer[2] else None
        sold_out_cache.hear(
            sale_id=sale_id, arrived_at_ms=arrived_at_ms, sold_out_at_ms=sold_out_at_ms
        )
        raise SoldOut(arrived_at_ms, sold_out_at_ms)
    if code is _Code.NOT_LOADED:
        raise NotLoaded
    raise _REFUSALS[code]


def holdings(*, sale_id: int, user_id: int, limit: int) -> list[int]:
    """Return the order ids that this buyer holds in the ledger, unit by unit."""
    fields = [f"{user_id}:{unit}" for unit in range(1, limit + 1)]
    with ledger_errors():
        values = ledger_connection().hmget(LedgerKeys(sale_id).buyers, fields)
    return [int(value) for value in values if value]


def ended_reason(*, sale_id: int, order_id: int, user_id: int) -> str | None:
    """Return why this buyer's order id ended, or None where the ledger does not know it."""
    with ledger_errors():
        value = ledger_connection().hget(LedgerKeys(sale_id).ended, str(order_id))
    owner, _, reason = (value or "").partition(":")
    return reason if owner == str(user_id) else None


# --- Back half -----------------------------------------------------------------------------------


def pending_entries(*, sale_id: int, skip: int, count: int) -> list[PendingEntry]:
    """Return up to ``count`` pending entries, oldest first, after passing over ``skip``."""
    with ledger_errors():
        rows = ledger_connection().zrange(
            LedgerKeys(sale_id).pending, skip, skip + count - 1, withscores=True
        )
    return [_parse_entry(member, score) for member, score in rows]


def _parse_entry(member: str, score: float) -> PendingEntry:
    order_id, user_id, unit = member.split(":")
    return PendingEntry(int(order_id), int(user_id), int(unit), int(score))


def confirm(
    *, sale_id: int, entries: Sequence[PendingEntry], rows: Mapping[int, str] | None = None
) -> None:
    """Take entries whose orders are committed out of pending; their batch is over. Replayable.

    ``rows`` has by order id what the new rows say, for those who ask soon.
    """
    rows, keys = rows or {}, LedgerKeys(sale_id)
    args: list[str | int] = [TURN_MS]
    args += [entry.member for entry in entries]
    args += [str(entry.order_id) for entry in entries]
    args += [rows.get(entry.order_id, "") for entry in entries]
    with ledger_errors():
        _CONFIRM.run(
            ledger_connection(),
            keys=[keys.pending, keys.tries, keys.trying, *keys.copies, keys.changing],
            args=args,
        )


def release(*, sale_id: int, releases: Sequence[Release]) -> None:
    """Give reserved units back, each only where that order id still holds it. Safe to repeat."""
    if not releases:
        return
    keys = LedgerKeys(sale_id)
    args: list[str | int] = [ENDED_RETENTION_MS]
    for item in releases:
        entry, live_id = item.entry, item.live_order_id
        args += [str(entry.order_id), str(entry.user_id), entry.unit, item.reason, live_id or ""]
        args.append(int(item.had_order))
    with ledger_errors():
        _RELEASE.run(
            ledger_connection(),
            keys=keys.contents,
            args=args,
        )


def claim(*, sale_id: int, holding: Holding) -> None:
    """Take the unit of a set-aside order again, under its own id. Safe to repeat.

    The caller holds the sale's row ``FOR UPDATE`` and makes the order live before it lets go.

    :raises AlreadyOrdered: another order stands at that unit of the buyer.
    :raises StillPending: the release of this order has not come through yet.
    :raises SoldOut: no unit is left in the ledger.
    :raises NotLoaded: the sale has to be loaded first.
    :raises LedgerUnavailable: unknown; the same call again is safe.
    """
    with ledger_errors():
        answer, order_id = _CLAIM.run(
            ledger_connection(),
            keys=LedgerKeys(sale_id).contents,
            args=[holding.field, str(holding.order_id)],
        )
    match _ClaimCode(answer):
        case _ClaimCode.NOT_LOADED:
            raise NotLoaded
        case _ClaimCode.TAKEN:
            raise AlreadyOrdered(int(order_id))
        case _ClaimCode.PENDING:
            raise StillPending
        case _ClaimCode.SOLD_OUT:
            raise SoldOut


def kick(*, sale_id: int) -> bool:
    """Say that a fulfil task is being sent; False where one is on its way already."""
    keys = LedgerKeys(sale_id)
    with ledger_errors():
        return bool(
            _KICK.run(ledger_connection(), keys=[keys.kick], args=[settings.SECKILL_KICK_MS])
        )


def take_kick(*, sale_id: int) -> None:
    """Say that the fulfil task has come; for ``TAKEN_KICK_MS`` no reservation sends another."""
    with ledger_errors():
        ledger_connection().set(LedgerKeys(sale_id).kick, "0", xx=True, px=TAKEN_KICK_MS)


def end_kick(*, sale_id: int) -> None:
    """Say that the fulfil task looks for the last time: who is reserved later sends another."""
    with ledger_errors():
        _END_KICK.run(ledger_connection(), keys=[LedgerKeys(sale_id).kick], args=[])


def sweeps_due(*, sale_ids: Iterable[int]) -> list[int]:
    """Return the sales for which a fulfil task is to be sent now, each kicked already.

    A sale is due where its oldest pending entry waits for too long, no task is on its way, and the
    pause since the last sweep in vain is over.
    """
    sale_ids = list(sale_ids)
    args: list[str | int] = [
        settings.SECKILL_SWEEP_AGE_MS,
        settings.SECKILL_SWEEP_PAUSE_MS,
        settings.SECKILL_KICK_MS,
    ]
    calls = [([keys.pending, keys.kick, keys.swept], args) for keys in map(LedgerKeys, sale_ids)]
    with ledger_errors():
        due = _SWEEP.run_many(ledger_connection(), calls)
    return [sale_id for sale_id, send in zip(sale_ids, due, strict=True) if send]
