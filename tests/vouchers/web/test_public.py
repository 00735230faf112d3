"""Sales that a process does not know: many are asked for together, and forgotten soon."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest
from django.db import DatabaseError

from seckill_site.front_door import threads
from tests.support.sales import make_sale
from vouchers.catalogue import public_sales
from vouchers.catalogue.public_sales import KnownSale, last_public, learn_sales, recall_sale
from vouchers.web import public
from vouchers.web.public import known_sale

PUBLIC = 7


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[Collection[int]]:
    """The ids of each query, of which one sale is public."""
    asked: list[Collection[int]] = []

    def learn(*, sale_ids: Collection[int]) -> dict[int, KnownSale]:
        asked.append(sale_ids)
        if 0 in sale_ids:
            raise DatabaseError("gone")
        return {it: KnownSale(is_public=it == PUBLIC) for it in sale_ids}

    monkeypatch.setattr(threads, "close_old_connections", lambda: None)
    monkeypatch.setattr(public, "learn_sales", learn)
    return asked


async def known(*sale_ids: int) -> list[Any]:
    return await asyncio.gather(*map(known_sale, sale_ids), return_exceptions=True)


@pytest.mark.quick
def test_unknown_sales_share_a_query(queries: list[Collection[int]]) -> None:
    found = asyncio.run(known(*range(1, 301)))
    assert [it.is_public for it in found] == [it == PUBLIC for it in range(1, 301)]
    assert len(queries) == 1


@pytest.mark.quick
def test_queries_for_unknown_sales_keep_their_distance(queries: list[Collection[int]]) -> None:
    async def crowd() -> float:
        began_at = asyncio.get_running_loop().time()
        for first in (1, 101, 201):
            await known(*range(first, first + 100))
        return asyncio.get_running_loop().time() - began_at

    took_s = asyncio.run(crowd())
    assert len(queries) == 3
    assert took_s >= 2 * public.GATHER_S


@pytest.mark.quick
def test_failed_query_is_not_the_last(queries: list[Collection[int]]) -> None:
    async def twice() -> list[Any]:
        return [*await known(0, 1), *await known(PUBLIC)]

    *failed, found = asyncio.run(twice())
    assert [type(it) for it in failed] == [DatabaseError] * 2
    assert found.is_public


@pytest.mark.django_db
def test_made_up_sales_push_out_no_public_one() -> None:
    public_sale_id = make_sale().pk
    learn_sales(sale_ids=[public_sale_id])
    learn_sales(sale_ids=range(10**9, 10**9 + public_sales._missing.most + 1))
    assert last_public(sale_id=public_sale_id)
    assert recall_sale(sale_id=10**9) is None
    assert len(public_sales._missing._kept) == public_sales._missing.most
