"""The figures of this machine: what each piece of work costs, and what all of it can do at once.

Orders come from the crowd of a rehearsal, the other requests are those of ``script/bench sale``.
Each connection has one request in flight, as those of browsers.
"""

import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from datetime import date
from statistics import median
from typing import Any

from django.contrib.auth.hashers import check_password, make_password
from django.urls import reverse

from backoffice.capacity.figures import Cost, Figures, Work
from backoffice.rehearsal.crowd import fire
from bench.processes import cpu_s
from bench.sale.data import open_sale, reserve_all, sign_in, users
from bench.sale.generator import Shot, packed
from bench.sale.pending import measure_memory, write_orders
from bench.sale.requests import KINDS, SESSIONS, Kind
from bench.sale.run import Run, WrongAnswers, back_half
from bench.tables import Report, shown
from orders.fulfilment.worker import fulfill_sale
from orders.placing.tokens import PurchaseToken, issue_tokens
from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

CONNECTIONS = 100
"""As many as a rehearsal has by default."""

LOOK_S = 0.02


def measure_figures(run: Run, crowd: Executor, machine: dict[str, Any]) -> Figures:
    """Measure all figures once."""
    costs = {work: _request_cost(run, kind) for work, kind in REQUESTS.items()}
    costs[Work.SIGN_IN] = Cost(_sign_in_s() * 1e6, 0, 0, 0)
    rows_per_s = write_orders(users(count=run.plan.written))
    *_, held = measure_memory(run)
    _forget_unwritten()
    with back_half(run.site) as worker:
        _win(run, crowd, worker)  # warms up the worker
        won, refused = _win(run, crowd, worker), _refuse(run, crowd, worker)
    costs[Work.WIN], costs[Work.REFUSAL] = won.cost, refused.cost
    return Figures(
        machine=f"{machine['cores']} cores of {machine['processor']}",
        cores=machine["cores"],
        measured_on=date.today().isoformat(),
        costs=costs,
        click_us=(won.click_us + refused.click_us) / 2,
        busy=(won.busy + refused.busy) / 2,
        rows_per_s=rows_per_s,
        unit_bytes=held.values[0],
    )


def median_of(found: Sequence[Figures]) -> Figures:
    """Return the medians of all repetitions."""

    def middle(of: Callable[[Figures], float]) -> float:
        return median(of(each) for each in found)

    def cost(work: Work) -> Cost:
        return Cost(
            middle(lambda it: it.costs[work].web_us),
            middle(lambda it: it.costs[work].worker_us),
            middle(lambda it: it.costs[work].redis_us),
            middle(lambda it: it.costs[work].database_us),
        )

    return replace(
        found[-1],
        costs={work: cost(work) for work in Work},
        click_us=middle(lambda it: it.click_us),
        busy=middle(lambda it: it.busy),
        rows_per_s=middle(lambda it: it.rows_per_s),
        unit_bytes=middle(lambda it: it.unit_bytes),
    )


# --- Requests -------------------------------------------------------------------------------------


def _receipt_pages(run: Run) -> list[bytes]:
    """Return the requests of some buyers' browsers for the receipt of their order."""
    sale, user_ids = open_sale(), users(count=SESSIONS)
    tokens = issue_tokens(sale=sale, user_ids=user_ids)
    reserve_all(tokens)
    fulfill_sale(sale_id=sale.pk)
    return [
        packed(
            reverse("receipt", args=[sale.pk, token.order_id]),
            headers={"Accept": "text/html", "Cookie": cookie},
        )
        for token, cookie in zip(tokens, sign_in(user_ids=user_ids), strict=True)
    ]


_BY_NAME = {kind.name: kind for kind in KINDS}
REQUESTS = {
    Work.PAGE: _BY_NAME["purchase page, visitor"],
    Work.LIVE: _BY_NAME["live/"],
    Work.ME: _BY_NAME["me/ with token"],
    Work.RECEIPT_PAGE: Kind("", "receipt page", 0, 200, _receipt_pages),
    Work.RECEIPT: _BY_NAME["receipt of a queued order"],
}


