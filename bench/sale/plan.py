"""The sizes of a run: full, quick, and one that only shows that the benchmark works."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial
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


SMALL = Size(1_000, 1, 1_000), Size(1_000, 1, 1_000), Size(20, 1, 20)
LARGE = Size(1_000_000, 1_000, 1_000_000), Size(50_000, 50, 50_000), Size(100, 3, 60)


def _sizes(full: Any, quick: Any, tiny: Any) -> Any:
    """Return a field with its values in the three plans."""
    return field(metadata={"sizes": (full, quick, tiny)})


@dataclass(frozen=True)
class Plan:
    """The sizes of one run; ``shot_s`` is how long one kind of request is sent at a time.

    ``minute_s`` is how long a minute of an evening takes.
    """

    small: Size = field(metadata={"sizes": SMALL})
    large: Size = field(metadata={"sizes": LARGE})
    repetitions: int = _sizes(5, 2, 1)
    shot_s: float = _sizes(1.5, 0.4, 0.05)
    wins: int = _sizes(12_000, 3_000, 60)
    warm_up: int = _sizes(400, 100, 8)
    connections: int = _sizes(64, 64, 8)
    written: int = _sizes(20_000, 2_000, 40)
    written_singly: int = _sizes(1_000, 100, 5)
    sale_repetitions: int = _sizes(9, 1, 1)
    sale_requests: int = _sizes(20_000, 4_000, 200)
    sale_buyers: int = _sizes(10_000, 2_000, 100)
    sale_units: int = _sizes(1_000, 200, 10)
    size_repetitions: int = _sizes(9, 2, 1)
    single_requests: int = _sizes(2_000, 304, 16)
    held: int = _sizes(100_000, 5_000, 100)
    cut_off_s: float = _sizes(3, 2, 1)
    evening_buyers: int = _sizes(20_000, 4_000, 40)
    minute_s: int = _sizes(60, 12, 1)
    admin_orders: int = _sizes(200_000, 20_000, 200)
    in_line: int = _sizes(100_000, 10_000, 200)
    in_line_s: int = _sizes(120, 10, 2)
    visitors: int = _sizes(20_000, 1_000, 40)
    visitors_come_s: int = _sizes(60, 6, 2)
    let_in_per_s: int = _sizes(200, 100, 20)
    burst: int = _sizes(100_000, 10_000, 60)
    burst_repetitions: int = _sizes(3, 1, 1)
    flood_s: float = _sizes(10, 4, 0.5)
    entries: int = _sizes(100_000, 10_000, 60)
    draw_repetitions: int = _sizes(3, 1, 1)
    honest: int = _sizes(2_000, 400, 20)
    attacking: int = _sizes(1_000, 200, 20)
    contested: int = _sizes(200, 40, 10)
    contests: int = _sizes(3, 1, 1)
    idle_sales: int = _sizes(24, 6, 3)
    idle_orders: int = _sizes(500_000, 20_000, 60)
    idle_settle_s: float = _sizes(75, 5, 1)
    idle_s: float = _sizes(60, 10, 1)
    overdue: int = _sizes(20_000, 4_000, 40)
    expiry_repetitions: int = _sizes(5, 2, 1)


DEPTH = 16
"""Requests in flight on one connection when the server's limit is measured."""

SALE_CONNECTIONS = 256

WORKERS, THREADS = 2, 4
"""Processes and threads of the web server, as in ``script/server``."""

FULL, QUICK, TINY = (
    Plan(**{it.name: it.metadata["sizes"][number] for it in fields(Plan)}) for number in range(3)
)


def options_of(benchmark: str, *, parts: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return the options that the benchmarks of the whole shop share; ``--only`` chooses parts."""
    parser = argparse.ArgumentParser(prog=f"script/bench {benchmark}")
    parser.add_argument("--quick", action="store_true", help="show that it runs, not how fast")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="write all values to this file")
    parser.add_argument("--markdown", type=Path, help="write the table to this file")
    if parts:
        only, names = partial(_some_of, parts), ",".join(parts)
        parser.add_argument("--only", type=only, default=list(parts), help=f"of {names}")
    return parser


def _some_of(parts: Sequence[str], text: str) -> list[str]:
    chosen = text.split(",")
    if set(chosen) - set(parts):
        raise argparse.ArgumentTypeError(f"choose from {','.join(parts)}")
    return chosen


def plan_of(options: argparse.Namespace, *, full: Plan, quick: Plan) -> Plan:
    return TINY if options.tiny else quick if options.quick else full
