"""How much is measured: the full run, the quick one, and one that only shows that it runs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """How much a shop has: buyers in one ledger, open sales, orders in the table."""

    buyers: int
    sales: int
    orders: int


@dataclass(frozen=True)
class Plan:
    """The sizes of one run; ``shot_s`` is how long one kind of request is sent at a time."""

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


DEPTH = 16
"""So many requests are on their way on one connection where the server's limit is looked for."""

SALE_CONNECTIONS = 256

WORKERS, THREADS = 2, 4
"""Processes and threads of the web server, as in ``script/server``."""

FULL = Plan(
    repetitions=5,
    shot_s=1.5,
    wins=12_000,
    warm_up=400,
    connections=64,
    written=20_000,
    written_singly=1_000,
    sale_repetitions=9,
    sale_requests=20_000,
    sale_buyers=10_000,
    sale_units=1_000,
    small=Size(buyers=1_000, sales=1, orders=1_000),
    large=Size(buyers=1_000_000, sales=1_000, orders=1_000_000),
    size_repetitions=9,
    single_requests=2_000,
    held=100_000,
)
QUICK = Plan(
    repetitions=2,
    shot_s=0.4,
    wins=3_000,
    warm_up=100,
    connections=64,
    written=2_000,
    written_singly=100,
    sale_repetitions=1,
    sale_requests=4_000,
    sale_buyers=2_000,
    sale_units=200,
    small=Size(buyers=1_000, sales=1, orders=1_000),
    large=Size(buyers=50_000, sales=50, orders=50_000),
    size_repetitions=2,
    single_requests=304,
    held=5_000,
)
TINY = Plan(
    repetitions=1,
    shot_s=0.05,
    wins=60,
    warm_up=8,
    connections=8,
    written=40,
    written_singly=5,
    sale_repetitions=1,
    sale_requests=200,
    sale_buyers=100,
    sale_units=10,
    small=Size(buyers=20, sales=1, orders=20),
    large=Size(buyers=100, sales=3, orders=60),
    size_repetitions=1,
    single_requests=16,
    held=100,
)
