"""The options that the benchmarks of the whole shop share."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.sale.plan import TINY, Plan


def options_of(benchmark: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"script/bench {benchmark}")
    parser.add_argument("--quick", action="store_true", help="show that it runs, not how fast")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="write all values to this file")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    return parser


def plan_of(options: argparse.Namespace, *, full: Plan, quick: Plan) -> Plan:
    return TINY if options.tiny else quick if options.quick else full
