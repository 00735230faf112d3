"""The page *System* names what is wrong with the clocks, and whom the checks are for."""

from __future__ import annotations

import pytest
from django.core.cache import cache
from django.core.checks import Error
from django.test import Client

from backoffice.admin import system
from backoffice.today import figures
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


def test_chinese_page_says_for_whom_an_english_finding_is(
    shop: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.delete("today:checks")
    for module in (system, figures):
        monkeypatch.setattr(module, "current_errors", lambda parts: [Error("Redis is too old.")])
    for page in ("/admin/system/", "/admin/"):
        text = shop.get(page, headers={"accept-language": "zh-hans"}).text
        assert "请转给负责服务器的人（内容为英文）：" in text
        assert "Redis is too old." in text
