"""The benchmark ``capacity``; ``script/bench`` starts it."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from backoffice.capacity.figures import FILE, Figures, write_figures
from bench.capacity.costs import (
    measure_figures,
    median_of,
    report_on_costs,
)
from bench.capacity.rehearsals import (
    SIZES,
    TINY_SIZES,
    Size,
    Verdicts,
    rehearse,
    report_on_rehearsals,
)
from bench.processes import spawned
from bench.sale.plan import FULL, QUICK, options_of, plan_of
from bench.sale.report import describe
from bench.sale.run import Run, back_half, run_on_shop


def main() -> None:
    parser = options_of("capacity")
    parser.add_argument("--figures", type=Path, default=FILE, help="default .run/capacity.json")
    parser.add_argument("--rehearse", action="store_true", help="compare rehearsals with the plan")
    options = parser.parse_args()
    full = replace(FULL, repetitions=5, shot_s=1.0, wins=6_000, written=6_000, held=20_000)
    plan = plan_of(options, full=full, quick=replace(QUICK, repetitions=1))
    sizes = TINY_SIZES if options.tiny else SIZES
    machine = describe(plan)
    with run_on_shop(plan) as run:
        figures, verdicts = measure(run, machine, sizes if options.rehearse else ())
    write_figures(options.figures, figures)
    report_on_costs(figures).publish(options)
    if verdicts:
        report_on_rehearsals(figures, verdicts).publish(options)


def measure(run: Run, machine: dict[str, Any], sizes: Sequence[Size]) -> tuple[Figures, Verdicts]:
    """Measure the figures, and rehearse these sizes in turn with them."""
    found: list[Figures] = []
    verdicts: defaultdict[Size, list[dict[str, Any]]] = defaultdict(list)
    with spawned(1) as crowd:
        for _ in run.steps(range(run.plan.repetitions), what="capacity"):
            found.append(measure_figures(run, crowd, machine))
            with back_half(run.site):
                for size in sizes:
                    verdicts[size].append(rehearse(run, size))
    return median_of(found), verdicts


if __name__ == "__main__":
    main()
