"""What experiments measure with."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

from django.db import connection


def sql(statement: str, *values: Any) -> Sequence[Sequence[Any]]:
    """Return the rows that a statement finds."""
    with connection.cursor() as cursor:
        cursor.execute(statement, values)
        return cursor.fetchall() if cursor.description else ()


def in_threads(count: int, call: Callable[[], object]) -> None:
    """Call this in threads at once, each with a connection of its own."""

    def run(_: int) -> None:
        try:
            call()
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        list(pool.map(run, range(count)))


def timed_ms(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return 1_000 * (time.perf_counter() - start)


def median_ms(call: Callable[[], object], times: int = 50) -> float:
    return median(timed_ms(call) for _ in range(times))
