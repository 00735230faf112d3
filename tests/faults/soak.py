"""The soak: sale after sale on real processes, under faults drawn at random from a seed.

::

    script/test --soak 30              # minutes
    script/test --soak 30 --seed 7     # the same faults again, as far as time allows

Prints what it does as it goes and a table at the end; the exit status is 1 where an invariant did
not hold. The seed decides the faults, their order and their pauses; the load decides what they hit.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seckill_site.settings")

import django

if __name__ == "__main__":
    django.setup()

import MySQLdb
from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import OperationalError, connection
from redis import Redis

from orders.fulfilment.reconcile import reconcile
from tests.concurrency.sales import crowd_of, make_sale
from tests.faults.changes import Changes, wait_in_line
from tests.faults.history import History, Outcome
from tests.support.patience import wait_for
from tests.support.sales import change_stock
from tests.support.stack import Process, Stack, Web
from vouchers.catalogue.sales import edit_sale, terms_of
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable, NotLoaded
from vouchers.inventory.sale_state import BelowTaken, snapshot
from vouchers.models import SeckillVoucher

BUYERS, UNITS = 300, 60
ARRIVALS, TOGETHER = 12, 10
"""So often ten more buyers come, and all who are there ask again; at last everybody."""

ARRIVAL_SECONDS = 0.3

WAITING = 10

LEDGER_KEYS = (
    "sale", "buyers", "pending", "ended", "tries", "kick", "trying", "barred", "waiting",
)  # fmt: skip
QUIET_SECONDS = 60.0
CLIENT_SECONDS = 10.0
STOPPED_SECONDS = 8.0
"""Longer than a lease: the sale's lock has gone to another when the stopped one goes on."""


@dataclass
class Shop:
    """Two web servers, two workers and beat; who is killed is started again."""

    stack: Stack
    webs: list[Web] = field(default_factory=list)
    workers: list[Process] = field(default_factory=list)
    beat: Process | None = None

    def open(self) -> None:
        self.webs = [self.stack.web(), self.stack.web()]
        self.workers = [self.stack.worker(), self.stack.worker()]
        self.beat = self.stack.beat()

    def restart_web(self, number: int) -> None:
        self._forget(self.webs[number])
        self.webs[number] = self.stack.web()

    def restart_worker(self, number: int) -> None:
        self._forget(self.workers[number])
        self.workers[number] = self.stack.worker()

    def _forget(self, process: Process) -> None:
        process.kill()
        process.log.unlink()


# --- Faults ---------------------------------------------------------------------------------------


