"""The benchmark ``sale``; ``script/bench`` starts it."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.sale import (
    admin,
    burst,
    drawing,
    evening,
    expiring,
    idle,
    made_up,
    pending,
    replicas,
    requests,
    room,
    scripts,
    sign_ins,
    sizes,
    whole_sales,
)
from bench.sale.outcome import EXACT, Outcome, draw
from bench.sale.plan import FULL, QUICK, options_of, plan_of
from bench.sale.report import Line, describe, report_on
from bench.sale.run import Run, run_on_shop

ROWS = "abcdefghijklmnopqrst"
IN_BOTH_MODES = "akf"


def main() -> int:
    """Run the benchmark; return 1 if any design did not sell a sale exactly."""
    parser = options_of("sale", parts=ROWS)
    parser.add_argument(
        "--no-front-door", action="store_true", help=f"rows {IN_BOTH_MODES} under WSGI"
    )
    parser.add_argument("--picture", type=Path, help="draw row f to this SVG file")
    options = parser.parse_args()
    plan = plan_of(options, full=FULL, quick=QUICK)
    rows, front_door = options.only, not options.no_front_door
    if not front_door:
        rows = [it for it in IN_BOTH_MODES if it in rows]
    machine = describe(plan, front_door=front_door)
    with run_on_shop(plan, front_door=front_door) as run:
        lines, outcomes = measure(run, rows=rows)
    if not front_door:  # the targets are those of the front door
        lines = [replace(line, target=None) for line in lines]
    name = "figures" if front_door else "figures without the front door"
    report_on(lines, outcomes, machine, name=name).publish(options)
    if options.picture and outcomes:
        options.picture.write_text(draw(outcomes))
    return int(any(it.verdict != EXACT for it in outcomes))


def measure(run: Run, *, rows: Sequence[str]) -> tuple[list[Line], list[Outcome]]:
    """Measure the rows; those with a worker first, before others leave entries pending.

    The worker would write them. Row t comes before all, on idle servers. Row m, which fills the
    shop with orders, is the last.
    """
    lines = idle.measure(run) if "t" in rows else []
    lines += sizes.measure(run) if "g" in rows else []
    of_sales, outcomes = whole_sales.measure(run) if "f" in rows else ([], [])
    lines += of_sales
    lines += evening.measure(run) if "l" in rows else []
    lines += burst.measure(run) if "n" in rows else []
    lines += expiring.measure(run) if "s" in rows else []
    lines += room.measure(run) if "o" in rows else []
    lines += drawing.measure(run) if "p" in rows else []
    lines += requests.measure(run, rows=rows)
    lines += sign_ins.measure(run) if "q" in rows else []
    lines += made_up.measure(run) if "r" in rows else []
    lines += pending.measure_commits(run) if "e" in rows else []
    lines += pending.measure_memory(run) if "h" in rows else []
    lines += replicas.measure(run) if "i" in rows else []
    lines += scripts.measure(run) if "j" in rows else []
    lines += admin.measure(run) if "m" in rows else []
    return sorted(lines, key=lambda line: line.row), outcomes


if __name__ == "__main__":
    sys.exit(main())
