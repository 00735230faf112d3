"""The sweep: work that is pending for too long is sent again once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries
from redis import Redis, ResponseError

from locks.lua_script import LuaScript
from orders.fulfilment import sweep as sweeping
from orders.fulfilment.sweep import sweep
from orders.fulfilment.worker import fulfil_sale
from tests.support.inspection import broker_length, live_ids, pending_ids
from tests.support.orders import make_buyers, make_sale, pending, reserved_sale
from tests.support.sales import lose_state, redis_now_ms
from tests.support.tiers import slow_after
from vouchers.inventory.batch_journal import set_aside
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable
from vouchers.inventory.rebuild import load_sale
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db


def sale_with_pending(ledger: Redis, *, age_ms: int, ended: bool = False) -> SeckillVoucher:
    """Return a sale with two pending entries, one of this age, whose message was lost."""
    sale, (first, _) = reserved_sale(make_buyers(2))
    keys = LedgerKeys(sale.pk)
    ledger.zincrby(keys.pending, -age_ms, f"{first.order_id}:{first.user_id}:1")
    ledger.delete(keys.kick)
    if ended:
        long_ago = sale.begins_at - dt.timedelta(days=9)
        SeckillVoucher.objects.filter(pk=sale.pk).update(
            begins_at=long_ago, ends_at=long_ago + dt.timedelta(hours=1)
        )
        load_sale(sale_id=sale.pk)
    return sale


def test_only_sale_with_old_entry_is_swept(ledger: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    sale_with_pending(ledger, age_ms=0)
    overdue = sale_with_pending(ledger, age_ms=2_500)
    make_sale()
    swept: list[int] = []
    monkeypatch.setattr(sweeping, "publish_fulfilment", lambda *, sale_id: swept.append(sale_id))
    assert sweep(now=timezone.now()) == [overdue.pk]
    assert swept == [overdue.pk]


def test_ended_sale_is_swept_too(ledger: Redis) -> None:
    sale = sale_with_pending(ledger, age_ms=60_000, ended=True)
    assert sweep(now=timezone.now()) == []
    assert sweep(now=timezone.now(), long_over=True) == [sale.pk]
    fulfil_sale(sale_id=sale.pk)
    assert len(live_ids(sale)) == 2


def test_sale_is_sent_once_per_kick(ledger: Redis) -> None:
    sale = sale_with_pending(ledger, age_ms=60_000)
    assert sweep(now=timezone.now()) == [sale.pk]
    assert [sweep(now=timezone.now()) for _ in range(3)] == [[]] * 3
    assert broker_length() == 1
    assert 0 < ledger.pttl(LedgerKeys(sale.pk).kick) <= 60_000
    # That task has started, or the kick has run out, and so has the pause.
    ledger.delete(LedgerKeys(sale.pk).kick, LedgerKeys(sale.pk).swept)
    assert sweep(now=timezone.now()) == [sale.pk]
    assert broker_length() == 1, "an equal message waits already"


def test_ten_sales_take_as_many_queries_as_one(
    ledger: Redis, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    sales = [sale_with_pending(ledger, age_ms=60_000) for _ in range(10)]
    with django_assert_num_queries(2):  # the installation and the sales
        assert sweep(now=timezone.now()) == [sale.pk for sale in sales]
    assert broker_length() == 10


def test_rebuilt_ledger_is_swept(ledger: Redis) -> None:
    sale, tokens = reserved_sale(make_buyers(2))
    lose_state(sale.pk)
    ledger.unlink(LedgerKeys(sale.pk).kick)
    load_sale(sale_id=sale.pk)
    assert pending_ids(sale) == [token.order_id for token in tokens]
    ledger.zincrby(
        LedgerKeys(sale.pk).pending, -60_000, f"{tokens[0].order_id}:{tokens[0].user_id}:1"
    )
    assert sweep(now=timezone.now()) == [sale.pk]


def test_without_redis_ledger_is_unavailable(lose_ledger: Callable[[], None]) -> None:
    make_sale()
    lose_ledger()
    with pytest.raises(LedgerUnavailable):
        sweep(now=timezone.now())


@pytest.mark.parametrize("name", slow_after(1, ["kick", "swept", "backoff", "failures"]))
@pytest.mark.parametrize(
    "left", slow_after(1, ["of another type", "without a TTL", "with a TTL from the future"])
)
def test_mistyped_key_delays_no_sweep(ledger: Redis, name: str, left: str) -> None:
    sale = sale_with_pending(ledger, age_ms=2_500)
    key = getattr(LedgerKeys(sale.pk), name)
    if left == "of another type" or name == "swept":
        ledger.sadd(key, "junk")
    else:
        ledger.set(key, "1")
    if left == "with a TTL from the future":
        ledger.pexpire(key, 3_600_000)

    assert sweep(now=timezone.now()) == [sale.pk]


def test_entry_from_the_future_is_swept(ledger: Redis) -> None:
    """The clock of Redis went back after the buyer was accepted."""
    sale = sale_with_pending(ledger, age_ms=2_500)
    pending = LedgerKeys(sale.pk).pending
    for member in ledger.zrange(pending, 0, -1):
        ledger.zadd(pending, {str(member): redis_now_ms() + 60_000})

    assert sweep(now=timezone.now()) == [sale.pk]


def test_entry_that_is_set_aside_is_not_swept(ledger: Redis) -> None:
    sale = sale_with_pending(ledger, age_ms=2_500)
    for entry in pending(sale):
        set_aside(sale_id=sale.pk, entries=[entry])

    assert sweep(now=timezone.now()) == []


def test_sale_that_cannot_be_swept_does_not_stop_others(
    ledger: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_sale()
    second = sale_with_pending(ledger, age_ms=2_500)
    run_each = LuaScript.run_each
    monkeypatch.setattr(
        LuaScript,
        "run_each",
        lambda *args: [ResponseError("of one sale"), *run_each(*args)[1:]],
    )

    assert sweep(now=timezone.now()) == [second.pk]
