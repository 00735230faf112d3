"""Loading a sale for the front door: once in a process, whoever else asks."""

from __future__ import annotations

import asyncio
import threading
from typing import Any
from unittest.mock import Mock

import pytest
from django.db import DatabaseError

from seckill_site.front_door import threads
from tests.support.patience import GENEROUS_S
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.sale_state import LedgerRemoved
from vouchers.web import loading
from vouchers.web.loading import load_once

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def no_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "close_old_connections", lambda: None)
    monkeypatch.setattr(loading, "check_not_removed", lambda **_: None)


def test_one_request_at_a_time_loads_a_sale(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, may_end = [], threading.Event()

    def load(*, sale_id: int) -> None:
        loaded.append(sale_id)
        may_end.wait(GENEROUS_S)

    monkeypatch.setattr(loading, "load_sale_exclusively", load)

    async def many() -> list[Any]:
        requests = [asyncio.ensure_future(load_once(sale_id=it)) for it in (1, 1, 1, 2)]
        while len(loaded) < 2:
            await asyncio.sleep(0.01)
        may_end.set()
        return await asyncio.gather(*requests, return_exceptions=True)

    outcomes = asyncio.run(many())
    assert sorted(loaded) == [1, 2]
    assert [isinstance(it, LedgerUnavailable) for it in outcomes] == [False, True, True, False]


def test_sale_may_be_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = [DatabaseError("gone"), None]

    def load(*, sale_id: int) -> None:
        if outcome := outcomes.pop(0):
            raise outcome

    monkeypatch.setattr(loading, "load_sale_exclusively", load)

    async def twice() -> None:
        with pytest.raises(LedgerUnavailable, match="gone"):
            await load_once(sale_id=1)
        await load_once(sale_id=1)

    asyncio.run(twice())
    assert outcomes == []


def test_crowd_at_a_removed_ledger_hears_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    def look(*, sale_id: int) -> None:
        looks.append(sale_id)
        raise LedgerRemoved(Mock())

    monkeypatch.setattr(loading, "check_not_removed", look)

    async def crowd() -> list[Any]:
        requests = [load_once(sale_id=1) for _ in range(20)]
        return await asyncio.gather(*requests, return_exceptions=True)

    assert {type(it) for it in asyncio.run(crowd())} == {LedgerRemoved}
    assert looks == [1]
