"""The figures of this machine: what each kind of request and each written order costs.

Each connection has one request in flight, as those of browsers and of a rehearsal. The orders that
reach the ledger come from a rehearsal's own crowd, whose processor time is a figure as well.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from datetime import date
from statistics import median
from typing import Any

from django.contrib.auth.hashers import check_password, make_password
from django.db.models import Max
from django.urls import reverse

from backoffice.capacity.figures import Cost, Crowd, Figures, Work
from backoffice.buyers import make_users
from backoffice.rehearsal.buyers import clicks_of, sign_tokens, username_of
from backoffice.rehearsal.crowd import fire
from backoffice.rehearsal.http_client import Address
from bench.processes import cpu_s
from bench.sale.data import open_sale, reserve_all, sign_in, strangers, users
from bench.sale.generator import Shot, order_request, packed
from bench.sale.requests import KINDS, SESSIONS, Kind
from bench.sale.run import Run, WrongAnswers
from bench.tables import Report, shown
from orders.fulfilment.worker import fulfill_sale
from orders.models import VoucherOrder
from orders.placing.tokens import PurchaseToken, issue_tokens
from seckill_site.clocks.machine import epoch_ms, now_ms
from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.request_stats import ACCEPTED
from vouchers.models import SeckillVoucher

CONNECTIONS = 100
"""As many as a rehearsal has by default."""

BURST = 200
"""Orders that measure the lag of the writer: few enough for it to keep up."""

CROWDED = 15
"""How many times as many buyers want them in vain."""

PREPARED = 1_000
"""Clicks whose preparation is measured."""

LOOK_S = 0.02
LONGEST_S = 60.0
SOLD_OUT = "sold_out"


# --- Requests -------------------------------------------------------------------------------------


def _receipt_pages(run: Run) -> list[bytes]:
    """Return the requests of some buyers' browsers for the receipt of their order."""
    sale, user_ids = open_sale(), users(count=SESSIONS)
    tokens = issue_tokens(sale=sale, user_ids=user_ids)
    reserve_all(tokens)
    fulfill_sale(sale_id=sale.pk)
    pages = [reverse("receipt", args=[sale.pk, token.order_id]) for token in tokens]
    cookies = sign_in(user_ids=user_ids)
    return [
        packed(page, headers={"Accept": "text/html", "Cookie": cookie})
        for page, cookie in zip(pages, cookies, strict=True)
    ]


_BY_NAME = {kind.name: kind for kind in KINDS}
REQUESTS = {
    Work.PAGE: _BY_NAME["purchase page, visitor"],
    Work.LIVE: _BY_NAME["live/"],
    Work.ME: _BY_NAME["me/ with token"],
    Work.ORDER_SOLD_OUT: _BY_NAME["sold out, first attempt"],
    Work.RECEIPT: _BY_NAME["receipt of a queued order"],
    Work.RECEIPT_PAGE: Kind("", "receipt page", 0, 200, _receipt_pages),
}


def _request_cost(run: Run, kind: Kind) -> Cost:
    shot = Shot(run.web.port, kind.make(run), CONNECTIONS, seconds=run.plan.shot_s, again=True)
    sample = run.sample_warm(shot, web=run.web, expect=kind.status)
    return _cost([sample.web_cpu_s, sample.redis_cpu_s, sample.database_cpu_s], 1)


def _cost(spent_s: Sequence[float], count: int) -> Cost:
    """Return the cost of one of ``count``; the times are of the shop, Redis and MariaDB."""
    return Cost(*(it / count * 1e6 for it in spent_s))


# --- A rehearsal's crowd --------------------------------------------------------------------------


@dataclass(frozen=True)
class Volley:
    """The answers to a crowd, by their codes, and its processor time."""

    codes: Counter[str]
    cpu_s: float


def fire_crowd(url: str, path: str, tokens: dict[int, str]) -> Volley:
    """Send the tokens as a rehearsal does."""
    before = time.process_time()
    answers = fire(url=url, path=path, tokens=tokens, connections=CONNECTIONS, for_s=math.inf)
    spent = time.process_time() - before
    return Volley(Counter(answer.code for answer in answers), spent)


