"""The tables and the picture."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.fairness.guards import ADDRESSES, Shares
from bench.sale.outcome import picture
from bench.sale.plan import Plan
from bench.sale.report import HEADINGS, Line, machine_line
from bench.tables import Report, shown, spread

PICTURE = Path(__file__).with_name("shares.svg")
WIDE, TOP, BAR, GAP = 460, 74, 20, 18
COLOURS = ("#0b6e4f", "#b3401f")


def report_on_contests(contests: Sequence[Shares], plan: Plan, values: dict[str, Any]) -> Report:
    """Return the attacker's units, a row for each guard."""
    rows = [
        [title, *(_cell(shares, plan) for shares in of)] for title, of in _guard_by_guard(contests)
    ]
    headings = ["guard", *(_attacker(addresses) for addresses in ADDRESSES)]
    text = f"""\
{machine_line(values["machine"])}
- {plan.honest:,} honest buyers, {plan.attacking:,} accounts of the attacker, {plan.contested} \
units; by accounts the attacker's share would be \
{plan.attacking / (plan.attacking + plan.honest):.0%}. Medians of {plan.contests}, in brackets the \
least and the most"""
    return Report("fairness", headings, rows, text, values)


def report_on_floods(floods: Sequence[Line], plan: Plan, values: dict[str, Any]) -> Report:
    wanted = [name for name in HEADINGS[1:] if name != "by processor time"]
    rows = [dict(zip(HEADINGS, line.cells(), strict=True)) for line in floods]
    cells = [[row[name] for name in wanted] for row in rows]
    text = f"""\
{machine_line(values["machine"])}
- {plan.connections} connections order; medians of {plan.repetitions}"""
    return Report("floods", wanted, cells, text, values)


def _guard_by_guard(contests: Sequence[Shares]) -> Iterable[tuple[str, list[Shares]]]:
    for title, of in groupby(contests, key=lambda it: it.guard.title):
        yield title, list(of)


def _attacker(addresses: int) -> str:
    return f"attacker with {addresses} address{'es' if addresses > 1 else ''}"


def _cell(shares: Shares, plan: Plan) -> str:
    return (
        f"{shown(shares.median)} units, {shares.median / plan.contested:.0%} "
        f"({spread(shares.units)})"
    )


# --- The picture ----------------------------------------------------------------------------------


def draw(contests: Sequence[Shares], plan: Plan) -> str:
    """Return bars of the attacker's shares; numbers beside them, so that colour is not all."""
    guards: list[dict[str, Any]] = []
    y = 0
    for title, of in _guard_by_guard(contests):
        bars = []
        for number, (shares, colour) in enumerate(zip(of, COLOURS, strict=True)):
            share = shares.median / plan.contested
            width = max(1, round(share * WIDE, 1))
            bars.append(
                {"y": BAR * number, "width": width, "colour": colour, "percent": f"{share:.0%}"}
            )
        guards.append({"y": y, "title": title, "bars": bars})
        y += BAR * len(bars) + GAP
    places = zip(("upper", "lower"), ADDRESSES, strict=True)
    return picture(
        PICTURE,
        height=TOP + y + 10,
        low=y - GAP + 6,
        guards=guards,
        fair=round(WIDE * plan.attacking / (plan.attacking + plan.honest), 1),
        legend=" · ".join(f"{place} bar: {_attacker(addresses)}" for place, addresses in places),
    )
