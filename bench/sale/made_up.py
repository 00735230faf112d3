"""Row r: orders beside requests that somebody makes up.

They ask in turn for the page and the live figures of a sale that does not exist, and for another
path. One address reaches its limit with them, a thousand do not.
"""

import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Address
from statistics import median

from bench.sale.generator import BROWSER, Crowd, Hits, Step, Visit, packed
from bench.sale.report import Line, Target
from bench.sale.run import Run, Site, WrongAnswers, web
from bench.sale.sign_ins import CONNECTIONS, WARM_UP_S, in_floods, send_orders

PER_S = 400
LEAST_RATE = {1: 0.8, 1_000: 0.5}
"""By the number of addresses."""

ADDRESSES = 2**16
EXPECTED = {404, 429}


def measure(run: Run) -> list[Line]:
    site = Site(1, run.site.environ | {"SECKILL_TRUSTED_PROXIES": "127.0.0.1"})
    with web(site) as behind_proxy:
        run = replace(run, web=behind_proxy)
        return [_line(run, count, least) for count, least in LEAST_RATE.items()]


def _line(run: Run, addresses: int, least: float) -> Line:
    order_in_flood = partial(_order_in_flood, addresses=addresses)
    alone, beside, floods = in_floods(run, order_in_flood, what="r orders, made-up requests")
    answers = [answer.status for it in floods for answer in it.answers]
    limited = answers.count(429) / len(answers)
    slow, quiet = [median(it.latency_ms(99) for it in hits) for hits in (beside, alone)]
    return Line.ratio(
        "r",
        f"orders beside {PER_S} made-up requests/s, addresses: {addresses:,}",
        "without them",
        Target(least),
        "/s",
        [it.rate for it in beside],
        [it.rate for it in alone],
        note=f"{limited:.0%} answered 429; p99 of the orders {slow:.0f} ms, without {quiet:.0f} ms",
    )


def _order_in_flood(run: Run, orders: Sequence[bytes], *, addresses: int) -> tuple[Hits, Hits]:
    visits = partial(made_up, seconds=WARM_UP_S + run.plan.flood_s, addresses=addresses)
    flood = run.start(Crowd(run.web.port, visits, CONNECTIONS))
    time.sleep(WARM_UP_S)
    busy = send_orders(run, orders)
    answers = flood.result()
    if set(answers.statuses()) - EXPECTED:
        raise WrongAnswers(f"made-up requests: statuses {dict(answers.statuses())}")
    return answers, busy


def made_up(*, seconds: float, addresses: int) -> list[Visit]:
    """Return visits of one request each, from addresses that have asked for nothing before."""
    first = int(IPv4Address("198.18.0.0")) + secrets.randbelow(ADDRESSES)
    return [
        _visit(number, str(IPv4Address(first + number % addresses)))
        for number in range(round(PER_S * seconds))
    ]


def _visit(number: int, address: str) -> Visit:
    sale = f"/vouchers/{secrets.randbelow(10**17) + 1}/"
    path = (sale, f"{sale}live/", f"/{secrets.token_hex(8)}/")[number % 3]
    yield Step("", packed(path, headers={**BROWSER, "X-Forwarded-For": address}), number / PER_S)
