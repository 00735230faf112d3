"""Encodings of Redis: memory and speed of small and large values of each type.

Redis keeps a small hash, set or sorted set in one piece of memory and searches it from the start.
Beyond a limit, which is a setting, it builds a structure that finds an entry at once.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from django.utils.translation import gettext_noop

from lab.experiments.experiment import Row
from seckill_site.redis.ledger_connection import ledger_connection

KEY = "lab:encoding"
SMALL, LARGE = 10, 10_000
TEXTS = {
    gettext_noop("string of a number"): "12345",
    gettext_noop("string of 44 bytes"): "a" * 44,
    gettext_noop("string of 45 bytes"): "a" * 45,
    gettext_noop("string of 10,000 bytes"): "a" * 10_000,
}

Command = tuple[str | int, ...]

T = TypeVar("T")


class Kind(NamedTuple):
    """``put`` writes the entry with a number, and ``get`` reads it; ``limit`` is the setting."""

    name: str
    limit: str
    put: Callable[[int], Sequence[Command]]
    get: Callable[[int], Command]


def _word(number: int) -> str:
    return f"u{number:07}"


KINDS = (
    Kind(
        gettext_noop("hash"),
        "hash-max-listpack-entries",
        lambda it: [("HSET", KEY, _word(it), _word(it))],
        lambda it: ("HGET", KEY, _word(it)),
    ),
    Kind(
        gettext_noop("set of numbers"),
        "set-max-intset-entries",
        lambda it: [("SREM", KEY, it), ("SADD", KEY, it)],
        lambda it: ("SISMEMBER", KEY, it),
    ),
    Kind(
        gettext_noop("set of words"),
        "set-max-listpack-entries",  # from Redis 7.2 on
        lambda it: [("SREM", KEY, _word(it)), ("SADD", KEY, _word(it))],
        lambda it: ("SISMEMBER", KEY, _word(it)),
    ),
    Kind(
        gettext_noop("sorted set"),
        "zset-max-listpack-entries",
        lambda it: [("ZADD", KEY, random.randrange(LARGE), _word(it))],
        lambda it: ("ZSCORE", KEY, _word(it)),
    ),
)


def weigh(large: int = LARGE, rounds: int = 10_000) -> Iterator[Row]:
    """Fill a value of each kind below its limit, up to it, beyond it, and far beyond it."""
    client = ledger_connection()
    try:
        for kind in KINDS:
            found = client.config_get(kind.limit)
            limits = [int(it) + more for it in found.values() for more in (0, 1)]
            for entries in (SMALL, *limits, large):
                client.delete(KEY)
                _took_us([it for number in range(entries) for it in kind.put(number)])
                yield kind.name, entries, *_figures(kind, entries, rounds)
        yield from _weigh_strings(rounds)
    finally:
        client.delete(KEY)


def _weigh_strings(rounds: int) -> Iterator[Row]:
    for name, text in TEXTS.items():
        set_it: Command = ("SET", KEY, text)
        kind = Kind(name, "", partial(_again, [set_it]), partial(_again, ("GET", KEY)))
        _took_us([set_it])
        yield name, 1, *_figures(kind, 1, rounds)


def _again(commands: T, number: int) -> T:
    return commands


def _figures(kind: Kind, entries: int, rounds: int) -> tuple[str, float, float, float]:
    """Return the encoding, the bytes of an entry, and microseconds of reading and writing one."""
    client = ledger_connection()
    encoding = str(client.object("ENCODING", KEY))
    each = client.memory_usage(KEY, samples=0) / entries
    numbers = [random.randrange(entries) for _round in range(rounds)]
    read_us = _took_us([kind.get(it) for it in numbers]) / rounds
    write_us = _took_us([command for it in numbers for command in kind.put(it)]) / rounds
    return encoding, each, read_us, write_us


def _took_us(commands: Sequence[Command]) -> int:
    """Send commands, and return the microseconds that the server itself spent on them."""
    names = {f"cmdstat_{command[0]}".lower() for command in commands}
    before = _spent_us(names)
    pipeline = ledger_connection().pipeline(transaction=False)
    for command in commands:
        pipeline.execute_command(*command)
    pipeline.execute()
    return _spent_us(names) - before


def _spent_us(names: set[str]) -> int:
    spent = ledger_connection().info("commandstats")
    return sum(spent[name]["usec"] for name in names if name in spent)
