"""The benchmark ``sale``; ``script/bench`` starts it."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path

from bench.sale import commits, memory, profiles, requests, sizes, whole_sales
from bench.sale.figures import Line
from bench.sale.machine import describe
from bench.sale.options import options_of, plan_of
from bench.sale.outcome import EXACT, Outcome
from bench.sale.picture import draw
from bench.sale.plan import FULL, QUICK
from bench.sale.report import as_json, show, write_document
from bench.sale.run import Run, run_on
from bench.sale.site import here

ROWS = "abcdefgh"
EVERY_ROW = ",".join(ROWS)


def main() -> int:
    """Return 1 if a sale was not sold exactly, by any design."""
    parser = options_of("sale")
    parser.add_argument("--only", type=rows_of, default=ROWS, help=f"rows, as {EVERY_ROW}")
    parser.add_argument("--picture", type=Path, help="draw row f to this SVG file")
    parser.add_argument("--profile", type=Path, help="measure nothing; profile requests instead")
    options = parser.parse_args()
    plan = plan_of(options, full=FULL, quick=QUICK)
    machine = describe(plan)
    if options.profile:
        options.profile.write_text(run_on(here(), plan, profiles.profile))
        return 0
    lines, outcomes = run_on(here(), plan, partial(measure, rows=options.only))
    show(lines, machine)
    if options.json:
        options.json.write_text(json.dumps(as_json(lines, outcomes, machine), indent=2) + "\n")
    if options.markdown:
        write_document(options.markdown, lines, machine)
    if options.picture and outcomes:
        options.picture.write_text(draw(outcomes))
    return int(any(it.verdict != EXACT for it in outcomes))


def rows_of(text: str) -> str:
    rows = "".join(text.split(","))
    if not rows or set(rows) - set(ROWS):
        raise argparse.ArgumentTypeError(f"rows are {EVERY_ROW}")
    return rows


def measure(run: Run, *, rows: str) -> tuple[list[Line], list[Outcome]]:
    """Measure the rows; g and f first, before others leave entries pending.

    The worker of row f would write those meanwhile.
    """
    lines = sizes.measure(run) if "g" in rows else []
    of_sales, outcomes = whole_sales.measure(run) if "f" in rows else ([], [])
    lines += of_sales
    lines += requests.measure(run, rows=rows)
    lines += commits.measure(run) if "e" in rows else []
    lines += memory.measure(run) if "h" in rows else []
    return sorted(lines, key=lambda line: line.row), outcomes


if __name__ == "__main__":
    sys.exit(main())
