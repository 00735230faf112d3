"""Entries in a draw, as the ledger has them: read, closed, withdrawn, and turned into reservations.

``docs/adr/0030`` says how a list is closed. Entering has a module of its own, :mod:`entering`.
"""

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import islice
from typing import Any, NamedTuple, assert_never

from seckill_site.clocks.machine import epoch_ms
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys, NotLoaded, ledger_errors, ledger_script, run_script
from vouchers.inventory.reservations import ENDED_RETENTION_MS, SaleEnded
from vouchers.models import Draw, SeckillVoucher

_CLOSE = ledger_script("close_entries")
_WITHDRAW = ledger_script("withdraw_entry")
_GIVE = ledger_script("give_to_winners")
_QUEUE = ledger_script("queue_losers")

_CHUNK_SIZE = 2_000
_AT_ONCE = 500
"""Buyers per call of a script, so that none runs for long."""

_LOGGED = re.compile(r"([1-9][0-9]{0,18}):([1-9][0-9]{0,18}):([0-9]{1,15}):([EW])", re.ASCII)
_ENTRY = re.compile(r"([1-9][0-9]{0,18}):([0-9]{1,15})", re.ASCII)
_USER = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)


class CloseCode(StrEnum):
    """The codes of ``close_entries.lua``."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    NOT_LOADED = "NOT_LOADED"


class WithdrawCode(StrEnum):
    """The codes of ``withdraw_entry.lua``."""

    WITHDRAWN = "WITHDRAWN"
    ENDED = "ENDED"
    UNKNOWN = "UNKNOWN"
    NOT_LOADED = "NOT_LOADED"


class GiveCode(StrEnum):
    """The codes of ``give_to_winners.lua``."""

    GIVEN = "GIVEN"
    NOT_LOADED = "NOT_LOADED"


class NoEntry(Exception):
    """The buyer has no such entry in the draw."""


class Entry(NamedTuple):
    """An account's entry in a draw; ``withdrawn`` if it was taken back."""

    order_id: int
    user_id: int
    entered_at_ms: int
    withdrawn: bool = False


def fresh_entries(*, sale_id: int, most: int) -> tuple[list[Entry], list[str]]:
    """Return the first of what no row may have yet, in order of events, and its members.

    ``most`` of 0 is no limit.
    """
    key = LedgerKeys(sale_id).fresh
    with ledger_errors():
        if ledger_connection().type(key) != "zset":
            return [], []
        members = list(ledger_connection().zrange(key, 0, most - 1))
    matches = [_LOGGED.fullmatch(member) for member in members]
    entries = [Entry(int(it[1]), int(it[2]), int(it[3]), it[4] == "W") for it in matches if it]
    return entries, members


def count_fresh(*, sale_id: int) -> int:
    """Return the size of the log of what no row may have yet."""
    key = LedgerKeys(sale_id).fresh
    with ledger_errors():
        is_log = ledger_connection().type(key) == "zset"
        return int(ledger_connection().zcard(key)) if is_log else 0


def forget_fresh(*, sale_id: int, members: Sequence[str]) -> None:
    """Drop what is stored from the log; members that cannot be parsed, too."""
    key = LedgerKeys(sale_id).fresh
    with ledger_errors():
        for start in range(0, len(members), _CHUNK_SIZE):
            ledger_connection().zrem(key, *members[start : start + _CHUNK_SIZE])


def read_entries(*, sale_id: int) -> list[Entry]:
    """Return every entry that the ledger has, read in steps."""
    key = LedgerKeys(sale_id).entries
    with ledger_errors():
        if ledger_connection().type(key) != "hash":
            return []
        fields = dict(ledger_connection().hscan_iter(key, count=_CHUNK_SIZE))
    return [entry for entry in map(_parse, fields, fields.values()) if entry]


def read_entry(*, sale_id: int, user_id: int) -> Entry | None:
    key = LedgerKeys(sale_id).entries
    with ledger_errors():
        if ledger_connection().type(key) != "hash":
            return None
        value = ledger_connection().hget(key, str(user_id))
    return _parse(str(user_id), value or "")


def _parse(user_id: str, value: str) -> Entry | None:
    match = _ENTRY.fullmatch(value)
    if match is None or not _USER.fullmatch(user_id):
        return None
    return Entry(int(match[1]), int(user_id), int(match[2]))


def close_entries(*, sale: SeckillVoucher) -> bool:
    """Let a draw whose time is over take no entry any more; return whether it is closed.

    The caller holds the sale's row ``FOR UPDATE`` until it has stored the list.

    :raises NotLoaded: the sale has to be loaded first.
    """
    keys = LedgerKeys(sale.pk)
    code = run_script(_CLOSE, [keys.buyers, keys.entries], str(sale.identity), read=CloseCode)
    if code is CloseCode.NOT_LOADED:
        raise NotLoaded(f"sale {sale.pk} is not loaded")
    return code is CloseCode.CLOSED


