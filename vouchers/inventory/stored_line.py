"""The line of a waiting room as the rows of visits have it, for a build of the ledger.

The rows are moments old. What they lack is in the signed places and in the memory of processes:
Note [Places in line] in ``waiting_room.py``.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from django.db.models import Max, Q

from seckill_site.clocks.ledger import read_ledger_ms
from seckill_site.clocks.machine import epoch_ms
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys, ledger_errors
from vouchers.inventory.waiting_room import RoomTerms
from vouchers.models import SeckillVoucher

_CHUNK_SIZE = 5_000
_LINE_KEPT_MS = 3_600_000
"""How long the line is kept after the sale's end, as ``visit_room.lua`` keeps it."""

_PLACE = re.compile(r"(\d+):\d+:(\d+)", re.ASCII)


def stored_line(sale: SeckillVoucher) -> tuple[int, int, int | str]:
    """Return opening, last number and last early number of the line, by the rows of visits."""
    terms = RoomTerms.from_sale(sale)
    if terms is None:
        return 0, 0, ""
    visits = sale.room_visits.filter(opened_ms=terms.opened_ms)
    early = Q(joined_at__lt=sale.begins_at)  # since_ms also moves with the rate
    last = visits.aggregate(tail=Max("given"), early=Max("given", filter=early))
    with ledger_errors():
        is_drawn = terms.shuffled and read_ledger_ms() >= terms.since_ms
    return terms.opened_ms, last["tail"] or 0, (last["early"] or 0) if is_drawn else ""


def restore_places(sale: SeckillVoucher) -> None:
    """Give visitors back the places that Redis lost, and let in again whom it had let in.

    The caller holds the sale's row and no ledger is loaded, so nobody joins meanwhile.
    """
    terms = RoomTerms.from_sale(sale)
    if terms is None:
        return
    client, key, places = ledger_connection(), LedgerKeys(sale.pk).room, _stored_places(sale, terms)
    while chunk := dict(islice(places, _CHUNK_SIZE)):
        with ledger_errors():
            if client.type(key) != "hash" or client.hget(key, "opened") != str(terms.opened_ms):
                client.unlink(key)
                client.hset(key, "opened", terms.opened_ms)
                client.pexpireat(key, epoch_ms(sale.ends_at) + _LINE_KEPT_MS)
            known = zip(chunk.items(), client.hmget(key, list(chunk)), strict=True)
            lost = {user: place.text for (user, place), text in known if place.replaces(text)}
            if lost:
                client.hset(key, mapping=lost)


class _StoredPlace(NamedTuple):
    """A place as a row has it; ``let_in_ms`` is 0 for a visitor who was not let in."""

    given: int
    joined_ms: int
    let_in_ms: int

    @property
    def text(self) -> str:
        """The place as Redis has it."""
        return f"{self.given}:{self.joined_ms}:{self.let_in_ms}"

    def replaces(self, text: str | None) -> bool:
        """Return whether the visitor has lost something if Redis has this."""
        match = _PLACE.fullmatch(text or "")
        if match is None:
            return True
        given, let_in_ms = int(match[1]), int(match[2])
        return not let_in_ms and (bool(self.let_in_ms) or self.given < given)


def _stored_places(sale: SeckillVoucher, terms: RoomTerms) -> Iterator[tuple[str, _StoredPlace]]:
    visits = sale.room_visits.filter(opened_ms=terms.opened_ms)
    rows = visits.values_list("user_id", "given", "joined_at", "let_in_at")
    for user_id, given, joined_at, let_in_at in rows.iterator(chunk_size=_CHUNK_SIZE):
        let_in_ms = epoch_ms(let_in_at) if let_in_at else 0
        yield str(user_id), _StoredPlace(given, epoch_ms(joined_at), let_in_ms)