def _crowd_cost(
    run: Run, crowd: Executor, tokens: Sequence[PurchaseToken], code: str
) -> tuple[Cost, float]:
    """Return the cost of an order, and the crowd's own microseconds for it.

    :raises WrongAnswers: an answer had another code.
    """
    url, path = f"http://127.0.0.1:{run.web.port}", reverse("place-order", args=[tokens[0].sale_id])
    signed = {number: token.sign() for number, token in enumerate(tokens)}
    parts = run.parts(run.web)
    before = [cpu_s(pids) for pids in parts]
    volley = crowd.submit(fire_crowd, url, path, signed).result()
    spent = [cpu_s(pids) - was for pids, was in zip(parts, before, strict=True)]
    if set(volley.codes) != {code}:
        raise WrongAnswers(f"{dict(volley.codes)}, where {code} was expected")
    return _cost(spent, len(tokens)), volley.cpu_s / len(tokens) * 1e6


def _wins(run: Run, crowd: Executor) -> tuple[Cost, float]:
    return _crowd_cost(run, crowd, strangers(open_sale(), count=run.plan.wins), ACCEPTED)


def _refusals(run: Run, crowd: Executor) -> tuple[Cost, float]:
    first, *others = strangers(open_sale(stock=1), count=run.plan.wins + 1)
    reserve_all([first])
    return _crowd_cost(run, crowd, others, SOLD_OUT)


def _preparation_us() -> tuple[float, float]:
    """Return the microseconds for which a crowd signs a token, and builds its request."""
    sale, count = open_sale(), PREPARED
    make_users(username_of(shadow_id=sale.pk, number=number) for number in range(count))
    clicks = dict(enumerate(clicks_of(buyers=count, duplicates=0)))
    address = Address.of("http://localhost")
    began_at = time.perf_counter()
    tokens = sign_tokens(shadow=sale, first_order_id=1, buyers=count, clicks=clicks)
    signed_at = time.perf_counter()
    for token in tokens.values():
        address.request("POST", "/vouchers/1/orders/", {"token": token})
    built_at = time.perf_counter()
    return (signed_at - began_at) / count * 1e6, (built_at - signed_at) / count * 1e6


# --- The writer -----------------------------------------------------------------------------------


def _rows(run: Run) -> tuple[Cost, float]:
    """Write orders in this process; return the cost of one, and how many a second."""
    sale = open_sale()
    reserve_all(issue_tokens(sale=sale, user_ids=users(count=run.plan.written)))
    _, redis, mariadb = run.parts(run.web)
    began_at, ours_s = time.perf_counter(), time.process_time()
    before = [cpu_s(redis), cpu_s(mariadb)]
    while fulfill_sale(sale_id=sale.pk):
        pass  # as the next task would continue
    seconds = time.perf_counter() - began_at
    spent = [cpu_s(redis) - before[0], cpu_s(mariadb) - before[1]]
    cost = _cost([time.process_time() - ours_s, *spent], run.plan.written)
    return cost, run.plan.written / seconds


def measure_lag_s(run: Run) -> float:
    """Sell a few units to many, with a worker; return the seconds from the last accepted order to the last row."""
    sale = open_sale(stock=BURST)
    tokens = issue_tokens(sale=sale, user_ids=users(count=BURST))
    tokens += strangers(sale, count=CROWDED * BURST)  # they keep the processors busy meanwhile
    requests = [order_request(sale.pk, token.sign()) for token in tokens]
    hits = run.start(Shot(run.web.port, requests, CONNECTIONS)).result()
    sold_at = max(it.at for it in hits.answers if it.status == 202)
    sold_ms = now_ms() - (time.monotonic() - sold_at) * 1000
    rows = VoucherOrder.objects.filter(seckill_voucher=sale)
    deadline = time.monotonic() + LONGEST_S
    while rows.count() < BURST:
        if time.monotonic() > deadline:
            raise WrongAnswers(f"{rows.count()} of {BURST} orders were written")
        time.sleep(LOOK_S)
    last = rows.aggregate(last=Max("created_at"))["last"]
    return max(0.0, epoch_ms(last) - sold_ms) / 1000