def _request_cost(run: Run, kind: Kind) -> Cost:
    shot = Shot(run.web.port, kind.make(run), CONNECTIONS, seconds=run.plan.shot_s, again=True)
    sample = run.sample_warm(shot, web=run.web, expect=kind.status)
    return Cost(sample.web_cpu_s * 1e6, 0, sample.redis_cpu_s * 1e6, sample.database_cpu_s * 1e6)


def _sign_in_s() -> float:
    """Return the processor time of checking a password."""
    password = make_password("a password")
    before = time.process_time()
    check_password("a password", password)
    return time.process_time() - before


def _forget_unwritten() -> None:
    """Delete the sales whose orders nobody wrote: a worker would write them."""
    redis = ledger_connection()
    for sale in SeckillVoucher.objects.filter(orders=None):
        redis.unlink(*redis.scan_iter(f"*seckill:{{{sale.pk}}}:*", count=1_000))
        sale.delete()


# --- Orders of a rehearsal's crowd ----------------------------------------------------------------


@dataclass(frozen=True)
class Volley:
    """Orders of a crowd: their cost, the crowd's own microseconds, and the share of busy cores."""

    cost: Cost
    click_us: float
    busy: float


def fire_crowd(url: str, path: str, tokens: dict[int, str]) -> tuple[set[str], float, float]:
    """Send the tokens as a rehearsal does; return the codes, the seconds and the processor time."""
    began_at, before = time.monotonic(), time.process_time()
    answers = fire(url=url, path=path, tokens=tokens, connections=CONNECTIONS, for_s=math.inf)
    spent_s = time.process_time() - before
    return {answer.code for answer in answers}, time.monotonic() - began_at, spent_s


def _win(run: Run, crowd: Executor, worker: Sequence[int]) -> Volley:
    sale = open_sale()
    return _volley(run, crowd, worker, issue_tokens(sale=sale, user_ids=users(count=run.plan.wins)))


def _refuse(run: Run, crowd: Executor, worker: Sequence[int]) -> Volley:
    first, *others = issue_tokens(sale=open_sale(stock=1), user_ids=users(count=run.plan.wins + 1))
    reserve_all([first])
    return _volley(run, crowd, worker, others)


def _volley(
    run: Run, crowd: Executor, worker: Sequence[int], tokens: Sequence[PurchaseToken]
) -> Volley:
    """Send these orders, and wait for their rows.

    :raises WrongAnswers: they did not all get the same answer.
    """
    sale_id, count = tokens[0].sale_id, len(tokens)
    url, path = f"http://127.0.0.1:{run.web.port}", reverse("place-order", args=[sale_id])
    signed = {number: token.sign() for number, token in enumerate(tokens)}
    web, redis, database = run.parts(run.web)
    parts = (web, worker, redis, database)
    before = [cpu_s(pids) for pids in parts]
    codes, seconds, crowd_s = crowd.submit(fire_crowd, url, path, signed).result()
    fired_s = crowd_s + sum(map(cpu_s, parts)) - sum(before)
    if len(codes) != 1:
        raise WrongAnswers(f"answers {sorted(codes)} to orders of one kind")
    while snapshot(sale_id=sale_id).pending:
        time.sleep(LOOK_S)
    spent_us = [(cpu_s(pids) - was) / count * 1e6 for pids, was in zip(parts, before, strict=True)]
    busy = fired_s / seconds / len(os.sched_getaffinity(0))
    return Volley(Cost(*spent_us), crowd_s / count * 1e6, busy)


# --- The report -----------------------------------------------------------------------------------

HEADINGS = ("work", "web", "worker", "Redis", "MariaDB")


def report_on_costs(figures: Figures) -> Report:
    """Return the processor time of each piece of work, and the other figures."""
    rows = [
        [work.value, *(f"{shown(us)} µs" for us in asdict(cost).values())]
        for work, cost in figures.costs.items()
    ]
    text = f"""\
- Machine: {figures.machine}, {figures.measured_on}
- One writer: {shown(figures.rows_per_s)} rows a second
- A sold unit in the ledger: {shown(figures.unit_bytes)} bytes
- The crowd of a rehearsal: {shown(figures.click_us)} µs for a click
- With crowd and shop on all cores, these are {figures.busy:.0%} busy"""
    return Report("costs", HEADINGS, rows, text, figures.as_json())