class Faults:
    """What can happen to a shop and a sale, drawn from a seed."""

    def __init__(self, shop: Shop, random: random.Random) -> None:
        self.shop = shop
        self.random = random
        self.done: Counter[str] = Counter()
        self.kinds: list[Callable[[SeckillVoucher], str]] = [
            self.worker_killed,
            self.web_killed,
            self.worker_stopped,
            self.web_stopped,
            self.ledger_emptied,
            self.ledger_key_deleted,
            self.ledger_key_of_a_wrong_type,
            self.scripts_flushed,
            self.broker_emptied,
            self.redis_paused,
            self.database_connection_killed,
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
        name = self.random.choice(LEDGER_KEYS[:4])
        with ledger() as client:
            client.set(getattr(LedgerKeys(sale.pk), name), "no ledger")
        return name

    def scripts_flushed(self, sale: SeckillVoucher) -> str:
        with ledger() as client:
            client.script_flush()
        return ""

    def broker_emptied(self, sale: SeckillVoucher) -> str:
        with Redis.from_url(settings.CELERY_BROKER_URL) as broker:
            broker.flushdb()
        return ""

    def redis_paused(self, sale: SeckillVoucher) -> str:
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

    def stock_edited(self, sale: SeckillVoucher) -> str:
        stock = self.random.randrange(UNITS // 2, 2 * UNITS)
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
def ledger() -> Iterator[Redis]:
    with Redis.from_url(settings.REDIS_URL, decode_responses=True) as client:
        yield client


# --- One sale -------------------------------------------------------------------------------------


class Round:
    """One sale: buyers who ask again and again, faults meanwhile, then quiet and the sum."""

    def __init__(self, number: int, shop: Shop, faults: Faults, say: Callable[[str], None]) -> None:
        self.shop, self.faults, self.say = shop, faults, say
        self.history = History(f"soak {number}", f"sale {number}")
        self.sale = make_sale(stock=UNITS, ends_in_s=3_600)
        self.tokens = crowd_of(self.sale, count=BUYERS)

    def run(self) -> Outcome:
        crowd = threading.Thread(target=self._ask, daemon=True)
        crowd.start()
        while crowd.is_alive():
            self.say(f"  {self.faults.happen(self.sale)}")
            self.history.fault_is_over()
            crowd.join(self.faults.random.uniform(0.05, 1.0))
        return self._finish()

    def _ask(self) -> None:
        """Let more and more buyers ask again and again; who has an order is told the same."""
        for arrival in range(ARRIVALS):
            there = self.tokens[: (arrival + 1) * TOGETHER]
            self._fire(there, url=self.shop.webs[arrival % 2].url)
            time.sleep(ARRIVAL_SECONDS)  # buyers do not come all at once
        for web in self.shop.webs:
            self._fire(self.tokens, url=web.url)
            # Some of those who got nothing wait for what comes back.
            for token in self.tokens[-WAITING:]:
                wait_in_line(self.sale, token)
        connection.close()

    def _fire(self, tokens: list[str], *, url: str) -> None:
        with suppress(OSError):  # that server is being started again, and nothing was sent
            self.history.fire(self.sale, tokens, url=url, timeout_seconds=CLIENT_SECONDS)

    def _finish(self) -> Outcome:
        """With the faults over, everything comes right with no hand on it."""
        self._wait(self._is_quiet, what="an empty pending set")
        self._wait(self._is_going_on, what="a sale that is not paused")
        self._wait(self._is_told, what="an answer for everybody")
        self._wait(self._is_right, what="a sum that is right, and nothing on its way")
        self.history.recovered()
        return self.history.check(
            self.sale,
            may_refuse=True,
            slowest_seconds=CLIENT_SECONDS + 1,
            recovery_seconds=QUIET_SECONDS,
        )

    @staticmethod
    def _wait(holds: Callable[[], bool], *, what: str) -> None:
        wait_for(lambda: _at_last(holds), what=what, seconds=QUIET_SECONDS)

    def _is_quiet(self) -> bool:
        return snapshot(sale_id=self.sale.pk).pending == 0

    def _is_going_on(self) -> bool:
        self.sale.refresh_from_db()
        edit_sale(sale_id=self.sale.pk, terms=replace(terms_of(self.sale), paused=False))
        return not snapshot(sale_id=self.sale.pk).terms.paused

    def _is_told(self) -> bool:
        if tokens := self.history.not_told(self.sale):
            self.history.fire(self.sale, tokens, url=self.shop.webs[0].url)
        return not self.history.not_told(self.sale)

    def _is_right(self) -> bool:
        """What a fault has put wrong is mended by beat, and needs no load to be found.

        What was mended may be pending again: a promise whose entry was deleted is promised anew.
        """
        return reconcile(sale_id=self.sale.pk).difference == 0 and self._is_quiet()


def _at_last(holds: Callable[[], bool]) -> bool:
    """Ask once more; what is away for now is a no."""
    try:
        return holds()
    except (LedgerUnavailable, NotLoaded, OperationalError):
        connection.close()
        time.sleep(0.1)
        return False


# --- The run --------------------------------------------------------------------------------------


class Soak:
    """Rounds until the time is over, and what came of them."""

    def __init__(self, *, minutes: float, seed: int, directory: Path) -> None:
        self.seed, self.directory = seed, directory
        self.begun = time.monotonic()
        self.until = self.begun + 60 * minutes
        self.outcomes: list[Outcome] = []
        self.violations: list[str] = []

    def run(self) -> int:
        """Return the exit status."""
        self.say(f"seed {self.seed}, logs in {self.directory}")
        with Stack(self.directory, database=connection.settings_dict["NAME"]) as stack:
            shop = Shop(stack)
            shop.open()
            self.faults = Faults(shop, random.Random(self.seed))
            try:
                while not self.violations and not self._is_over():
                    self._round(shop)
            except KeyboardInterrupt:
                self.say("interrupted: the sale that was on is not counted")
        self._summary()
        return 1 if self.violations else 0

    def _is_over(self) -> bool:
        return bool(self.outcomes) and time.monotonic() > self.until

    def say(self, text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - self.begun:7.1f} s  {text}\n")
        sys.stdout.flush()

    def _round(self, shop: Shop) -> None:
        number = len(self.outcomes) + 1
        self.say(f"sale {number}: {BUYERS} buyers, {UNITS} units")
        try:
            outcome = Round(number, shop, self.faults, self.say).run()
        except Exception as error:
            self.violations.append(f"sale {number}: {error}")
            self.say(f"VIOLATION: {error}\n{traceback.format_exc()}")
            return
        self.outcomes.append(outcome)
        self.say(
            f"sale {number}: {outcome.orders} orders, {outcome.accepted} accepted, "
            f"{outcome.refused} of them refused later, {outcome.unknown} answers unknown, "
            f"quiet after {outcome.worst_recovery_s:.1f} s: all invariants hold"
        )

    def _summary(self) -> None:
        sys.stdout.write("\n".join(["", *self.table(), ""]))
        for violation in self.violations:
            sys.stdout.write(f"\nVIOLATION {violation}")
        if self.violations:
            sys.stdout.write(f"\nrepeat with --seed {self.seed}; logs in {self.directory}\n")

    def table(self) -> list[str]:
        """Return the table of faults and the one of what came of them, as Markdown."""
        kinds = [f"| {kind} | {count} |" for kind, count in self.faults.done.most_common()]
        sums = {name: sum(getattr(it, name) for it in self.outcomes) for name in SUMMED}
        rows = {
            "seed": self.seed,
            "minutes": round((time.monotonic() - self.begun) / 60, 1),
            "sales": len(self.outcomes),
            **{SUMMED[name]: count for name, count in sums.items()},
            "worst recovery s": max((it.worst_recovery_s for it in self.outcomes), default=0),
            "violations": len(self.violations),
        }
        return [
            *("| fault | times |", "| --- | --- |", *kinds, ""),
            *("| soak | |", "| --- | --- |", *(f"| {name} | {it} |" for name, it in rows.items())),
        ]


SUMMED = {
    "orders": "orders",
    "accepted": "accepted",
    "unknown": "unknown answers",
    "refused": "accepted, refused later",
    "lost": "lost",
    "doubled": "doubled",
    "oversold": "oversold",
}


def main() -> int:
    arguments = parse_arguments()
    if "SECKILL_SCRATCH" not in os.environ:
        sys.exit("it empties the databases of REDIS_URL and CELERY_BROKER_URL: run script/test")
    logging.disable(logging.WARNING)  # what this process says of itself; the parts have logs
    call_command("migrate", verbosity=0)
    directory = Path(tempfile.mkdtemp(prefix="seckill-soak-"))
    soak = Soak(minutes=arguments.minutes, seed=arguments.seed, directory=directory)
    status = soak.run()
    if status == 0:
        shutil.rmtree(directory)
    return status


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="script/test --soak")
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
