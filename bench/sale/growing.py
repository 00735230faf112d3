"""Row g: what one request costs in a large shop, against the same in a small one.

Two shops on the same servers, each with a database, a ledger and a web server of its own, are asked
in turn, a few hundred requests at a time, so that a machine that is busy for a moment is busy for
both. One request at a time is on its way, so that the latency is that of the request alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import mean, median
from typing import Any

from redis import Redis

from bench.sale import wire
from bench.sale.course import Course, Sample
from bench.sale.figures import Line, Target, ratios
from bench.sale.generator import Shot
from bench.sale.places import ROOT, Place, Web, another, web
from bench.sale.plan import Size
from vouchers.inventory.keys import LedgerKeys

SMALL, LARGE = "small", "large"
RESERVE, RECEIPT = "order request that wins", "receipt of a finished order"
STATUS = {RESERVE: 202, RECEIPT: 200}
BOUND = 1.1
SLICES = 8
"""In so many parts each shop gets the requests of one repetition."""


Slices = list[Sample]
"""The parts of one repetition."""


@dataclass(frozen=True)
class Shop:
    """A filled shop, its web server, and the requests that are not sent yet."""

    place: Place
    web: Web
    sale_id: int
    requests: dict[str, list[bytes]]

    def take(self, what: str, count: int) -> list[bytes]:
        """Return the next requests; receipts may be asked for again."""
        if what == RECEIPT:
            return list(islice(cycle(self.requests[what]), count))
        taken, self.requests[what] = self.requests[what][:count], self.requests[what][count:]
        return taken

    def write_off(self) -> None:
        """Leave nothing pending: too old a promise would close the sale."""
        with Redis.from_url(self.place.redis_url) as redis:
            redis.delete(LedgerKeys(self.sale_id).pending)


def measure(course: Course) -> list[Line]:
    plan = course.plan
    sizes = {SMALL: plan.small, LARGE: plan.large}
    samples: defaultdict[tuple[str, str], list[Slices]] = defaultdict(list)
    with ExitStack() as stack:
        shops = {}
        for number, (name, size) in enumerate(
            course.steps(list(sizes.items()), what="g filling two shops"), start=1
        ):
            shops[name] = _open(course, stack, another(number), size)
        turns = [what for _ in range(plan.size_repetitions) for what in STATUS]
        for what in course.steps(turns, what="g small and large shop"):
            for name, slices in _in_turn(course, shops, what).items():
                samples[what, name].append(slices)
    return [line for what in STATUS for line in _lines(plan.small, plan.large, what, samples)]


def _open(course: Course, stack: ExitStack, place: Place, size: Size) -> Shop:
    asked = (course.plan.single_requests + course.plan.warm_up) * course.plan.size_repetitions
    path = place.scratch / f"shop-{place.number}.json"
    numbers = [size.buyers, size.sales, size.orders, asked]
    command = [sys.executable, "-m", "bench.sale.filling", *map(str, numbers), str(path)]
    subprocess.run(command, cwd=ROOT, env=place.environ, check=True)
    filled: dict[str, Any] = json.loads(path.read_text())
    sale_id = filled["sale_id"]
    # Of either shop as many different ones: what was asked for just now is answered faster.
    every = max(1, len(filled["receipts"]) // course.plan.small.orders)
    receipts = filled["receipts"][::every][: course.plan.small.orders]
    requests = {
        RESERVE: [wire.order(sale_id, token, attempt=1) for token in filled["reserve"]],
        RECEIPT: [wire.receipt(*receipt) for receipt in receipts],
    }
    return Shop(place, stack.enter_context(web(place)), sale_id, requests)


def _in_turn(course: Course, shops: dict[str, Shop], what: str) -> dict[str, Slices]:
    """Ask both shops the same, by turns, and say what each part cost."""
    for shop in shops.values():
        _ask(course, shop, what, course.plan.warm_up)
    found: dict[str, Slices] = {name: [] for name in shops}
    for number in range(SLICES):
        for name in list(shops)[:: -1 if number % 2 else 1]:
            size = course.plan.single_requests // SLICES
            found[name].append(_ask(course, shops[name], what, size))
    for shop in shops.values():
        shop.write_off()
    return found


def _ask(course: Course, shop: Shop, what: str, count: int) -> Sample:
    shot = Shot(shop.web.port, shop.take(what, count), connections=1)
    return course.sample(shot, web=shop.web, expect=STATUS[what])


def _lines(
    small: Size, large: Size, what: str, samples: dict[tuple[str, str], list[Slices]]
) -> list[Line]:
    against = f"{small.buyers:,} buyers, {small.sales:,} sales, {small.orders:,} orders"
    note = f"large: {large.buyers:,} buyers, {large.sales:,} sales, {large.orders:,} orders"

    def line(of: str, value: Callable[[Slices], float], *, scale: float) -> Line:
        many, few = ([value(it) * scale for it in samples[what, name]] for name in (LARGE, SMALL))
        return Line(
            row="g",
            name=f"{what}: {of}",
            against=against,
            target=Target(BOUND, at_least=False),
            values=ratios(many, few),
            unit="µs",
            ours=many,
            theirs=few,
            note=note,
        )

    return [
        line("processor time of all servers", _cpu_s, scale=1e6),
        line("median latency", lambda slices: median(_latencies(slices)), scale=1e6),
    ]


def _cpu_s(slices: Slices) -> float:
    return mean(sample.cpu_s for sample in slices)  # all of them have as many requests


def _latencies(slices: Slices) -> Sequence[float]:
    return [answer.latency_s for sample in slices for answer in sample.hits.answers]
