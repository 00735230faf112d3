"""Ids for orders: what repeats them, what they reveal, and what inserting them costs.

A kind of id makes some ids, given the clock of the application and a region with its own counter.
"""

import random
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from statistics import median
from typing import NamedTuple

from django.utils.translation import gettext_noop

from bench.around.measuring import sql, timed_ms
from lab.experiments.experiment import Row
from lab.keys import delete_keys
from orders.placing.order_ids import EPOCH, mint_call
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import send

EPOCH_S = int(EPOCH.timestamp())
KEY = "lab:ids:"
TABLES = ("lab_ids_0", "lab_ids_1")
AT_ONCE, PER_MS = 1_000, 10
SET_BACK_S = 5
VISITORS_PER_ORDER = 5


class ClockSetBack(Exception):
    """The clock is behind the last id, so no more are made."""


def auto_increment(count: int, now_s: float, region: int) -> Sequence[int]:
    rows = ", ".join(["(1)"] * count)
    new = sql(f"INSERT INTO {TABLES[region]} (user_id) VALUES {rows} RETURNING id")
    return [it for (it,) in new]


def of_the_course(count: int, now_s: float, region: int) -> Sequence[int]:
    day = time.strftime("%Y:%m:%d", time.gmtime(now_s))
    last = ledger_connection().incrby(f"{KEY}course:{region}:{day}", count)
    return [int(now_s - EPOCH_S) << 32 | it for it in range(last - count + 1, last + 1)]


def of_this_shop(count: int, now_s: float, region: int) -> Sequence[int]:
    key = f"{KEY}shop:{region}"
    if now_s > time.time():  # the script has no clock but that of Redis: let it have said so
        seconds = int(now_s - EPOCH_S)
        ledger_connection().hset(key, mapping={"seconds": seconds, "day": seconds // 86_400})
    return send(mint_call(count=count, key=key))


_last_of: dict[int, int] = {}
"""The last Snowflake of each region: it is only in the memory of its process."""


def snowflake(count: int, now_s: float, region: int) -> Sequence[int]:
    now_ms, last = int((now_s - EPOCH_S) * 1_000), _last_of.get(region, 0)
    if now_ms < last >> 22:
        raise ClockSetBack
    first = max(last + 1, now_ms << 22 | region << 12)
    _last_of[region] = first + count - 1
    return range(first, first + count)


def uuid7(count: int, now_s: float, region: int) -> Sequence[int]:
    head = int(now_s * 1_000) << 80 | 7 << 76 | 2 << 62
    return [head | random.getrandbits(12) << 64 | random.getrandbits(62) for _ in range(count)]


def uuid4(count: int, now_s: float, region: int) -> Sequence[int]:
    return [uuid.uuid4().int for _ in range(count)]


class Kind(NamedTuple):
    """``counter_bits`` of an id count for everyone to see; ``type`` is that of its column."""

    name: str
    parts: str
    make: Callable[[int, float, int], Sequence[int]]
    counter_bits: int = 0
    type: str = "BIGINT"


KINDS = (
    Kind(gettext_noop("auto-increment"), gettext_noop("63 counter"), auto_increment, 63,
         "BIGINT AUTO_INCREMENT"),
    Kind(gettext_noop("the course"), gettext_noop("31 s, 32 counter"), of_the_course, 32),
    Kind(gettext_noop("this shop"), gettext_noop("31 s, 32 counter"), of_this_shop, 32),
    Kind("Snowflake", gettext_noop("41 ms, 10 machine, 12 counter"), snowflake),
    Kind("UUIDv7", gettext_noop("48 ms, 74 random"), uuid7, type="BINARY(16)"),
    Kind("UUIDv4", gettext_noop("122 random"), uuid4, type="BINARY(16)"),
)  # fmt: skip


def repeat_and_reveal(count: int = AT_ONCE) -> Iterator[Row]:
    """Count the ids that are made twice or in the wrong order, and the sales that they reveal."""
    with ExitStack() as stack:
        stack.callback(_drop)
        for kind in KINDS:
            _reset(KINDS[0])
            time.sleep(1 - time.time() % 1)  # so that everything happens in one second
            now_s = time.time()
            ids = {*kind.make(count, now_s, 0)}
            in_both_regions = len(ids & {*kind.make(count, now_s, 1)})
            visitors = count * (VISITORS_PER_ORDER if kind.make is of_this_shop else 1)
            first, *_others, last = (kind.make(it, now_s, 0)[0] for it in (1, visitors, 1))
            sold = (last - first) % (1 << kind.counter_bits) - 1 if kind.counter_bits else None
            latest = max(kind.make(count, now_s + SET_BACK_S, 0))
            late: int | str = gettext_noop("refuses")
            with suppress(ClockSetBack):
                late = sum(it < latest for it in kind.make(count, now_s, 0))
            _reset(KINDS[0])
            ids = {*kind.make(count, now_s, 0)}
            _reset(KINDS[0], is_new_day=False)
            repeated = len(ids & {*kind.make(count, now_s, 0)})
            yield kind.name, kind.parts, repeated, in_both_regions, late, sold


def insert(rows: int = 100_000, repeats: int = 3) -> Iterator[Row]:
    """Insert rows with each kind in turn, ``AT_ONCE`` in a transaction, with an index by buyer."""
    took_ms: dict[str, list[float]] = {it.name: [] for it in KINDS}
    sizes = {}
    with ExitStack() as stack:
        stack.callback(_drop)
        for kind in KINDS * repeats:
            _reset(kind)
            statements = list(_statements(kind, rows))
            took_ms[kind.name].append(sum(timed_ms(partial(sql, it)) for it in statements))
            sql(f"ANALYZE TABLE {TABLES[0]}")
            (sizes[kind.name],) = sql(
                "SELECT data_length / POW(2, 20), index_length / POW(2, 20) FROM"
                " information_schema.tables WHERE table_schema = DATABASE() AND table_name = %s",
                TABLES[0],
            )
    plain_ms = median(took_ms[KINDS[0].name])
    for name, ms in took_ms.items():
        yield name, round(1_000 * rows / median(ms)), plain_ms / median(ms), *sizes[name]


def _statements(kind: Kind, rows: int) -> Iterator[str]:
    now_s, as_sql = time.time(), "0x{:032x}" if kind.type == "BINARY(16)" else "{}"
    for start in range(0, rows, AT_ONCE):
        ids = ["NULL"] * AT_ONCE
        if kind.make is not auto_increment:
            moments = (now_s + (start + ms) / 1_000 for ms in range(AT_ONCE // PER_MS))
            ids = [as_sql.format(it) for at in moments for it in kind.make(PER_MS, at, 0)]
        values = ", ".join(f"({it}, {random.getrandbits(40)})" for it in ids)
        yield f"INSERT INTO {TABLES[0]} VALUES {values}"


def _reset(kind: Kind, *, is_new_day: bool = True) -> None:
    """Start the counters of both regions, on a new day or as after a loss, with empty tables."""
    _drop()
    for region, table in enumerate(TABLES):
        columns = f"id {kind.type} PRIMARY KEY, user_id BIGINT, KEY (user_id)"
        sql(f"CREATE TABLE {table} ({columns}) ENGINE=InnoDB")
        if is_new_day:
            counter = {"seconds": 0, "day": 0, "sequence": 0}
            ledger_connection().hset(f"{KEY}shop:{region}", mapping=counter)


def _drop() -> None:
    _last_of.clear()
    delete_keys(f"{KEY}*")
    sql(f"DROP TABLE IF EXISTS {', '.join(TABLES)}")
