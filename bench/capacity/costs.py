"""The figures of this machine: what each operation costs, and what all of it can do at once.

Orders come from the crowd of a rehearsal, the other requests are those of ``script/bench sale``.
Each connection has one request in flight, as those of browsers.
"""

import math
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import asdict, astuple, dataclass
from datetime import date
from statistics import median
from typing import Any

from django.contrib.auth.hashers import check_password, make_password
from django.db.models import Count, Max
from django.urls import reverse

from backoffice.capacity.figures import Cost, Figures, Operation
from backoffice.rehearsal.crowd import fire
from bench.processes import cpu_spent
from bench.sale.data import open_sale, reserve_all, sign_in, users
from bench.sale.generator import Shot, packed
from bench.sale.requests import KINDS, SESSIONS, Kind
from bench.sale.run import Run, WrongAnswers
from bench.tables import Report, shown
from orders.fulfilment.worker import fulfil_sale
from orders.models import VoucherOrder
from orders.placing.tokens import issue_tokens
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

CONNECTIONS = 100
"""As many as a rehearsal has by default."""

CROWD = 12
"""Buyers for each unit where most are refused."""

LOOK_S = 0.02


@dataclass(frozen=True)
class Orders:
    """What orders cost, and how many a second there are, from two sales to a crowd."""

    win: Cost
    refusal: Cost
    wins_per_s: float
    refusals_per_s: float
    lag_s: float


def figures_of(
    machine: dict[str, Any],
    *,
    requests: Sequence[dict[Operation, Cost]],
    orders: Sequence[Orders],
    rows_per_s: Sequence[float],
    unit_bytes: float,
) -> Figures:
    """Return the median of each figure."""
    costs = {it: _median_cost([each[it] for each in requests]) for it in requests[0]}
    costs[Operation.WIN] = _median_cost([each.win for each in orders])
    costs[Operation.REFUSAL] = _median_cost([each.refusal for each in orders])
    return Figures(
        machine=f"{machine['cores']} cores of {machine['processor']}",
        cores=machine["cores"],
        measured_on=date.today().isoformat(),
        costs=costs,
        wins_per_s=median(each.wins_per_s for each in orders),
        refusals_per_s=median(each.refusals_per_s for each in orders),
        lag_s=median(each.lag_s for each in orders),
        rows_per_s=median(rows_per_s),
        unit_bytes=unit_bytes,
    )


def _median_cost(costs: Sequence[Cost]) -> Cost:
    return Cost(*map(median, zip(*map(astuple, costs), strict=True)))


# --- Requests -------------------------------------------------------------------------------------


def _receipt_pages(run: Run) -> list[bytes]:
    """Return the requests of some buyers' browsers for the receipt of their order."""
    sale, user_ids = open_sale(), users(count=SESSIONS)
    tokens = issue_tokens(sale=sale, user_ids=user_ids)
    reserve_all(tokens)
    fulfil_sale(sale_id=sale.pk)
    return [
        packed(
            reverse("receipt", args=[sale.pk, token.order_id]),
            headers={"Accept": "text/html", "Cookie": cookie},
        )
        for token, cookie in zip(tokens, sign_in(user_ids=user_ids), strict=True)
    ]


_BY_NAME = {kind.name: kind for kind in KINDS}
REQUESTS = {
    Operation.PAGE: _BY_NAME["purchase page, visitor"],
    Operation.LIVE: _BY_NAME["live/"],
    Operation.ME: _BY_NAME["me/ with token"],
    Operation.RECEIPT_PAGE: Kind("", "receipt page", 0, 200, _receipt_pages),
    Operation.RECEIPT: _BY_NAME["receipt of a queued order"],
}


def request_costs(run: Run) -> dict[Operation, Cost]:
    """Measure every operation but the orders."""
    costs = {it: _request_cost(run, kind) for it, kind in REQUESTS.items()}
    return {**costs, Operation.SIGN_IN: Cost(_sign_in_s() * 1e6, 0, 0, 0)}


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


