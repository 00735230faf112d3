"""The sizes of a run: full, quick, and one that only shows that the benchmark works."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Size:
    """The size of a shop: buyers in one ledger, open sales, orders in the table."""

    buyers: int
    sales: int
    orders: int

    def __str__(self) -> str:
        return f"{self.buyers:,} buyers, {self.sales:,} sales, {self.orders:,} orders"


@dataclass(frozen=True)
class Plan:
    """The sizes of one run; ``shot_s`` is how long one kind of request is sent at a time.

    ``minute_s`` is how long a minute of an evening takes.
    """

    repetitions: int
    shot_s: float
    wins: int
    warm_up: int
    connections: int
    written: int
    written_singly: int
    sale_repetitions: int
    sale_requests: int
    sale_buyers: int
    sale_units: int
    small: Size
    large: Size
    size_repetitions: int
    single_requests: int
    held: int
    cut_off_s: float
    evening_buyers: int
    minute_s: int
    admin_orders: int
    in_line: int
    in_line_s: int
    visitors: int
    visitors_come_s: int
    let_in_per_s: int
    burst: int
    burst_repetitions: int
    flood_s: float
    entries: int
    draw_repetitions: int
    honest: int
    attacking: int
    contested: int
    contests: int


DEPTH = 16
"""Requests in flight on one connection when the server's limit is measured."""

SALE_CONNECTIONS = 256

WORKERS, THREADS = 2, 4
"""Processes and threads of the web server, as in ``script/server``."""

_SIZES: dict[str, tuple[Any, Any, Any]] = {
    "repetitions": (5, 2, 1),
    "shot_s": (1.5, 0.4, 0.05),
    "wins": (12_000, 3_000, 60),
    "warm_up": (400, 100, 8),
    "connections": (64, 64, 8),
    "written": (20_000, 2_000, 40),
    "written_singly": (1_000, 100, 5),
    "sale_repetitions": (9, 1, 1),
    "sale_requests": (20_000, 4_000, 200),
    "sale_buyers": (10_000, 2_000, 100),
    "sale_units": (1_000, 200, 10),
    "small": (Size(1_000, 1, 1_000), Size(1_000, 1, 1_000), Size(20, 1, 20)),
    "large": (Size(1_000_000, 1_000, 1_000_000), Size(50_000, 50, 50_000), Size(100, 3, 60)),
    "size_repetitions": (9, 2, 1),
    "single_requests": (2_000, 304, 16),
    "held": (100_000, 5_000, 100),
    "cut_off_s": (3, 2, 1),
    "evening_buyers": (20_000, 4_000, 40),
    "minute_s": (60, 12, 1),
    "admin_orders": (200_000, 20_000, 200),
    "in_line": (100_000, 10_000, 200),
    "in_line_s": (90, 10, 2),
    "visitors": (20_000, 1_000, 40),
    "visitors_come_s": (60, 6, 2),
    "let_in_per_s": (200, 100, 20),
    "burst": (100_000, 10_000, 60),
    "burst_repetitions": (3, 1, 1),
    "flood_s": (10, 4, 0.5),
    "entries": (100_000, 10_000, 60),
    "draw_repetitions": (3, 1, 1),
    "honest": (2_000, 400, 20),
    "attacking": (1_000, 200, 20),
    "contested": (200, 40, 10),
    "contests": (3, 1, 1),
}
FULL, QUICK, TINY = (Plan(**{name: of[i] for name, of in _SIZES.items()}) for i in range(3))


def options_of(benchmark: str) -> argparse.ArgumentParser:
    """Return the options that the benchmarks of the whole shop share."""
    parser = argparse.ArgumentParser(prog=f"script/bench {benchmark}")
    parser.add_argument("--quick", action="store_true", help="show that it runs, not how fast")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="write all values to this file")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    return parser


def plan_of(options: argparse.Namespace, *, full: Plan, quick: Plan) -> Plan:
    return TINY if options.tiny else quick if options.quick else full
