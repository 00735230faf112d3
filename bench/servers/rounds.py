"""The requests to each server: the empty view, an order request that wins, and ``live/``.

64 connections have one request in flight each, as browsers do, and send the next one after its
answer. Each repetition goes once round all servers, starting with another one and every second time
backwards, so that a noisy machine hits all alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bench.sale import wire
from bench.sale.data import open_sale, strangers
from bench.sale.generator import Shot
from bench.sale.run import Run, Sample
from bench.sale.site import Web
from bench.servers.choices import OF_THE_SHOP, Choice
from bench.tables import percentile


@dataclass(frozen=True)
class Round:
    """One repetition of one server; latency and processor time are those of the order request."""

    empty_rate: float
    order_rate: float
    live_rate: float
    order_p99_ms: float
    order_cpu_us: float
    generator_load: float


def measure(run: Run, choices: Sequence[Choice]) -> dict[Choice, list[Round]]:
    live = wire.get(f"/vouchers/{open_sale().pk}/live/")
    rounds: defaultdict[Choice, list[Round]] = defaultdict(list)
    with ExitStack() as stack:
        webs = {OF_THE_SHOP: run.web}
        others = [choice for choice in choices if choice != OF_THE_SHOP]
        for choice in run.steps(others, what="starting the servers"):
            webs[choice] = stack.enter_context(choice.run(run.site))
        turns = in_turn(choices, repetitions=run.plan.repetitions)
        for choice in run.steps(turns, what="measuring them in turn"):
            rounds[choice].append(_round(run, webs[choice], live))
    return rounds


def in_turn(choices: Sequence[Choice], *, repetitions: int) -> list[Choice]:
    """Return the servers once for each repetition, in changing order."""
    turns: list[Choice] = []
    for turn in range(repetitions):
        first = turn * 3 % len(choices)
        order = [*choices[first:], *choices[:first]]
        turns += order[::-1] if turn % 2 else order
    return turns


def _round(run: Run, web: Web, live: bytes) -> Round:
    empty = _again(run, web, wire.EMPTY)
    orders = _orders(run, web)
    lively = _again(run, web, live)
    latencies = [answer.latency_s for answer in orders.hits.answers]
    return Round(
        empty_rate=empty.rate,
        order_rate=orders.rate,
        live_rate=lively.rate,
        order_p99_ms=percentile(latencies, 0.99) * 1e3,
        order_cpu_us=orders.web_cpu_s * 1e6,
        generator_load=max(it.generator_load for it in (empty, orders, lively)),
    )


def _again(run: Run, web: Web, request: bytes) -> Sample:
    """Send one request again and again, first to warm up and then to measure."""
    plan = run.plan
    _sample(run, web, [request] * plan.warm_up, expect=200)
    shot = Shot(web.port, [request], plan.connections, seconds=plan.shot_s, again=True)
    return run.sample(shot, web=web, expect=200)


def _orders(run: Run, web: Web) -> Sample:
    plan = run.plan
    sale = open_sale()
    tokens = strangers(sale, count=plan.warm_up + plan.wins)
    requests = [wire.order(sale.pk, token.sign(), attempt=1) for token in tokens]
    _sample(run, web, requests[: plan.warm_up], expect=202)
    return _sample(run, web, requests[plan.warm_up :], expect=202)


def _sample(run: Run, web: Web, requests: Sequence[bytes], *, expect: int) -> Sample:
    return run.sample(Shot(web.port, requests, run.plan.connections), web=web, expect=expect)
