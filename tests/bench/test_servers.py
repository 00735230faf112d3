"""The benchmark of the web servers: the order of the servers, and the table."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

pytestmark = pytest.mark.quick


def test_servers_take_turns_in_each_repetition() -> None:
    from bench.servers.choices import ALL
    from bench.servers.rounds import in_turn

    turns = in_turn(ALL, repetitions=6)
    rounds = [turns[start : start + len(ALL)] for start in range(0, len(turns), len(ALL))]
    assert all(Counter(it) == Counter(ALL) for it in rounds)
    assert len({it[0] for it in rounds}) > 3


def test_cell_shows_median_spread_and_ratio() -> None:
    from bench.servers.choices import OF_THE_SHOP, Choice
    from bench.servers.rounds import COLUMNS, Round, rows

    shops = Round(1_000, 500, 2_000, order_p99_ms=10, order_cpu_us=800, generator_load=0.5)
    faster = [replace(shops, order_rate=rate) for rate in (750, 500, 1_000)]
    other, missing = Choice("waitress", 1, 8), Choice("gunicorn", 2, 4)
    found = {OF_THE_SHOP: [shops] * 3, other: faster}
    table = rows(found, [OF_THE_SHOP, other, missing])
    assert table[0][:3] == [
        f"**{OF_THE_SHOP.name}**",
        "1,000 (1,000–1,000), 1×",
        "500 (500–500), 1×",
    ]
    assert table[1][0] == "waitress 1×8"
    assert table[1][2] == "750 (500–1,000), 1.50×"
    assert table[2] == ["gunicorn 2×4", *["not installed"] * len(COLUMNS)]