def _sign_in_s() -> float:
    """Return the processor time of checking a password."""
    password = make_password("a password")
    before = time.process_time()
    check_password("a password", password)
    return time.process_time() - before


# --- All of them ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Turn:
    """The figures of one repetition."""

    costs: dict[Work, Cost]
    crowd: Crowd
    rows_per_s: float
    lag_s: float


def measure_costs(run: Run, crowd: Executor) -> tuple[dict[Work, Cost], Crowd, float]:
    """Measure what needs no worker; return the costs, those of a crowd, and rows per second."""
    costs = {work: _request_cost(run, kind) for work, kind in REQUESTS.items()}
    costs[Work.ORDER_WINS], win_us = _wins(run, crowd)
    costs[Work.ORDER_REFUSED], refusal_us = _refusals(run, crowd)
    costs[Work.ROW], rows_per_s = _rows(run)
    costs[Work.SIGN_IN] = _cost([_sign_in_s(), 0, 0], 1)
    sign_us, build_us = _preparation_us()
    send_us = (win_us + refusal_us) / 2 - build_us
    return costs, Crowd(sign_us, build_us, send_us), rows_per_s


def forget_unwritten() -> None:
    """Delete the sales whose orders nobody wrote: a worker would write them meanwhile."""
    redis = ledger_connection()
    for sale in SeckillVoucher.objects.filter(orders=None):
        redis.unlink(*redis.scan_iter(f"*seckill:{{{sale.pk}}}:*", count=1_000))
        sale.delete()


def figures_of(
    turns: Sequence[Turn], machine: dict[str, Any], *, held_bytes: float, unit_bytes: float
) -> Figures:
    """Return the medians of all repetitions."""

    def middle(of: Callable[[Turn], float]) -> float:
        return median(of(turn) for turn in turns)

    def cost(work: Work) -> Cost:
        return Cost(
            middle(lambda it: it.costs[work].shop_us),
            middle(lambda it: it.costs[work].redis_us),
            middle(lambda it: it.costs[work].database_us),
        )

    return Figures(
        machine=f"{machine['cores']} cores of {machine['processor']}",
        cores=machine["cores"],
        measured_on=date.today().isoformat(),
        versions={"python": machine["python"], **machine["packages"]},
        costs={work: cost(work) for work in Work},
        crowd=Crowd(
            middle(lambda it: it.crowd.sign_us),
            middle(lambda it: it.crowd.build_us),
            middle(lambda it: it.crowd.send_us),
        ),
        rows_per_s=middle(lambda it: it.rows_per_s),
        lag_s=middle(lambda it: it.lag_s),
        unit_bytes=unit_bytes,
        held_bytes=held_bytes,
    )


# --- The report -----------------------------------------------------------------------------------

HEADINGS = ("work", "web or worker", "Redis", "MariaDB")


def report_on_costs(figures: Figures) -> Report:
    """Return the processor time of each piece of work, and the other figures."""
    rows = [
        [work.value, *(f"{shown(us)} µs" for us in (cost.shop_us, cost.redis_us, cost.database_us))]
        for work, cost in figures.costs.items()
    ]
    crowd = figures.crowd
    text = f"""\
- Machine: {figures.machine}, {figures.measured_on}
- Versions: {", ".join(f"{name} {of}" for name, of in figures.versions.items())}
- One writer: {shown(figures.rows_per_s)} rows a second; the last row {shown(figures.lag_s)} s \
after the last accepted order
- A unit in the ledger: {shown(figures.unit_bytes)} bytes when its order is written, \
{shown(figures.held_bytes)} bytes later
- The crowd of a rehearsal, for a click: {shown(crowd.sign_us)} µs to sign the token, \
{shown(crowd.build_us)} µs to build the request, {shown(crowd.send_us)} µs to send it and to read \
the answer"""
    return Report("costs", HEADINGS, rows, text, figures.as_json())
