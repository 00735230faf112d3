"""The benchmark ``servers``: measures, and shows the table; ``script/bench`` starts it."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.sale.machine import describe
from bench.sale.places import here
from bench.sale.plan import FULL, QUICK, TINY, Plan
from bench.sale.running import run
from bench.servers.choices import ALL, FEW
from bench.servers.measuring import measure
from bench.servers.report import as_json, show, write_document

PLAN = replace(FULL, repetitions=12, shot_s=0.5, wins=1_500, warm_up=200)


def main() -> int:
    options = parse_options()
    plan = plan_of(options)
    choices = FEW if options.tiny else ALL
    installed = [choice for choice in choices if choice.is_installed]
    machine = describe(plan)
    rounds = run(plan, here(), partial(measure, choices=installed))
    show(rounds, choices, machine)
    if options.json:
        options.json.write_text(json.dumps(as_json(rounds, machine), indent=2) + "\n")
    if options.markdown:
        write_document(options.markdown, rounds, choices, machine)
    return 0


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="script/bench servers")
    parser.add_argument("--quick", action="store_true", help="show that it runs, not how fast")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="write all values to this file")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    return parser.parse_args()


def plan_of(options: argparse.Namespace) -> Plan:
    if options.tiny:
        return TINY
    return replace(QUICK, wins=1_000) if options.quick else PLAN


if __name__ == "__main__":
    sys.exit(main())
