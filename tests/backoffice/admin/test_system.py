"""The page *System* names what is wrong with the clocks."""

from __future__ import annotations

import pytest
from django.test import Client

from seckill_site.clocks.machine import now_ms
from seckill_site.clocks.steps import STEPPED
from seckill_site.clocks.watch import CLOCKS
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.sales import redis_now_ms

pytestmark = pytest.mark.django_db

SET = "A clock was set within the last minute."


def test_clock_that_differs_is_named_and_holds_nothing_back(shop: Client) -> None:
    ledger_connection().hset(CLOCKS, "database", f"3600000 {redis_now_ms()}")
    page = shop.get("/admin/system/").text
    assert "Wrong clocks: database +3,600.0 s." in page
    assert SET not in page


def test_clock_that_was_just_set_is_named(shop: Client) -> None:
    assert SET not in shop.get("/admin/system/").text
    ledger_connection().set(STEPPED, f"{now_ms() - 9_000} {redis_now_ms() - 9_000} 1 0 0")
    assert SET in shop.get("/admin/system/").text