def withdraw_entry(*, sale_id: int, order_id: int, user_id: int) -> None:
    """Take an entry out of a draw. Safe to repeat.

    :raises NoEntry: the buyer has no such entry.
    :raises SaleEnded: the draw takes no entries any more.
    :raises NotLoaded: the sale has to be loaded first.
    """
    keys = LedgerKeys(sale_id)
    args = (str(order_id), str(user_id), ENDED_RETENTION_MS)
    code = run_script(
        _WITHDRAW, [*keys.contents, keys.entries, keys.fresh], *args, read=WithdrawCode
    )
    match code:
        case WithdrawCode.WITHDRAWN:
            return
        case WithdrawCode.ENDED:
            raise SaleEnded(f"sale {sale_id} takes no entries any more")
        case WithdrawCode.UNKNOWN:
            raise NoEntry(f"buyer {user_id} has no entry {order_id} in sale {sale_id}")
        case WithdrawCode.NOT_LOADED:
            raise NotLoaded(f"sale {sale_id} is not loaded")
        case unknown:
            assert_never(unknown)


def give_to_winners(*, sale: SeckillVoucher, winners: Iterable[tuple[int, int]]) -> int:
    """Make these pairs of order id and user pending; return how many found no unit left.

    Also notes that the draw is drawn. Safe to repeat.

    :raises NotLoaded: the sale has to be loaded first.
    """
    keys, pairs, short = LedgerKeys(sale.pk), iter(winners), 0
    while True:
        some = list(islice(pairs, _AT_ONCE))
        args = [str(number) for pair in some for number in pair]
        short += run_script(
            _GIVE, [*keys.contents, keys.entries], str(sale.identity), *args, read=_read_given
        )
        if len(some) < _AT_ONCE:
            return short


def _read_given(reply: list[Any]) -> int:
    if GiveCode(reply[0]) is GiveCode.NOT_LOADED:
        raise NotLoaded("the ledger is not loaded")
    return int(reply[2])


def queue_losers(*, sale: SeckillVoucher, losers: Iterable[tuple[int, int, int]]) -> None:
    """Put these order ids, users and times of joining on the waiting list. Safe to repeat.

    :raises NotLoaded: the sale has to be loaded first.
    """
    keys, rest = LedgerKeys(sale.pk).contents, iter(losers)
    while some := list(islice(rest, _AT_ONCE)):
        args = [str(number) for loser in some for number in loser]
        if not run_script(_QUEUE, keys, str(sale.identity), *args, read=int):
            raise NotLoaded(f"sale {sale.pk} is not loaded")


def drop_entries_later(*, sale: SeckillVoucher) -> None:
    """Let the entries of a draw that is over expire, once no token names one any more."""
    keys = LedgerKeys(sale.pk)
    with ledger_errors():
        ledger_connection().pexpireat(keys.entries, epoch_ms(sale.gives_until) + ENDED_RETENTION_MS)


def restore_entries(sale: SeckillVoucher, *, build: str) -> dict[str, str]:
    """Give a draw back the entries that Redis lost, and name the ledger that they are part of.

    The caller holds the sale's row and no ledger is loaded, so nobody enters meanwhile. What Redis
    still has beside the rows stays, unless its account has another entry in a row.

    Return the ids that ended without an order, for the ledger to build.
    """
    if not sale.is_draw:
        return {}
    live, ended = _stored_entries(sale)
    client, key, draw = ledger_connection(), LedgerKeys(sale.pk).entries, Draw.of(sale)
    phase = "drawn" if draw.drawn_at else "closed" if draw.closed_at else "open"
    with ledger_errors():
        if client.type(key) not in ("hash", "none"):
            client.unlink(key)
        fields = iter(live.items())
        while chunk := dict(islice(fields, _CHUNK_SIZE)):
            client.hset(key, mapping=chunk)
        over = [
            str(it.user_id)
            for it in read_entries(sale_id=sale.pk)
            if str(it.order_id) in ended or (draw.closed_at and str(it.user_id) not in live)
        ]
        if over:
            client.hdel(key, *over)
        client.hset(key, mapping={"build": build, "phase": phase})
        client.hsetnx(key, "seq", 0)
        client.persist(key)
    if draw.finished_at:
        drop_entries_later(sale=sale)
    return ended


def _stored_entries(sale: SeckillVoucher) -> tuple[dict[str, str], dict[str, str]]:
    """Return the entries of a draw by user, and by order id those that are not in it any more."""
    logged, _ = fresh_entries(sale_id=sale.pk, most=0)
    ended = {str(it.order_id): f"{it.user_id}:withdrawn" for it in logged if it.withdrawn}
    live: dict[str, str] = {}
    rows = sale.draw_entries.exclude(user=None)
    columns = rows.values_list("order_id", "user_id", "entered_at", "live", "outcome")
    for order_id, user_id, entered_at, is_live, outcome in columns.iterator(_CHUNK_SIZE):
        if not is_live:
            ended[str(order_id)] = f"{user_id}:{outcome}"
        elif str(order_id) not in ended:
            live[str(user_id)] = f"{order_id}:{epoch_ms(entered_at)}"
    return live, ended
