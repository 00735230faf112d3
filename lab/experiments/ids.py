"""Ids for orders: what repeats them, what they reveal, and what inserting them costs.

A kind of id makes some ids, given the clock of the application and a region with its own counter.
"""

import random
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import NamedTuple

from django.db import connection
from django.utils.translation import gettext_lazy, gettext_noop

from lab.experiments.experiment import Experiment, Row
from lab.keys import delete_keys
from orders.placing.order_ids import EPOCH, mint_call
from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.keys import send

EPOCH_S = int(EPOCH.timestamp())
KEY = "lab:ids:"
TABLES = ("lab_ids_0", "lab_ids_1")
AT_ONCE, PER_MS = 1_000, 10
SET_BACK_S = 5
VISITORS_PER_ORDER = 5
MIB = 2**20


class ClockSetBack(Exception):
    """The clock is behind the last id, so no more are made."""


def auto_increment(count: int, now_s: float, region: int) -> Sequence[int]:
    with connection.cursor() as cursor:
        rows = ", ".join(["(1)"] * count)
        cursor.execute(f"INSERT INTO {TABLES[region]} (user_id) VALUES {rows}")
        return range(cursor.lastrowid, cursor.lastrowid + count)


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
    for kind in KINDS:
        _reset(KINDS[0])
        time.sleep(1 - time.time() % 1)  # everything happens in one second
        now_s = time.time()
        ids = kind.make(count, now_s, 0)
        in_both_regions = len({*ids} & {*kind.make(count, now_s, 1)})
        visitors = count * (VISITORS_PER_ORDER if kind.make is of_this_shop else 1)
        first, *_, last = (kind.make(it, now_s, 0)[0] for it in (1, visitors, 1))
        sold = (last - first) % (1 << kind.counter_bits) - 1 if kind.counter_bits else None
        latest = max(kind.make(count, now_s + SET_BACK_S, 0))
        late: int | str
        try:
            late = sum(it < latest for it in kind.make(count, now_s, 0))
        except ClockSetBack:
            late = gettext_noop("refuses")
        _reset(KINDS[0])
        ids = kind.make(count, now_s, 0)
        _reset(KINDS[0], is_new_day=False)
        repeated = len({*ids} & {*kind.make(count, now_s, 0)})
        yield kind.name, kind.parts, repeated, in_both_regions, late, sold
    _drop()


def insert(rows: int = 100_000, repeats: int = 3) -> Iterator[Row]:
    """Insert rows with each kind in turn, ``AT_ONCE`` in a transaction, with an index by buyer."""
    per_s: dict[str, list[float]] = {it.name: [] for it in KINDS}
    sizes = {}
    for kind in KINDS * repeats:
        _reset(kind)
        statements = list(_statements(kind, rows))
        with connection.cursor() as cursor:
            start = time.perf_counter()
            for statement in statements:
                cursor.execute(statement)
            per_s[kind.name].append(rows / (time.perf_counter() - start))
            cursor.execute(f"ANALYZE TABLE {TABLES[0]}")
            cursor.execute(
                "SELECT data_length, index_length FROM information_schema.tables"
                " WHERE table_schema = DATABASE() AND table_name = %s", TABLES[:1],
            )  # fmt: skip
            sizes[kind.name] = cursor.fetchone()
    _drop()
    for name, speeds in per_s.items():
        speed, plain = median(speeds), median(per_s[KINDS[0].name])
        yield name, round(speed), speed / plain, *(size / MIB for size in sizes[name])


def _statements(kind: Kind, rows: int) -> Iterator[str]:
    now_s, as_sql = time.time(), "0x{:032x}" if kind.type == "BINARY(16)" else "{}"
    for batch in range(rows // AT_ONCE):
        if kind.make is auto_increment:
            ids = ["NULL"] * AT_ONCE
        else:
            moments = (now_s + batch + ms / 1_000 for ms in range(AT_ONCE // PER_MS))
            ids = [as_sql.format(it) for moment in moments for it in kind.make(PER_MS, moment, 0)]
        values = ", ".join(f"({it}, {random.getrandbits(40)})" for it in ids)
        yield f"INSERT INTO {TABLES[0]} VALUES {values}"


def _reset(kind: Kind, *, is_new_day: bool = True) -> None:
    """Start the counters of both regions, on a new day or as after a loss, with empty tables."""
    _drop()
    with connection.cursor() as cursor:
        for table in TABLES:
            columns = f"id {kind.type} PRIMARY KEY, user_id BIGINT, KEY (user_id)"
            cursor.execute(f"CREATE TABLE {table} ({columns}) ENGINE=InnoDB")
    for region in range(len(TABLES)) if is_new_day else ():
        counter = {"seconds": 0, "day": 0, "sequence": 0}
        ledger_connection().hset(f"{KEY}shop:{region}", mapping=counter)


def _drop() -> None:
    _last_of.clear()
    delete_keys(f"{KEY}*")
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {', '.join(TABLES)}")


EXPERIMENTS = (
    Experiment(
        "ids",
        gettext_lazy("Ids for orders"),
        gettext_lazy(
            "kind|bits|repeated: counter lost|repeated: two regions|late: clock back|sales seen"
        ),
        repeat_and_reveal,
    ),
    Experiment(
        "id-inserts",
        gettext_lazy("Inserting ids"),
        gettext_lazy("kind|rows/s|to auto-increment|rows, MiB|index by buyer, MiB"),
        insert,
    ),
)
