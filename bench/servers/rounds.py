"""The rounds: an empty view, an order request that wins, and ``live/``, sent to each server.

64 connections have one request in flight each, as browsers do, and send the next one after its
answer. Each repetition visits every server once, starting with a different one and every second
time in reverse, so that a noisy machine affects all alike.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.metadata import version
from statistics import median
from typing import Any

from bench.sale.data import open_sale
from bench.sale.generator import EMPTY_REQUEST, Shot, live_request
from bench.sale.report import machine_line
from bench.sale.requests import wins
from bench.sale.run import GENERATOR_LIMIT, Run, Sample, Web
from bench.servers.choices import OF_THE_SHOP, Choice
from bench.tables import Report, ratios, shown, spread


@dataclass(frozen=True)
class Round:
    """One repetition on one server; latency and processor time are those of the order request."""

    empty_rate: float
    order_rate: float
    live_rate: float
    order_p99_ms: float
    order_cpu_us: float
    generator_load: float


COLUMNS: dict[str, Callable[[Round], float]] = {
    "empty view, /s": lambda it: it.empty_rate,
    "order that wins, /s": lambda it: it.order_rate,
    "live/, /s": lambda it: it.live_rate,
    "p99 of an order, ms": lambda it: it.order_p99_ms,
    "processor for an order, µs": lambda it: it.order_cpu_us,
}
HEADINGS = ["processes × threads", *COLUMNS]
Rounds = Mapping[Choice, Sequence[Round]]


def measure(run: Run, choices: Sequence[Choice]) -> dict[Choice, list[Round]]:
    live = live_request(open_sale().pk)
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
    shot = Shot(web.port, wins(run), run.plan.connections)
    empty = _again(run, web, EMPTY_REQUEST)
    orders = run.sample_warm(shot, web=web, expect=202)
    lively = _again(run, web, live)
    return Round(
        empty_rate=empty.hits.rate,
        order_rate=orders.hits.rate,
        live_rate=lively.hits.rate,
        order_p99_ms=orders.hits.latency_ms(99),
        order_cpu_us=orders.web_cpu_s * 1e6,
        generator_load=max(it.hits.generator_load for it in (empty, orders, lively)),
    )


def _again(run: Run, web: Web, request: bytes) -> Sample:
    plan = run.plan
    requests = [request] * plan.warm_up
    shot = Shot(web.port, requests, plan.connections, seconds=plan.shot_s, again=True)
    return run.sample_warm(shot, web=web, expect=200)


# --- The report -----------------------------------------------------------------------------------


def report_on(rounds: Rounds, choices: Sequence[Choice], machine: dict[str, Any]) -> Report:
    """Return the report: the table, a few lines on machine and method, and all values."""
    plan = machine["plan"]
    programs = sorted({choice.program for choice in rounds})
    versions = ", ".join(f"{name} {version(name)}" for name in programs)
    busiest = max(it.generator_load for of in rounds.values() for it in of)
    limit = " and was the limit of the fastest" if busiest >= GENERATOR_LIMIT else ""
    text = f"""\
{machine_line(machine)}
- Versions: Python {machine["python"]}, Django {machine["packages"]["django"]}, {versions}
- {plan["repetitions"]} repetitions; {plan["connections"]} connections with one request in flight \
on each; {plan["wins"] - plan["warm_up"]:,} orders a repetition
- The load generator used up to {busiest:.0%} of a core{limit}"""
    servers = [
        {**asdict(choice), "name": choice.name, "rounds": [asdict(it) for it in of]}
        for choice, of in rounds.items()
    ]
    values = {"servers": servers, "machine": machine}
    return Report("servers", HEADINGS, rows(rounds, choices), text, values)


def rows(rounds: Rounds, choices: Sequence[Choice]) -> list[list[str]]:
    """Return a row for each server: median, spread, and the ratio to the shop's own server."""

    def cell(choice: Choice, value: Callable[[Round], float]) -> str:
        if choice not in rounds:
            return "not installed"
        values, shops = ([value(it) for it in rounds[of]] for of in (choice, OF_THE_SHOP))
        ratio = shown(median(ratios(values, shops)))
        return f"{shown(median(values))} ({spread(values)}), {ratio}×"

    names = [f"**{it.name}**" if it == OF_THE_SHOP else it.name for it in choices]
    cells = [[cell(choice, value) for value in COLUMNS.values()] for choice in choices]
    return [[name, *of] for name, of in zip(names, cells, strict=True)]
