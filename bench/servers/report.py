"""The results as a table for the terminal, as JSON, and as a part of a document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from bench import tables
from bench.sale.machine import machine_line
from bench.sale.run import GENERATOR_LIMIT
from bench.servers.choices import OF_THE_SHOP, Choice
from bench.servers.rounds import Round
from bench.tables import ratios, shown, spread

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


def show(rounds: Rounds, choices: Sequence[Choice], machine: dict[str, Any]) -> None:
    """Print the table and the machine."""
    tables.show(HEADINGS, rows(rounds, choices), as_text(rounds, machine), width=WIDTH)


def as_text(rounds: Rounds, machine: dict[str, Any]) -> str:
    """Return the machine and the method in a few lines."""
    plan = machine["plan"]
    programs = sorted({choice.program for choice in rounds})
    versions = ", ".join(f"{name} {version(name)}" for name in programs)
    busiest = max(it.generator_load for of in rounds.values() for it in of)
    limit = " and was the limit of the fastest" if busiest >= GENERATOR_LIMIT else ""
    return "\n".join(
        [
            machine_line(machine),
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
    """Write table and machine into a document."""
    table = tables.markdown(HEADINGS, rows(rounds, choices))
    tables.write_part(path, "servers", f"{table}\n\n{as_text(rounds, machine)}")
