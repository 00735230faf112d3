"""The benchmark ``capacity``; ``script/bench`` starts it."""

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from backoffice.capacity.figures import FILE, Figures, write_figures
from bench.capacity import costs, rehearsals
from bench.processes import spawned
from bench.sale.data import users
from bench.sale.pending import measure_memory, write_orders
from bench.sale.plan import FULL, QUICK, options_of, plan_of
from bench.sale.report import describe
from bench.sale.run import Run, back_half, run_on_shop

WARM_UP = 50
START_S = 5.0
"""Seconds for which worker, beat and consumer are busy with their start."""


def main() -> None:
    parser = options_of("capacity")
    parser.add_argument("--figures", type=Path, default=FILE, help="default .run/capacity.json")
    parser.add_argument("--rehearse", action="store_true", help="compare rehearsals with the plan")
    options = parser.parse_args()
    full = replace(FULL, repetitions=5, shot_s=1.0, wins=6_000, written=6_000, held=20_000)
    plan = plan_of(options, full=full, quick=replace(QUICK, repetitions=1))
    sizes = rehearsals.TINY_SIZES if options.tiny else rehearsals.SIZES
    machine = describe(plan)
    with run_on_shop(plan) as run:
        figures, verdicts = measure(run, machine, sizes if options.rehearse else ())
    write_figures(options.figures, figures)
    costs.report_on_costs(figures).publish(options)
    if verdicts:
        rehearsals.report_on_rehearsals(figures, verdicts).publish(options)


def measure(
    run: Run, machine: dict[str, Any], sizes: Sequence[rehearsals.Size]
) -> tuple[Figures, rehearsals.Verdicts]:
    """Measure the figures, those of orders in turn with rehearsals of these sizes."""
    turns = range(run.plan.repetitions)
    requests = [costs.request_costs(run) for _ in run.steps(turns, what="requests")]
    rows_per_s = [write_orders(users(count=run.plan.written)) for _ in turns]
    *_, held = measure_memory(run)
    costs.forget_unwritten()
    orders: list[costs.Orders] = []
    verdicts: defaultdict[rehearsals.Size, list[dict[str, Any]]] = defaultdict(list)
    with spawned(1) as crowd, back_half(run.site) as worker:
        costs.sell(run, crowd, worker, units=WARM_UP, buyers=WARM_UP)
        time.sleep(START_S)
        for _ in run.steps(turns, what="orders"):
            orders.append(costs.measure_orders(run, crowd, worker))
            for size in sizes:
                verdicts[size].append(rehearsals.rehearse(run, size))
    figures = costs.figures_of(
        machine,
        requests=requests,
        orders=orders,
        rows_per_s=rows_per_s,
        unit_bytes=held.values[0],
    )
    return figures, verdicts


if __name__ == "__main__":
    main()
