"""The benchmark ``servers``; ``script/bench`` starts it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from functools import partial

from bench.sale.machine import describe
from bench.sale.options import options_of, plan_of
from bench.sale.plan import FULL, QUICK
from bench.sale.run import run_on
from bench.sale.site import here
from bench.servers.choices import ALL, FEW
from bench.servers.report import as_json, show, write_document
from bench.servers.rounds import measure


def main() -> int:
    options = options_of("servers").parse_args()
    full = replace(FULL, repetitions=12, shot_s=0.5, wins=1_500, warm_up=200)
    plan = plan_of(options, full=full, quick=replace(QUICK, wins=1_000))
    choices = FEW if options.tiny else ALL
    installed = [choice for choice in choices if choice.is_installed]
    machine = describe(plan)
    rounds = run_on(here(), plan, partial(measure, choices=installed))
    show(rounds, choices, machine)
    if options.json:
        options.json.write_text(json.dumps(as_json(rounds, machine), indent=2) + "\n")
    if options.markdown:
        write_document(options.markdown, rounds, choices, machine)
    return 0


if __name__ == "__main__":
    sys.exit(main())
