"""Row q: orders under a flood of people who sign in and up.

As many connections as order send sign-ins and sign-ups without a pause, half of each. Both are
real: passwords are hashed with the shop's own hasher, and each name is new. The orders are refused
by the ledger, so that they can be repeated for as long as the flood lasts.
"""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.core.cache import cache
from django.utils.crypto import get_random_string

from bench.sale.generator import Hits, Shot, form_request
from bench.sale.report import Line, Target
from bench.sale.requests import sold_out
from bench.sale.run import Run, WrongAnswers, expect_status

LEAST_RATE, MOST_P99 = 0.8, 2.0
CONNECTIONS = 64
DIFFERENT = 500
PASSWORD = "a password of the flood"
WARM_UP_S = 0.5
SIGNED, REFUSED = (200, 302), 429

T = TypeVar("T")


def measure(run: Run) -> list[Line]:
    alone, beside, floods = in_floods(run, _order_in_flood, what="q orders, sign-ins")
    answers = [answer.status for it in floods for answer in it.answers]
    seconds = sum(it.ended_at - it.began_at for it in floods)
    signed = sum(it in SIGNED for it in answers) / seconds
    refused = answers.count(REFUSED) / seconds
    note = (
        f"{CONNECTIONS} connections: {signed:.1f}/s signed in or up, {refused:.1f}/s answered 429"
    )
    return flood_lines("sign-ins", alone, beside, note=note)


def in_floods(
    run: Run, order_in_flood: Callable[[Run, Sequence[bytes]], tuple[T, Hits]], *, what: str
) -> tuple[list[Hits], list[Hits], list[T]]:
    """Repeat orders that the ledger refuses, alone and in a flood in turn.

    Return the answers to both, and what is told of each flood.
    """
    orders = sold_out(run)
    turns = [
        (send_orders(run, orders), *order_in_flood(run, orders))
        for _ in run.steps(range(run.plan.repetitions + 1), what=what)
    ]
    alone, floods, beside = zip(*turns[1:], strict=True)  # the first warms up the processes
    return list(alone), list(beside), list(floods)


def send_orders(run: Run, orders: Sequence[bytes]) -> Hits:
    """Repeat refused orders for as long as a flood lasts."""
    plan = run.plan
    shot = Shot(run.web.port, orders, plan.connections, seconds=plan.flood_s, again=True)
    hits = run.start(shot).result()
    expect_status(hits, 409)
    return hits


def _order_in_flood(run: Run, orders: Sequence[bytes]) -> tuple[Hits, Hits]:
    cache.clear()  # otherwise the limits of an address would spare the hashing
    seconds = WARM_UP_S + run.plan.flood_s
    requests = _sign_ins(count=DIFFERENT)
    flood = run.start(Shot(run.web.port, requests, CONNECTIONS, seconds=seconds, again=True))
    time.sleep(WARM_UP_S)
    busy = send_orders(run, orders)
    answers = flood.result()
    statuses = answers.statuses()
    if set(statuses) - {*SIGNED, REFUSED} or not sum(statuses[it] for it in SIGNED):
        raise WrongAnswers(f"sign-ins: statuses {dict(statuses)}")
    return answers, busy


def _sign_ins(*, count: int) -> list[bytes]:
    """Return sign-ins of users with passwords, and sign-ups of new ones, in turn."""
    part, password = get_random_string(6).lower(), make_password(PASSWORD)
    names = [f"{part}{number}" for number in range(count)]
    User.objects.bulk_create([User(username=name, password=password) for name in names])
    requests = []
    for name in names:
        requests.append(form_request("/accounts/login/", {"username": name, "password": PASSWORD}))
        new = {"username": f"new-{name}", "password1": PASSWORD, "password2": PASSWORD}
        requests.append(form_request("/accounts/signup/", new))
    return requests


def flood_lines(
    flood: str, alone: Sequence[Hits], beside: Sequence[Hits], *, note: str
) -> list[Line]:
    """Return how fast orders are answered in a flood, against the same without it."""
    rates, quiet_rates = [it.rate for it in beside], [it.rate for it in alone]
    slow, quiet = [[it.latency_ms(99) for it in hits] for hits in (beside, alone)]
    name, against, least = f"orders under floods of {flood}", f"without {flood}", Target(LEAST_RATE)
    most = Target.most(MOST_P99)
    return [
        Line.ratio("q", f"{name}: rate", against, least, "/s", rates, quiet_rates, note=note),
        Line.ratio("q", f"{name}: p99", against, most, "ms", slow, quiet),
    ]
