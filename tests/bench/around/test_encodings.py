"""Encodings: each kind of value changes its encoding at its limit, and is weighed on both sides."""

from __future__ import annotations

from typing import Any

from bench.around.encodings import KEY, KINDS, weigh
from seckill_site.redis.ledger_connection import ledger_connection


def test_values_are_weighed_on_both_sides_of_their_limits() -> None:
    rows: list[Any] = list(weigh(large=600, rounds=200))
    encodings = {(name, entries): encoding for name, entries, encoding, *_ in rows}
    for kind, small, large in (
        ("hash", "listpack", "hashtable"),
        ("set of numbers", "intset", "hashtable"),
        ("sorted set", "listpack", "skiplist"),
    ):
        (limit,) = (
            int(it)
            for each in KINDS
            if each.name == kind
            for it in ledger_connection().config_get(each.limit).values()
        )
        assert encodings[kind, limit] == small
        assert encodings[kind, limit + 1] == encodings[kind, 600] == large
    assert [row[2] for row in rows[-4:]] == ["int", "embstr", "raw", "raw"]
    assert not ledger_connection().exists(KEY)


def test_large_encodings_take_more_memory_for_each_entry() -> None:
    # Many rounds: Redis counts a command of less than a microsecond as none, most of the time.
    rows: list[Any] = list(weigh(large=600, rounds=2_000))
    each = {(name, encoding): size for name, _, encoding, size, *_ in rows}
    assert each["hash", "hashtable"] > 2 * each["hash", "listpack"]
    assert each["set of numbers", "hashtable"] > 2 * each["set of numbers", "intset"]
    assert each["sorted set", "skiplist"] > 2 * each["sorted set", "listpack"]
    assert all(figure > 0 for row in rows for figure in row[3:])
