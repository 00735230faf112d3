"""Refused order requests are stored by person, with a reason: once each, and for a week."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import OperationalError
from pytest_django import DjangoAssertNumQueries, Settings
from redis import Redis

from locks import RedisLock
from orders.audience import refusal_log
from orders.audience.refusal_log import (
    RETENTION,
    Refused,
    delete_old_refusals,
    flush_refusals,
    note_refusal,
)
from orders.models import OrderRefusal
from orders.placing.tokens import PurchaseToken
from seckill_site.clocks.database import database_now
from seckill_site.process_memory import forget_everything
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support import asgi, wsgi
from tests.support.browsers import browser_of
from tests.support.orders import make_buyer, make_buyers, make_sale, reserved, token_for, tokens_for
from tests.support.tiers import slow_after
from vouchers.inventory import sold_out_cache
from vouchers.inventory.reservations import SaleBehind
from vouchers.models import SeckillVoucher, Work

pytestmark = pytest.mark.django_db

Ask = Callable[..., wsgi.Answer]
at_both_doors = pytest.mark.parametrize("ask", [asgi.ask, wsgi.ask], ids=["front door", "django"])


def place(ask: Ask, token: PurchaseToken, **fields: Any) -> wsgi.Answer:
    return ask("POST", f"/vouchers/{token.sale_id}/orders/", {"token": token.sign(), **fields})


def stored() -> list[tuple[int, str, int]]:
    """Return what is in rows, once this process has written."""
    flush_refusals()
    rows = OrderRefusal.objects.order_by("pk")
    return list(rows.values_list("seckill_voucher", "reason", "user"))


def sold_out() -> PurchaseToken:
    sale = make_sale(stock=1)
    reserved(sale, [make_buyer()])
    return token_for(sale, make_buyer())


def bought() -> PurchaseToken:
    sale, buyer = make_sale(), make_buyer()
    reserved(sale, [buyer])
    return token_for(sale, buyer)


def of(**terms: Any) -> Callable[[], PurchaseToken]:
    return lambda: token_for(make_sale(**terms), make_buyer())


def with_other(**fields: Any) -> Callable[[], PurchaseToken]:
    return lambda: of()()._replace(**fields)


CASES = {
    "sold_out": sold_out,
    "already_ordered": bought,
    "not_started": of(begins_in_s=60),
    "ended": of(begins_in_s=-60, ends_in_s=-1),
    "paused": of(paused=True),
    "waiting_room": of(room="start", room_opened_ms=1, room_since_ms=1),
    "price_changed": with_other(price_cents=1),
    "bad_token": with_other(enters=1),
    "work_missing": with_other(work=Work.HEAVY.value),
}


@at_both_doors
@pytest.mark.parametrize("reason", slow_after(1, CASES))
def test_refused_order_is_stored_with_its_reason(ask: Ask, reason: str) -> None:
    token = CASES[reason]()
    assert place(ask, token).status >= 400
    assert stored() == [(token.sale_id, reason, token.user_id)]


@at_both_doors
def test_sold_out_from_memory_is_stored(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sold_out_cache._answers, "for_s", 60)
    sale = make_sale(stock=1)
    reserved(sale, [make_buyer()])
    first, second = tokens_for(sale, make_buyers(2))
    place(ask, first, attempt=1)
    ledger_connection().delete(f"seckill:{{{sale.pk}}}:sale")  # who asks the ledger gets a 503
    assert place(ask, second, attempt=1).status == 409
    assert (sale.pk, "sold_out", second.user_id) in stored()


@at_both_doors
def test_limited_orders_are_stored(ask: Ask, settings: Settings) -> None:
    settings.SECKILL_UNLIMITED_NETWORKS = []
    sale, buyer = make_sale(per_address=1), make_buyer()
    for token, status in zip(tokens_for(sale, [make_buyer(), buyer]), (202, 429), strict=True):
        fields, path = {"token": token.sign()}, f"/vouchers/{sale.pk}/orders/"
        assert ask("POST", path, fields, REMOTE_ADDR="203.0.113.7").status == status
    assert stored() == [(sale.pk, "address_limited", buyer.pk)]


def test_order_from_a_limited_address_is_stored(settings: Settings) -> None:
    settings.SECKILL_UNLIMITED_NETWORKS, settings.SECKILL_REQUESTS_PER_ADDRESS = [], 1
    token, forged = of()(), of()()._replace(sale_id=1).sign()
    path = f"/vouchers/{token.sale_id}/orders/"
    for text, status in ((token.sign(), 202), (forged, 429), (token.sign(), 429)):
        assert asgi.ask("POST", path, {"token": text}).status == status
    assert stored() == [(token.sale_id, "rate_limited", token.user_id)]


@at_both_doors
def test_busy_answer_is_stored(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    token = of()()

    def behind(*_: object, **__: object) -> None:
        raise SaleBehind(5_000)

    monkeypatch.setattr("orders.web.order_answers.finish_order", behind)
    assert place(ask, token).status == 503
    assert stored() == [(token.sale_id, "unavailable", token.user_id)]


@at_both_doors
def test_order_of_a_deleted_sale_is_stored(ask: Ask) -> None:
    token = with_other(sale_id=987_654_321)()
    place(ask, token)
    assert [reason for _, reason, _ in stored()] == ["not_found"]


@at_both_doors
@pytest.mark.parametrize("text", ["", "1-2-3-4:x", None], ids=["none", "forged", "another sale's"])
def test_token_that_proves_nobody_stores_nothing(ask: Ask, text: str | None) -> None:
    token = of()()
    text = token._replace(sale_id=token.sale_id + 1).sign() if text is None else text
    answer = ask("POST", f"/vouchers/{token.sale_id}/orders/", {"token": text})
    assert answer.status in (400, 403)
    assert stored() == []


def test_accepted_order_stores_nothing() -> None:
    assert place(asgi.ask, of()()).status == 202
    assert stored() == []


def test_refused_wait_is_stored() -> None:
    sale, buyer = make_sale(), make_buyer()
    fields = {"token": token_for(sale, buyer).sign()}
    assert browser_of(buyer).post(f"/vouchers/{sale.pk}/waiting/", fields).status_code == 409
    assert stored() == [(sale.pk, "available", buyer.pk)]


# --- One row each ---------------------------------------------------------------------------------


@pytest.fixture
def sale() -> SeckillVoucher:
    return make_sale(loaded=False)


def refuse(sale: SeckillVoucher, *users: int, reason: str = "sold_out") -> None:
    for user_id in users:
        note_refusal(Refused(sale.pk, reason, user_id))


def test_first_time_of_a_refusal_stays(
    sale: SeckillVoucher, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    before = database_now()
    refuse(sale, 7, 7)
    assert stored() == [(sale.pk, "sold_out", 7)]
    first = OrderRefusal.objects.get().refused_at
    assert before <= first <= database_now()
    refuse(sale, 7)
    with django_assert_num_queries(0):
        flush_refusals()
    forget_everything()  # another process
    refuse(sale, 7)
    assert stored() == [(sale.pk, "sold_out", 7)]
    assert OrderRefusal.objects.get().refused_at == first


def test_each_reason_and_sale_has_its_row(sale: SeckillVoucher) -> None:
    other = make_sale(loaded=False)
    refuse(sale, 7)
    refuse(sale, 7, reason="not_started")
    refuse(other, 7)
    assert set(stored()) == {
        (sale.pk, "sold_out", 7), (sale.pk, "not_started", 7), (other.pk, "sold_out", 7),
    }  # fmt: skip


def test_sale_keeps_only_so_many(sale: SeckillVoucher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusal_log, "MOST_PER_SALE", 3)
    refuse(sale, 1, 2)
    flush_refusals()
    forget_everything()
    refuse(sale, 3, 4, 5)
    flush_refusals()
    refuse(sale, 6)
    other = make_sale(loaded=False)
    refuse(other, 1)
    assert {user for pk, _, user in stored() if pk == sale.pk} == {1, 2, 3}
    assert (other.pk, "sold_out", 1) in stored()


def test_full_sale_is_not_counted_each_time(
    sale: SeckillVoucher,
    monkeypatch: pytest.MonkeyPatch,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    monkeypatch.setattr(refusal_log, "MOST_PER_SALE", 1)
    refuse(sale, 1, 2)
    flush_refusals()
    refuse(sale, 3)
    flush_refusals()
    refuse(sale, 4)
    with django_assert_max_num_queries(1):  # the time
        flush_refusals()


def test_only_one_process_writes_at_a_time(
    sale: SeckillVoucher, ledger: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that counted the rows together would write more than there is room for."""
    monkeypatch.setattr(refusal_log, "WAIT_MS", 0)
    refuse(sale, 1)
    with ThreadPoolExecutor(1) as other:  # a thread takes its own lock again
        lock = RedisLock(ledger, "lock:refusals", lease_ms=10_000)
        other.submit(lock.acquire).result()
        flush_refusals()
        assert not OrderRefusal.objects.exists()
        other.submit(lock.release).result()
    assert stored() == [(sale.pk, "sold_out", 1)]


def test_refusals_wait_for_the_database(
    sale: SeckillVoucher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> dt.datetime:
        raise OperationalError("away")

    refuse(sale, 1)
    with monkeypatch.context() as patch:
        patch.setattr(refusal_log, "database_now", fail)
        flush_refusals()
    refuse(sale, 2)
    assert [user for _, _, user in stored()] == [1, 2]


# --- A week ---------------------------------------------------------------------------------------


def test_refusals_are_deleted_after_a_week(
    sale: SeckillVoucher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusal_log, "DELETED_AT_ONCE", 2)
    now, second = database_now(), dt.timedelta(seconds=1)
    ages = (RETENTION, RETENTION, RETENTION, RETENTION - second, second)
    for user_id, age in enumerate(ages, start=1):
        OrderRefusal.objects.create(
            seckill_voucher=sale, user_id=user_id, reason="sold_out", refused_at=now - age
        )
    passes = [delete_old_refusals(now=now) for _ in range(3)]
    assert passes == [True, False, False]
    assert sorted(OrderRefusal.objects.values_list("user", flat=True)) == [4, 5]
