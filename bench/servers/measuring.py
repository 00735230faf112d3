"""What each server is asked: the empty view, an order request that wins, and ``live/``.

64 connections have one request each on its way, as browsers do, and send the next one when it is
answered. Each repetition goes once round all servers, from another one on and every second time
backwards, so that a noisy machine hits all alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from bench.locks.figures import percentile
from bench.sale import wire
from bench.sale.course import Course, Sample
from bench.sale.generator import Shot
from bench.sale.places import Web
from bench.sale.shop import open_sale, strangers
from bench.servers.choices import OF_THE_SHOP, Choice


@dataclass(frozen=True)
class Round:
    """One repetition of one server; latency and processor time are those of the order request."""

    empty_rate: float
    order_rate: float
    live_rate: float
    order_p99_ms: float
    order_cpu_us: float
    generator_load: float


def measure(course: Course, choices: Sequence[Choice]) -> dict[Choice, list[Round]]:
    live = wire.get(f"/vouchers/{open_sale().pk}/live/")
    rounds: defaultdict[Choice, list[Round]] = defaultdict(list)
    with ExitStack() as stack:
        webs = {OF_THE_SHOP: course.web}
        others = [choice for choice in choices if choice != OF_THE_SHOP]
        for choice in course.steps(others, what="starting the servers"):
            webs[choice] = stack.enter_context(choice.run(course.place))
        turns = in_turn(choices, repetitions=course.plan.repetitions)
        for choice in course.steps(turns, what="measuring them in turn"):
            rounds[choice].append(_round(course, webs[choice], live))
    return rounds


def in_turn(choices: Sequence[Choice], *, repetitions: int) -> list[Choice]:
    """Return the servers once for each repetition, in changing order."""
    turns: list[Choice] = []
    for turn in range(repetitions):
        first = turn * 3 % len(choices)
        order = [*choices[first:], *choices[:first]]
        turns += order[::-1] if turn % 2 else order
    return turns


def _round(course: Course, web: Web, live: bytes) -> Round:
    empty = _again(course, web, wire.EMPTY)
    orders = _orders(course, web)
    lively = _again(course, web, live)
    latencies = [answer.latency_s for answer in orders.hits.answers]
    return Round(
        empty_rate=empty.rate,
        order_rate=orders.rate,
        live_rate=lively.rate,
        order_p99_ms=float(percentile(latencies, 0.99)) * 1e3,
        order_cpu_us=orders.web_cpu_s * 1e6,
        generator_load=max(it.generator_load for it in (empty, orders, lively)),
    )


def _again(course: Course, web: Web, request: bytes) -> Sample:
    """Send one request again and again, a while to get warm and then to be measured."""
    plan = course.plan
    _sample(course, web, [request] * plan.warm_up, expect=200)
    shot = Shot(web.port, [request], plan.connections, seconds=plan.shot_s, again=True)
    return course.sample(shot, web=web, expect=200)


def _orders(course: Course, web: Web) -> Sample:
    plan = course.plan
    sale = open_sale()
    tokens = strangers(sale, count=plan.warm_up + plan.wins)
    requests = [wire.order(sale.pk, token.sign(), attempt=1) for token in tokens]
    _sample(course, web, requests[: plan.warm_up], expect=202)
    return _sample(course, web, requests[plan.warm_up :], expect=202)


def _sample(course: Course, web: Web, requests: Sequence[bytes], *, expect: int) -> Sample:
    return course.sample(Shot(web.port, requests, course.plan.connections), web=web, expect=expect)
