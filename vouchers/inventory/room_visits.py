"""Visits to a waiting room that Redis has and no row has yet."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys, ledger_errors, ledger_script, run_script

_FORGET = ledger_script("forget_visits")
_CHUNK = 2_000
_VISIT = re.compile(r"([0-9]{1,13}):([1-9][0-9]{0,15}):([0-9]{1,13}):([0-9]{1,13})")


class Visit(NamedTuple):
    """A buyer's place in one opening of a waiting room, times in milliseconds since 1970.

    ``let_in_ms`` is 0 until the room has let the buyer in.
    """

    user_id: int
    opened_ms: int
    given: int
    joined_ms: int
    let_in_ms: int

    @property
    def text(self) -> str:
        """The visit as Redis has it."""
        return f"{self.opened_ms}:{self.given}:{self.joined_ms}:{self.let_in_ms}"


def unstored_visits(*, sale_id: int, most: int) -> list[Visit]:
    """Return at least ``most`` visits that are not stored, or all; drop what cannot be parsed."""
    key, texts, cursor = LedgerKeys(sale_id).visits, dict[str, str](), 0
    with ledger_errors():
        if ledger_connection().type(key) != "hash":
            return []
        while len(texts) < most:
            cursor, part = ledger_connection().hscan(key, cursor, count=_CHUNK)
            texts.update(part)
            if not cursor:
                break
        visits = [_parse(field, value) for field, value in texts.items()]
        junk = [field for field, visit in zip(texts, visits, strict=True) if visit is None]
        if junk:
            ledger_connection().hdel(key, *junk)
    return [visit for visit in visits if visit]


def _parse(field: str, value: str) -> Visit | None:
    match = _VISIT.fullmatch(value)
    if match is None or not re.fullmatch("[1-9][0-9]{0,17}", field):
        return None
    return Visit(int(field), *map(int, match.groups()))


def forget_visits(*, sale_id: int, visits: Iterable[Visit]) -> None:
    """Drop visits that are stored, unless they have changed meanwhile."""
    args, key = [(str(it.user_id), it.text) for it in visits], LedgerKeys(sale_id).visits
    for start in range(0, len(args), _CHUNK):
        pairs = [word for pair in args[start : start + _CHUNK] for word in pair]
        run_script(_FORGET, [key], *pairs, read=int)
