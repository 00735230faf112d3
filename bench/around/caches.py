"""A cache in Redis in front of the database: what gets past it in a crowd, and what stops that.

A way to read gets the id of a sale and ``load``, which asks the database.
"""

import random
import time
from bisect import bisect
from collections.abc import Callable, Iterator
from functools import partial
from statistics import quantiles

from django.utils.translation import gettext_noop

from bench.around.measuring import in_threads, sql, timed_ms
from lab.experiments.experiment import Cell, Row
from lab.keys import delete_keys
from lab.models import LabOrder, LabSale
from locks import RedisLock
from seckill_site.redis.ledger_connection import ledger_connection

KEY = "lab:cache:"
KNOWN = f"{KEY}known"
LIFE_MS = 1_000
LOCK_S = 10
THREADS = 8
PEAK_S = 0.05
SAME_IDS = 20
MADE_UP = 1 << 40

Load = Callable[[int], str]
"""Returns what the database knows of a sale, or an empty text."""


def no_cache(sale_id: int, load: Load) -> str:
    return load(sale_id)


def cache(sale_id: int, load: Load, *, keeps_missing: bool = False, jitter: float = 0) -> str:
    key, client = f"{KEY}{sale_id}", ledger_connection()
    if (kept := client.get(key)) is not None:
        return str(kept)
    if (loaded := load(sale_id)) or keeps_missing:
        client.set(key, loaded, px=int(LIFE_MS * random.uniform(1 - jitter, 1 + jitter)))
    return loaded


def known_ids(sale_id: int, load: Load) -> str:
    return cache(sale_id, load) if ledger_connection().sismember(KNOWN, sale_id) else ""


def mutex(sale_id: int, load: Load) -> str:
    """Let one reader load what has expired, while the others wait."""
    if (kept := ledger_connection().get(f"{KEY}{sale_id}")) is not None:
        return str(kept)
    lock = RedisLock(ledger_connection(), f"{KEY}lock:{sale_id}")
    lock.acquire(wait_ms=1_000 * LOCK_S)
    try:
        return cache(sale_id, load)
    finally:
        lock.release()


def logical_expiry(sale_id: int, load: Load) -> str:
    """Let one reader load what is too old, while the others get it as it is: no key expires."""
    key, client = f"{KEY}{sale_id}", ledger_connection()
    until_s, _, kept = (client.get(key) or "0:").partition(":")
    is_fresh, lock = float(until_s) > time.time(), f"{KEY}lock:{sale_id}"
    # The lock is not released, so that nobody who read the old value loads it once more.
    if kept and (is_fresh or not client.set(lock, 1, nx=True, px=LIFE_MS // 2)):
        return str(kept)
    loaded = load(sale_id)
    client.set(key, f"{time.time() + LIFE_MS / 1_000}:{loaded}")
    return loaded


SAME, NEW = gettext_noop("made-up ids, the same ones"), gettext_noop("made-up ids, ever new")
HOT, ALL = gettext_noop("one key, and it expires"), gettext_noop("all keys, and they expire")
WAYS: tuple[tuple[str, str, Callable[[int, Load], str]], ...] = (
    (SAME, gettext_noop("no cache"), no_cache),
    (SAME, gettext_noop("cache"), cache),
    (SAME, gettext_noop("cache of what is missing too"), partial(cache, keeps_missing=True)),
    (NEW, "cache of what is missing too", partial(cache, keeps_missing=True)),
    (NEW, gettext_noop("a set of the known ids"), known_ids),
    (HOT, "no cache", no_cache),
    (HOT, "cache", cache),
    (HOT, gettext_noop("mutex"), mutex),
    (HOT, gettext_noop("logical expiry"), logical_expiry),
    (ALL, "no cache", no_cache),
    (ALL, "cache", cache),
    (ALL, gettext_noop("cache with jitter"), partial(cache, jitter=0.5)),
)
"""What is read, and how."""


def read_in_a_crowd(sales: int = 60, orders: int = 20_000, for_s: float = 3.0) -> Iterator[Row]:
    """Let a crowd of threads read in each way; the last sale has many orders to count."""
    made = LabSale.objects.bulk_create(LabSale(offered=1, stock=1) for _ in range(sales))
    ids = [it.pk for it in made]
    choices: dict[str, Callable[[], int]] = {
        SAME: lambda: MADE_UP + random.randrange(SAME_IDS),
        NEW: lambda: MADE_UP + random.getrandbits(40),
        HOT: lambda: ids[-1],
        ALL: lambda: random.choice(ids[:-1]),
    }
    try:
        buyers = (LabOrder(sale_id=ids[-1], user_id=it) for it in range(orders))
        LabOrder.objects.bulk_create(buyers, batch_size=5_000)
        for what, name, read in WAYS:
            ledger_connection().sadd(KNOWN, *ids)
            for sale_id in ids:  # the cache is filled at once
                read(sale_id, str)
            yield what, name, *_crowd(read, choices[what], for_s)
            delete_keys(f"{KEY}*")
    finally:
        delete_keys(f"{KEY}*")
        LabOrder.objects.filter(sale_id=ids[-1]).delete()
        LabSale.objects.filter(pk__in=ids).delete()


def _load(sale_id: int) -> str:
    """Return the stock of a sale and the number of its orders."""
    rows = sql(
        "SELECT stock, (SELECT COUNT(*) FROM lab_laborder WHERE sale_id = %s)"
        " FROM lab_labsale WHERE id = %s", sale_id, sale_id,
    )  # fmt: skip
    return " ".join(map(str, *rows)) if rows else ""


def _crowd(
    read: Callable[[int, Load], str], choose: Callable[[], int], for_s: float
) -> tuple[Cell, ...]:
    """Return reads and queries a second, the most queries in ``PEAK_S``, p99, and the keys left."""
    loads: list[float] = []
    took_ms: list[float] = []
    end = time.monotonic() + for_s

    def load(sale_id: int) -> str:
        loads.append(time.monotonic())
        return _load(sale_id)

    def keep_reading() -> None:
        while time.monotonic() < end:
            took_ms.append(timed_ms(lambda: read(choose(), load)))

    in_threads(THREADS, keep_reading)
    loads.sort()
    peak = max((bisect(loads, at + PEAK_S) - place for place, at in enumerate(loads)), default=0)
    keys = sum(1 for _ in ledger_connection().scan_iter(f"{KEY}[0-9]*", count=1_000))
    per_s = round(len(took_ms) / for_s), round(len(loads) / for_s)
    return *per_s, peak, quantiles(took_ms, n=100)[-1], keys
