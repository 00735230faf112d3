"""The results as a table for the terminal, as JSON, and as a part of a document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.locks.figures import shown
from bench.sale.course import GENERATOR_LIMIT
from bench.sale.figures import ratios, spread
from bench.sale.report import write_between
from bench.servers.choices import OF_THE_SHOP, Choice
from bench.servers.measuring import Round

BEGIN, END = "<!-- servers: begin -->", "<!-- servers: end -->"
WIDTH = 190
COLUMNS: dict[str, Callable[[Round], float]] = {
    "empty view, /s": lambda it: it.empty_rate,
    "order that wins, /s": lambda it: it.order_rate,
    "live/, /s": lambda it: it.live_rate,
    "p99 of an order, ms": lambda it: it.order_p99_ms,
    "processor for an order, µs": lambda it: it.order_cpu_us,
}
HEADINGS = ["processes × threads", *COLUMNS]
Rounds = Mapping[Choice, Sequence[Round]]


def rows(rounds: Rounds, choices: Sequence[Choice]) -> list[list[str]]:
    """Return a row for each server: median, spread, and the ratio to what the shop runs with."""
    return [[_named(choice), *_cells(rounds, choice)] for choice in choices]


def _named(choice: Choice) -> str:
    return f"**{choice.name}**" if choice == OF_THE_SHOP else choice.name


def _cells(rounds: Rounds, choice: Choice) -> list[str]:
    if choice not in rounds:
        return ["not installed"] * len(COLUMNS)
    return [_cell(rounds, choice, value) for value in COLUMNS.values()]


def _cell(rounds: Rounds, choice: Choice, value: Callable[[Round], float]) -> str:
    values, shops = ([value(it) for it in rounds[of]] for of in (choice, OF_THE_SHOP))
    ratio = shown(median(ratios(values, shops)))
    return f"{shown(median(values))} ({spread(values)}), {ratio}×"


def markdown(rounds: Rounds, choices: Sequence[Choice]) -> str:
    lines = [HEADINGS, ["---"] * len(HEADINGS), *rows(rounds, choices)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def show(rounds: Rounds, choices: Sequence[Choice], machine: dict[str, Any]) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH
    table = Table(*HEADINGS)
    for row in rows(rounds, choices):
        table.add_row(*row)
    console.print(table)
    console.print(as_text(rounds, machine), soft_wrap=True)


def as_text(rounds: Rounds, machine: dict[str, Any]) -> str:
    """Return on what and how it was measured, in a few lines."""
    plan = machine["plan"]
    programs = sorted({choice.program for choice in rounds})
    versions = ", ".join(f"{name} {version(name)}" for name in programs)
    busiest = max(it.generator_load for of in rounds.values() for it in of)
    limit = " and was the limit of the fastest" if busiest >= GENERATOR_LIMIT else ""
    return "\n".join(
        [
            f"- Machine: {machine['cores']} cores of {machine['processor']}, "
            f"{machine['memory_gib']} GiB, Linux {machine['kernel']}",
            f"- Versions: Python {machine['python']}, Django {machine['packages']['django']}, "
            f"{versions}",
            f"- {plan['repetitions']} repetitions; {plan['connections']} connections with one "
            f"request on its way on each; {plan['wins']:,} orders a repetition",
            f"- The load generator used up to {busiest:.0%} of a core{limit}",
        ]
    )


def as_json(rounds: Rounds, machine: dict[str, Any]) -> dict[str, Any]:
    """Return everything, with the values of each repetition."""
    servers = [
        {**asdict(choice), "name": choice.name, "rounds": [asdict(it) for it in of]}
        for choice, of in rounds.items()
    ]
    return {"servers": servers, "machine": machine}


def write_document(
    path: Path, rounds: Rounds, choices: Sequence[Choice], machine: dict[str, Any]
) -> None:
    """Write table and machine between the two marks of a document, or a file of its own."""
    text = f"{markdown(rounds, choices)}\n\n{as_text(rounds, machine)}"
    write_between(path, BEGIN, END, text)
