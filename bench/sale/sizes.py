"""Row g: the cost of one request in a large shop, against the same in a small one.

Two shops on the same servers, each with a database, a ledger and a web server of its own, answer in
turn, a few hundred requests at a time, so that a busy moment of the machine affects both. One
request at a time is in flight, so that the latency is that of the request alone.
"""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import mean, median
from typing import Any

from redis import Redis

from bench.sale.generator import Shot, order_request, receipt_request
from bench.sale.plan import Size
from bench.sale.report import Line, Target
from bench.sale.run import ROOT, Run, Sample, Site, Web, another, web
from vouchers.inventory.keys import LedgerKeys

RESERVE, RECEIPT = "order request that wins", "receipt of a finished order"
STATUS = {RESERVE: 202, RECEIPT: 200}
CPU, LATENCY = "processor time of all servers", "median latency"
BOUND = 1.1
SLICES = 8
"""The number of parts in which each shop gets the requests of one repetition."""


@dataclass(frozen=True)
class Shop:
    """A filled shop, its web server, and the requests still to be sent."""

    site: Site
    web: Web
    sale_id: int
    requests: dict[str, Iterable[bytes]]


def measure(run: Run) -> list[Line]:
    plan = run.plan
    small, large = plan.small, plan.large
    costs: defaultdict[tuple[str, str, Size], list[float]] = defaultdict(list)
    with ExitStack() as stack:
        sizes = run.steps([small, large], what="g filling two shops")
        shops = {size: _open(run, stack, another(n), size) for n, size in enumerate(sizes, start=1)}
        turns = [what for _ in range(plan.size_repetitions) for what in STATUS]
        for what in run.steps(turns, what="g small and large shop"):
            for size, samples in _in_turn(run, shops, what).items():
                answers = [answer for sample in samples for answer in sample.hits.answers]
                # All parts have the same number of requests.
                costs[what, CPU, size].append(mean(it.cpu_s for it in samples) * 1e6)
                costs[what, LATENCY, size].append(median(it.latency_s for it in answers) * 1e6)
    target = Target.most(BOUND)
    lines = []
    for what in STATUS:
        for figure in (CPU, LATENCY):
            few, many = costs[what, figure, small], costs[what, figure, large]
            name, note = f"{what}: {figure}", f"large: {large}"
            lines.append(Line.ratio("g", name, str(small), target, "µs", many, few, note=note))
    return lines


def _open(run: Run, stack: ExitStack, site: Site, size: Size) -> Shop:
    asked = (run.plan.single_requests + run.plan.warm_up) * run.plan.size_repetitions
    path = site.scratch / f"shop-{site.number}.json"
    numbers = [size.buyers, size.sales, size.orders, asked]
    command = [sys.executable, "-m", "bench.sale.data", *map(str, numbers), str(path)]
    subprocess.run(command, cwd=ROOT, env=site.environ, check=True)
    filled: dict[str, Any] = json.loads(path.read_text())
    sale_id = filled["sale_id"]
    # Use equally many different receipts from both shops: a repeated request is faster.
    every = max(1, len(filled["receipts"]) // run.plan.small.orders)
    receipts = filled["receipts"][::every][: run.plan.small.orders]
    reserve = [order_request(sale_id, token, attempt=1) for token in filled["reserve"]]
    receive = [receipt_request(*receipt) for receipt in receipts]
    requests = {RESERVE: iter(reserve), RECEIPT: receive}
    return Shop(site, stack.enter_context(web(site)), sale_id, requests)


def _in_turn(run: Run, shops: Mapping[Size, Shop], what: str) -> dict[Size, list[Sample]]:
    """Send the same requests to both shops in turn; return the cost of each part."""
    for shop in shops.values():
        _ask(run, shop, what, run.plan.warm_up)
    samples: dict[Size, list[Sample]] = {size: [] for size in shops}
    for number in range(SLICES):
        for size in list(shops)[:: -1 if number % 2 else 1]:
            samples[size].append(_ask(run, shops[size], what, run.plan.single_requests // SLICES))
    for shop in shops.values():
        with Redis.from_url(shop.site.environ["REDIS_URL"]) as redis:
            # A pending entry that waits too long would close the sale.
            redis.delete(LedgerKeys(shop.sale_id).pending)
    return samples


def _ask(run: Run, shop: Shop, what: str, count: int) -> Sample:
    source = cycle(shop.requests[what]) if what == RECEIPT else shop.requests[what]
    requests = list(islice(source, count))
    shot = Shot(shop.web.port, requests, connections=1)
    return run.sample(shot, web=shop.web, expect=STATUS[what])
