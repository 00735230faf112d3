"""The benchmark ``sale``: measures, and shows the table; ``script/bench`` starts it."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path

from bench.sale import answering, growing, memory, profiling, whole, writing
from bench.sale.course import Course
from bench.sale.figures import Line
from bench.sale.found import Found
from bench.sale.machine import describe
from bench.sale.picture import draw
from bench.sale.places import here
from bench.sale.plan import FULL, QUICK, TINY
from bench.sale.report import as_json, show, write_document
from bench.sale.running import run

ROWS = "abcdefgh"
EVERY_ROW = ",".join(ROWS)


def main() -> int:
    """Return 1 where a sale was not sold exactly, by whichever design."""
    options = parse_options()
    plan = TINY if options.tiny else QUICK if options.quick else FULL
    machine = describe(plan)
    if options.profile:
        options.profile.write_text(run(plan, here(), profiling.profile))
        return 0
    lines, found = run(plan, here(), partial(measure, rows=options.only))
    show(lines, machine)
    if options.json:
        options.json.write_text(json.dumps(as_json(lines, found, machine), indent=2) + "\n")
    if options.markdown:
        write_document(options.markdown, lines, machine)
    if options.picture and found:
        options.picture.write_text(draw(found))
    return int(any(not it.exact for it in found))


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="script/bench sale")
    parser.add_argument("--quick", action="store_true", help="show that it runs, not how fast")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only", type=rows_of, default=ROWS, help=f"rows, as {EVERY_ROW}")
    parser.add_argument("--json", type=Path, help="write all values to this file")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    parser.add_argument("--picture", type=Path, help="draw row f to this SVG file")
    parser.add_argument("--profile", type=Path, help="measure nothing; profile requests instead")
    return parser.parse_args()


def rows_of(text: str) -> str:
    rows = "".join(text.split(","))
    if not rows or set(rows) - set(ROWS):
        raise argparse.ArgumentTypeError(f"rows are {EVERY_ROW}")
    return rows


def measure(course: Course, *, rows: str) -> tuple[list[Line], list[Found]]:
    """Measure the rows that are asked for; g and f first, before others leave promises behind.

    The worker of row f would see to those meanwhile.
    """
    lines = growing.measure(course) if "g" in rows else []
    of_sales, found = whole.measure(course) if "f" in rows else ([], [])
    lines += of_sales
    lines += answering.measure(course, rows=rows)
    lines += writing.measure(course) if "e" in rows else []
    lines += memory.measure(course) if "h" in rows else []
    return sorted(lines, key=lambda line: line.row), found


if __name__ == "__main__":
    sys.exit(main())
