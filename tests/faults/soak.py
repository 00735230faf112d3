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
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seckill_site.settings")

import django

if __name__ == "__main__":
    django.setup()

from django.core.management import call_command
from django.db import DatabaseError, connection

from orders.fulfilment.reconcile import reconcile
from tests.concurrency.sales import crowd_of, make_sale
from tests.faults.changes import wait_in_line
from tests.faults.history import History, Outcome
from tests.faults.soak_faults import Faults
from tests.faults.soak_shop import Ledger, Shop
from tests.support.patience import wait_for
from tests.support.stack import Stack
from vouchers.catalogue.sales import edit_sale, terms_of
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded
from vouchers.inventory.restart_watch import is_same_ledger
from vouchers.inventory.sale_state import snapshot

BUYERS, UNITS = 300, 60
ARRIVALS, TOGETHER = 12, 10
"""So often ten more buyers come, and all who are there ask again; at last everybody."""

SEVERAL = 3
"""How many of the ten press for two units first: all or what is left, in turn."""

ARRIVAL_SECONDS = 0.3

WAITING = 10

OPEN_SINCE_S = 120
"""Longer than any clock of Redis is behind: the sale is open at once."""

QUIET_SECONDS = 30.0
CLIENT_SECONDS = 10.0


# --- One sale -------------------------------------------------------------------------------------


class Round:
    """One sale: buyers who ask again and again, faults meanwhile, then quiet and the sum."""

    def __init__(self, number: int, shop: Shop, faults: Faults, say: Callable[[str], None]) -> None:
        self.shop, self.faults, self.say = shop, faults, say
        self.history = History(f"soak {number}", f"sale {number}")
        self.sale = make_sale(stock=UNITS, limit=2, begins_in_s=-OPEN_SINCE_S, ends_in_s=3_600)
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
            new = self.tokens[arrival * TOGETHER :]
            self.history.press(self.sale, new[:SEVERAL], quantity=2)
            there = self.tokens[: (arrival + 1) * TOGETHER]
            self._fire(there, url=self.shop.webs[arrival % 2].url)
            time.sleep(ARRIVAL_SECONDS)  # buyers do not come all at once
        for web in self.shop.webs:
            self._fire(self.tokens, url=web.url)
            # Some of those who got nothing wait for what comes back: one or two, or two or none.
            for n, token in enumerate(self.tokens[-WAITING:]):
                wait_in_line(self.sale, token, quantity=n % 3 + 1, all_or_none=n % 3 == 1)
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
        After a failover, beat has yet to rebuild the ledger, and receipts are unknown until then.
        """
        if reconcile(sale_id=self.sale.pk).difference != 0:
            return False
        found = snapshot(sale_id=self.sale.pk)
        rebuilt = is_same_ledger(sale_id=self.sale.pk, loaded_at_ms=found.loaded_at_ms)
        return rebuilt and found.pending == 0


def _at_last(holds: Callable[[], bool]) -> bool:
    """Ask once more; what is away for now is a no."""
    try:
        return holds()
    except (LedgerUnavailable, NotLoaded, DatabaseError):
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
        draw = random.Random(self.seed)
        database = connection.settings_dict["NAME"]
        with Ledger(self.directory) as ledger, Stack(self.directory, database=database) as stack:
            shop = Shop(stack, ledger, draw)
            shop.open()
            self.faults = Faults(shop, draw)
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
