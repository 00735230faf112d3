"""What can happen to the shop of the soak and to a sale, drawn from a seed."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import MySQLdb
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import connection
from redis import Redis, ResponseError

from tests.faults.changes import Changes
from tests.faults.errors import DATABASE_ERRORS, STATEMENTS
from tests.faults.soak_shop import REDIS_CLOCKS_S, Shop
from tests.support.sales import change_stock
from tests.support.stack import Process
from vouchers.catalogue.sales import edit_sale, terms_of
from vouchers.inventory.keys import STATE, LedgerKeys, LedgerUnavailable, NotLoaded
from vouchers.inventory.sale_state import BelowTaken
from vouchers.models import SeckillVoucher

STOCK = (30, 120)
STOPPED_SECONDS = 8.0
"""Longer than a lease: the sale's lock has gone to another when the stopped one goes on."""

LONGEST_S = 3.0
"""How long a server refuses."""

LEDGER_KEYS = (
    "sale", "buyers", "pending", "ended", "tries", "kick", "trying", "barred", "waiting",
)  # fmt: skip
WRONG_TYPES = (
    *LEDGER_KEYS[:4],
    "sale_lock",
    "fence",
    "kick",
    "swept",
    "backoff",
    "failures",
    "tries",
)
BROKER_KEYS = ("celery", "unacked", "unacked_index")
MESSAGES = ("{}", "null", "no json", '{"body": "%%%", "headers": {}, "properties": {}}')


