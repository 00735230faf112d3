"""Row g: the cost of one request in a large shop, against the same in a small one.

Two shops on the same servers, each with a database, a ledger and a web server of its own, answer in
turn, a few hundred requests at a time, so that a machine that is busy for a moment is busy for
both. One request at a time is in flight, so that the latency is that of the request alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import mean, median
from typing import Any

from redis import Redis

from bench.sale.generator import Shot, order_request, receipt_request
from bench.sale.plan import Plan, Size
from bench.sale.report import Line, Target
from bench.sale.run import ROOT, Run, Sample, Site, Web, another, web
from bench.tables import ratios
from vouchers.inventory.keys import LedgerKeys

SMALL, LARGE = "small", "large"
RESERVE, RECEIPT = "order request that wins", "receipt of a finished order"
STATUS = {RESERVE: 202, RECEIPT: 200}
BOUND = 1.1
SLICES = 8
"""The number of parts in which each shop gets the requests of one repetition."""


Slices = list[Sample]
"""The parts of one repetition."""


@dataclass(frozen=True)
class Shop:
    """A filled shop, its web server, and the requests still to be sent."""

    site: Site
    web: Web
    sale_id: int
    requests: dict[str, list[bytes]]

    def take(self, what: str, count: int) -> list[bytes]:
        """Return the next requests; those for receipts may repeat."""
        if what == RECEIPT:
            return list(islice(cycle(self.requests[what]), count))
        taken, self.requests[what] = self.requests[what][:count], self.requests[what][count:]
        return taken

    def clear_pending(self) -> None:
        """Delete the pending entries: an entry that waits too long would close the sale."""
        with Redis.from_url(self.site.environ["REDIS_URL"]) as redis:
            redis.delete(LedgerKeys(self.sale_id).pending)


def measure(run: Run) -> list[Line]:
    plan = run.plan
    sizes = {SMALL: plan.small, LARGE: plan.large}
    samples: defaultdict[tuple[str, str], list[Slices]] = defaultdict(list)
    with ExitStack() as stack:
        shops = {}
        for number, (name, size) in enumerate(
            run.steps(list(sizes.items()), what="g filling two shops"), start=1
        ):
            shops[name] = _open(run, stack, another(number), size)
        turns = [what for _ in range(plan.size_repetitions) for what in STATUS]
        for what in run.steps(turns, what="g small and large shop"):
            for name, slices in _in_turn(run, shops, what).items():
                samples[what, name].append(slices)
    return [line for what in STATUS for line in _lines(run.plan, what, samples)]


def _open(run: Run, stack: ExitStack, site: Site, size: Size) -> Shop:
    asked = (run.plan.single_requests + run.plan.warm_up) * run.plan.size_repetitions
    path = site.scratch / f"shop-{site.number}.json"
    numbers = [size.buyers, size.sales, size.orders, asked]
    command = [sys.executable, "-m", "bench.sale.data", *map(str, numbers), str(path)]
    subprocess.run(command, cwd=ROOT, env=site.environ, check=True)
    filled: dict[str, Any] = json.loads(path.read_text())
    sale_id = filled["sale_id"]
    # As many different ones from either shop: a recent answer comes faster.
    every = max(1, len(filled["receipts"]) // run.plan.small.orders)
    receipts = filled["receipts"][::every][: run.plan.small.orders]
    requests = {
        RESERVE: [order_request(sale_id, token, attempt=1) for token in filled["reserve"]],
        RECEIPT: [receipt_request(*receipt) for receipt in receipts],
    }
    return Shop(site, stack.enter_context(web(site)), sale_id, requests)


def _in_turn(run: Run, shops: dict[str, Shop], what: str) -> dict[str, Slices]:
    """Ask both shops the same in turn; return the cost of each part."""
    for shop in shops.values():
        _ask(run, shop, what, run.plan.warm_up)
    found: dict[str, Slices] = {name: [] for name in shops}
    for number in range(SLICES):
        for name in list(shops)[:: -1 if number % 2 else 1]:
            size = run.plan.single_requests // SLICES
            found[name].append(_ask(run, shops[name], what, size))
    for shop in shops.values():
        shop.clear_pending()
    return found


def _ask(run: Run, shop: Shop, what: str, count: int) -> Sample:
    shot = Shot(shop.web.port, shop.take(what, count), connections=1)
    return run.sample(shot, web=shop.web, expect=STATUS[what])


def _lines(plan: Plan, what: str, samples: dict[tuple[str, str], list[Slices]]) -> list[Line]:
    small, large = (
        f"{size.buyers:,} buyers, {size.sales:,} sales, {size.orders:,} orders"
        for size in (plan.small, plan.large)
    )

    def line(of: str, value: Callable[[Slices], float]) -> Line:
        many, few = ([value(it) * 1e6 for it in samples[what, name]] for name in (LARGE, SMALL))
        target, note = Target(BOUND, at_least=False), f"large: {large}"
        values = ratios(many, few)
        return Line("g", f"{what}: {of}", small, target, values, "µs", many, few, note=note)

    return [
        # All parts have as many requests.
        line("processor time of all servers", lambda parts: mean(it.cpu_s for it in parts)),
        line(
            "median latency",
            lambda parts: median(it.latency_s for part in parts for it in part.hits.answers),
        ),
    ]
