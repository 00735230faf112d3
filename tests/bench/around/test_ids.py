"""Ids for orders: each fault repeats, delays or reveals what the story says."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from bench.around.ids import KEY, TABLES, VISITORS_PER_ORDER, insert, repeat_and_reveal
from seckill_site.redis.ledger_connection import ledger_connection

pytestmark = pytest.mark.django_db(transaction=True)

COUNT = 50


@pytest.mark.slow
def test_faults_repeat_delay_and_reveal_ids() -> None:
    rows = {name: figures for name, _, *figures in repeat_and_reveal(COUNT)}
    assert rows == {
        "auto-increment": [COUNT, COUNT, 0, COUNT],
        "the course": [COUNT, COUNT, COUNT, COUNT],
        "this shop": [0, COUNT, 0, COUNT * VISITORS_PER_ORDER],
        "Snowflake": [COUNT, 0, "refuses", None],
        "UUIDv7": [0, 0, COUNT, None],
        "UUIDv4": [0, 0, rows["UUIDv4"][2], None],  # by chance
    }


def test_every_kind_is_inserted_and_nothing_is_left() -> None:
    found: Any = insert(rows=2_000, repeats=1)
    rows = {name: figures for name, *figures in found}
    assert len(rows) == 6
    assert rows["auto-increment"][1] == 1
    assert all(min(figures) > 0 for figures in rows.values())
    assert not {*TABLES} & {*connection.introspection.table_names()}
    assert not list(ledger_connection().scan_iter(f"{KEY}*"))