class Faults:
    """What can happen to a shop and a sale, drawn from a seed."""

    def __init__(self, shop: Shop, random: random.Random) -> None:
        self.shop = shop
        self.random = random
        self.done: Counter[str] = Counter()
        self.kinds: list[Callable[[SeckillVoucher], str]] = [
            self.everything_killed,
            self.worker_killed,
            self.web_killed,
            self.beat_killed,
            self.worker_stopped,
            self.web_stopped,
            self.ledger_emptied,
            self.ledger_key_deleted,
            self.ledger_key_of_a_wrong_type,
            self.ledger_has_junk,
            self.ledger_failed_over,
            self.ledger_clock_jumped,
            self.ledger_paused,
            self.ledger_read_only,
            self.ledger_full,
            self.scripts_flushed,
            self.broker_emptied,
            self.broker_has_junk,
            self.broker_key_of_a_wrong_type,
            self.broker_read_only,
            self.broker_full,
            self.database_connection_killed,
            self.database_error,
            self.orders_table_missing,
            self.stock_edited,
            self.sale_paused,
            *Changes(random).kinds,
        ]

    def happen(self, sale: SeckillVoucher) -> str:
        """Let one fault happen, and say what it was."""
        kind = self.random.choice(self.kinds)
        name = kind.__name__.replace("_", " ")
        self.done[name] += 1
        detail = kind(sale)
        return f"{name} {detail}".strip()

    def everything_killed(self, sale: SeckillVoucher) -> str:
        self.shop.close()
        self.shop.open()
        return ""

    def beat_killed(self, sale: SeckillVoucher) -> str:
        self.shop.restart_beat()
        return ""

    def worker_killed(self, sale: SeckillVoucher) -> str:
        number = self.random.randrange(2)
        self.shop.restart_worker(number)
        return self.shop.workers[number].name

    def web_killed(self, sale: SeckillVoucher) -> str:
        number = self.random.randrange(2)
        self.shop.restart_web(number)
        return self.shop.webs[number].name

    def worker_stopped(self, sale: SeckillVoucher) -> str:
        return self._stopped(self.random.choice(self.shop.workers), STOPPED_SECONDS)

    def web_stopped(self, sale: SeckillVoucher) -> str:
        return self._stopped(self.random.choice(self.shop.webs), 1.0)

    def _stopped(self, process: Process, longest_s: float) -> str:
        seconds = self.random.uniform(0.2, longest_s)
        process.pause()
        time.sleep(seconds)  # this is the fault itself
        process.resume()
        return f"{process.name} for {seconds:.1f} s"

    def ledger_emptied(self, sale: SeckillVoucher) -> str:
        with ledger() as client:
            client.flushdb()
        return ""

    def ledger_key_deleted(self, sale: SeckillVoucher) -> str:
        name = self.random.choice(LEDGER_KEYS)
        with ledger() as client:
            client.delete(getattr(LedgerKeys(sale.pk), name))
        return name

    def ledger_key_of_a_wrong_type(self, sale: SeckillVoucher) -> str:
        name = self.random.choice(WRONG_TYPES)
        with ledger() as client:
            key = getattr(LedgerKeys(sale.pk), name)
            client.delete(key)
            if name in ("sale", "buyers", "pending", "ended", "tries", "swept"):
                client.set(key, "no ledger")
            else:
                client.lpush(key, "no ledger")
        return name

    def ledger_has_junk(self, sale: SeckillVoucher) -> str:
        keys = LedgerKeys(sale.pk)
        with ledger() as client, suppress(ResponseError):  # of a wrong type, from another fault
            client.zadd(keys.pending, {"junk": 1, "1:2:3:4": float("inf")})
            client.hset(keys.buyers, "junk", "x")
            key, name = self.random.choice(((keys.buyers, STATE), (keys.sale, "run_id")))
            client.hset(key, name, "many")
        return ""

    def ledger_failed_over(self, sale: SeckillVoucher) -> str:
        ahead_s = self.random.choice(REDIS_CLOCKS_S)
        self.shop.ledger.fail_over(ahead_s=ahead_s)
        return f"with another clock: {ahead_s} s"

    def ledger_clock_jumped(self, sale: SeckillVoucher) -> str:
        ahead_s = self.random.choice(REDIS_CLOCKS_S)
        self.shop.ledger.primary.shift_clock(ahead_s)
        return f"to {ahead_s} s"

    def ledger_read_only(self, sale: SeckillVoucher) -> str:
        with ledger() as client:
            return self._read_only(client)

    def ledger_full(self, sale: SeckillVoucher) -> str:
        with ledger() as client:
            return self._full(client)

    def broker_read_only(self, sale: SeckillVoucher) -> str:
        with broker() as client:
            return self._read_only(client)

    def broker_full(self, sale: SeckillVoucher) -> str:
        with broker() as client:
            return self._full(client)

    def _read_only(self, client: Redis) -> str:
        """Make it a replica of nobody; what it has stays."""
        client.replicaof("127.0.0.1", 1)
        seconds = self._sleep()
        client.replicaof("NO", "ONE")
        return seconds

    def _full(self, client: Redis) -> str:
        client.config_set("maxmemory", 1)
        seconds = self._sleep()
        client.config_set("maxmemory", 0)
        return seconds

    def _sleep(self) -> str:
        seconds = self.random.uniform(0.1, LONGEST_S)
        time.sleep(seconds)  # this is the fault itself
        return f"for {seconds:.1f} s"

    def scripts_flushed(self, sale: SeckillVoucher) -> str:
        with ledger() as client:
            client.script_flush()
        return ""

    def broker_emptied(self, sale: SeckillVoucher) -> str:
        with broker() as client:
            client.flushdb()
        return ""

    def broker_has_junk(self, sale: SeckillVoucher) -> str:
        with broker() as client, suppress(ResponseError):  # of a wrong type, from another fault
            for message in MESSAGES:
                client.rpush("celery", message)
        return ""

    def broker_key_of_a_wrong_type(self, sale: SeckillVoucher) -> str:
        name = self.random.choice(BROKER_KEYS)
        with broker() as client:
            client.set(name, "no messages")
        return name

    def ledger_paused(self, sale: SeckillVoucher) -> str:
        milliseconds = self.random.randrange(100, 2_000)
        with ledger() as client:
            client.client_pause(milliseconds)
        return f"for {milliseconds} ms"

    def database_connection_killed(self, sale: SeckillVoucher) -> str:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT id FROM information_schema.processlist "
                "WHERE db = DATABASE() AND id != CONNECTION_ID() ORDER BY id"
            )
            ids = [row[0] for row in cursor.fetchall()]
            with suppress(MySQLdb.OperationalError):  # it has gone by itself
                if ids:
                    cursor.execute(f"KILL {self.random.choice(ids)}")
        return f"one of {len(ids)}"

    def database_error(self, sale: SeckillVoucher) -> str:
        number, statement = self.random.choice(DATABASE_ERRORS), self.random.choice(STATEMENTS)
        seconds = self.random.choice((0.0, self.random.uniform(0.1, LONGEST_S)))
        until = time.monotonic() + seconds if seconds else 0
        with suppress(FileNotFoundError):  # the mark of an earlier one
            (self.shop.inside / f"failed-{sale.pk}").rmdir()
        path, new = self.shop.inside / "database", self.shop.inside / "database.new"
        new.write_text(json.dumps({sale.pk: [number, statement, until]}))
        new.replace(path)
        time.sleep(seconds)  # this is the fault itself
        return f"{number} at {statement} " + (f"for {seconds:.1f} s" if seconds else "once")

    def orders_table_missing(self, sale: SeckillVoucher) -> str:
        with connection.cursor() as cursor:
            cursor.execute("RENAME TABLE orders_voucherorder TO orders_away")
            try:
                return self._sleep()
            finally:
                cursor.execute("RENAME TABLE orders_away TO orders_voucherorder")

    def stock_edited(self, sale: SeckillVoucher) -> str:
        stock = self.random.randrange(*STOCK)
        with edit_refused() as said:
            change_stock(sale_id=sale.pk, stock=stock)
        return f"to {stock}{said()}"

    def sale_paused(self, sale: SeckillVoucher) -> str:
        seconds = self.random.uniform(0.1, 1.5)
        with edit_refused() as said:
            self._pause(sale, paused=True)
            time.sleep(seconds)
            self._pause(sale, paused=False)
        return f"for {seconds:.1f} s{said()}"

    @staticmethod
    def _pause(sale: SeckillVoucher, *, paused: bool) -> None:
        sale.refresh_from_db()
        edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), paused=paused))


@contextmanager
def edit_refused() -> Iterator[Callable[[], str]]:
    """An edit may be refused, which is an answer; ``said`` tells which."""
    refusals: list[str] = []
    try:
        yield lambda: f" (refused: {refusals[0]})" if refusals else ""
    except (BelowTaken, LedgerUnavailable, NotLoaded, ValidationError) as error:
        refusals.append(type(error).__name__)


@contextmanager
def broker() -> Iterator[Redis]:
    with Redis.from_url(settings.CELERY_BROKER_URL, decode_responses=True) as client:
        yield client


@contextmanager
def ledger() -> Iterator[Redis]:
    with Redis.from_url(settings.REDIS_URL, decode_responses=True) as client:
        yield client