def forget_unwritten() -> None:
    """Delete the sales whose orders nobody wrote: a worker would write them."""
    redis = ledger_connection()
    for sale in SeckillVoucher.objects.filter(orders=None):
        redis.unlink(*redis.scan_iter(f"*seckill:{{{sale.pk}}}:*", count=1_000))
        sale.delete()


# --- Orders of a rehearsal's crowd ----------------------------------------------------------------


def measure_orders(run: Run, crowd: Executor, worker: Sequence[int]) -> Orders:
    """Sell to a crowd in which everybody wins, then to one in which most are refused."""
    buyers = run.plan.wins
    units = buyers // CROWD
    refused = buyers - units
    won = sell(run, crowd, worker, units=buyers, buyers=buyers)
    crowded = sell(run, crowd, worker, units=units, buyers=buyers)
    win = [us / buyers for us in won.spent_us]
    of_units = [us * units for us in win]
    refusal = [max(0, a - b) / refused for a, b in zip(crowded.spent_us, of_units, strict=True)]
    sold_s = units * won.seconds / buyers
    return Orders(
        win=Cost(*win),
        refusal=Cost(*refusal),
        wins_per_s=buyers / won.seconds,
        refusals_per_s=refused / (crowded.seconds - sold_s),
        lag_s=max(0.0, crowded.written_s - sold_s),
    )


@dataclass(frozen=True)
class Sold:
    """A sale: seconds to the last answer and the last row, and what each part of ``Cost`` spent."""

    seconds: float
    written_s: float
    spent_us: list[float]


def fire_crowd(url: str, path: str, tokens: dict[int, str]) -> tuple[float, float]:
    """Send the tokens as a rehearsal does; return the times of the start and of the end."""
    began_at = time.time()
    fire(url=url, path=path, tokens=tokens, connections=CONNECTIONS, for_s=math.inf)
    return began_at, time.time()


def sell(run: Run, crowd: Executor, worker: Sequence[int], *, units: int, buyers: int) -> Sold:
    """Sell, and wait for the rows.

    :raises WrongAnswers: a unit was not sold.
    """
    sale = open_sale(stock=units)
    tokens = issue_tokens(sale=sale, user_ids=users(count=buyers))
    signed = {number: token.sign() for number, token in enumerate(tokens)}
    url, path = f"http://127.0.0.1:{run.web.port}", reverse("place-order", args=[sale.pk])
    web, redis, database = run.parts(run.web)
    with cpu_spent(web, worker, redis, database) as spent_s:
        began_at, ended_at = crowd.submit(fire_crowd, url, path, signed).result()
        while snapshot(sale_id=sale.pk).pending:
            time.sleep(LOOK_S)
    rows = VoucherOrder.objects.filter(seckill_voucher=sale, live=True)
    sold = rows.aggregate(count=Count("pk"), last=Max("created_at"))
    if sold["count"] != units:
        raise WrongAnswers(f"{sold['count']} of {units} units were sold")
    spent_us = [it * 1e6 for it in spent_s]
    return Sold(ended_at - began_at, sold["last"].timestamp() - began_at, spent_us)


# --- The report -----------------------------------------------------------------------------------

HEADINGS = ("work", "web", "worker", "Redis", "MariaDB")


def report_on_costs(figures: Figures) -> Report:
    """Return the processor time of each operation, and the other figures."""
    rows = [
        [operation.value, *(f"{shown(us)} µs" for us in asdict(cost).values())]
        for operation, cost in figures.costs.items()
    ]
    text = f"""\
- Machine: {figures.machine}, {figures.measured_on}
- One writer: {shown(figures.rows_per_s)} rows a second
- A sold unit in the ledger: {shown(figures.unit_bytes)} bytes
- With the crowd of a rehearsal on the same cores: {shown(figures.wins_per_s)} winning orders a \
second, then {shown(figures.refusals_per_s)} refused ones; the last row {shown(figures.lag_s)} s \
after the last unit"""
    return Report("costs", HEADINGS, rows, text, figures.as_json())
