"""Receipts: what became of an order id, told to its owner and to nobody else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries
from redis import Redis

from orders.fulfilment import worker
from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle import cancellation, transitions
from orders.lifecycle.cancellation import end_orders
from orders.lifecycle.transitions import SYSTEM, Change, change_order
from orders.models import OrderStatus
from orders.placing.tokens import PurchaseToken
from orders.receipts import service as receipts
from orders.receipts.service import QUEUED, NoReceipt, Receipt, find_receipt, poll_after_ms
from seckill_site.clocks.machine import epoch_ms
from tests.support.inspection import live_ids, redis_commands
from tests.support.orders import (
    PRICE_CENTS,
    id_minted,
    make_buyer,
    make_buyers,
    make_order,
    make_sale,
    pending,
    reserved,
    reserved_sale,
    tokens_for,
    written_orders,
)
from tests.support.sales import change_state, reserve
from tests.support.tiers import slow_after
from vouchers.inventory.holdings import BuyerHoldings, read_buyer_holdings
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable
from vouchers.inventory.rebuild import rebuild_sale
from vouchers.inventory.receipt_cache import cache_row
from vouchers.inventory.reservations import confirm
from vouchers.inventory.restart_watch import rebuild_after_restart
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db


def receipt_for(token: PurchaseToken, **proof: bool) -> Receipt:
    ids: dict[str, Any] = {
        "sale_id": token.sale_id,
        "order_id": token.order_id,
        "user_id": token.user_id,
    }
    return find_receipt(**ids, **proof)


def lost(sale: SeckillVoucher, order_id: int) -> Receipt:
    return Receipt(order_id, sale.pk, "refused", "lost")


@pytest.mark.parametrize("status", slow_after(1, OrderStatus.values))
def test_row_alone_gives_each_status(
    status: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    sale, buyer = make_sale(), make_buyer()
    reason = "sold_out" if status == "refused" else ""
    order = make_order(sale, buyer, status=OrderStatus(status), reason=reason)
    # What a crowd polls for is one look; only what came later may have a code, or money going back.
    queries = 1 if status in ("unpaid", "refused") else 3
    with django_assert_num_queries(queries), redis_commands() as commands:
        found = find_receipt(sale_id=sale.pk, order_id=order.pk, user_id=buyer.pk)
    accepted_at_ms = epoch_ms(order.accepted_at)
    assert found == Receipt(
        *(order.pk, sale.pk, status, reason, PRICE_CENTS, accepted_at_ms),
        refundable=status == "paid",
    )
    assert commands == []


def test_pending_order_is_queued_then_unpaid() -> None:
    sale, (token,) = reserved_sale([make_buyer()])
    assert receipt_for(token) == Receipt(token.order_id, sale.pk, QUEUED, place=1)
    fulfil_sale(sale_id=sale.pk)
    assert receipt_for(token).status == "unpaid"


def test_queue_position_falls_as_orders_are_written() -> None:
    sale, tokens = reserved_sale(make_buyers(3))
    assert [receipt_for(token).place for token in tokens] == [1, 2, 3]
    confirm(sale_id=sale.pk, entries=pending(sale)[:1])
    assert receipt_for(tokens[2]).place == 2


@pytest.mark.parametrize(
    ("place", "pace_ms"),
    [(None, 300), (1, 300), (300, 300), (301, 301), (812, 812), (2_000, 2_000), (90_000, 2_000)],
)
def test_poll_interval_grows_with_queue_position(place: int | None, pace_ms: int) -> None:
    assert poll_after_ms(place=place) == pace_ms


def test_queued_receipt_costs_one_statement_and_two_commands(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    _, (token,) = reserved_sale(make_buyers(1), limit=20)
    receipt_for(token)  # the scripts are known from here on
    with redis_commands() as commands, django_assert_num_queries(1):
        assert receipt_for(token).place == 1
    assert len(commands.ledger) == len(commands) == 2


def proven(token: PurchaseToken) -> Receipt:
    return receipt_for(token, has_token=True)


def test_refused_order_costs_one_statement_once(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    sale, buyer = make_sale(), make_buyer()
    (token,) = reserved(sale, [buyer])
    User.objects.filter(pk=buyer.pk).update(is_active=False)
    fulfil_sale(sale_id=sale.pk)
    with django_assert_num_queries(1):
        found = proven(token)
    with django_assert_num_queries(0):
        assert proven(token) == found
    assert (found.status, found.reason) == ("refused", "inactive_buyer")


def paid(token: PurchaseToken) -> None:
    with transaction.atomic():
        change = Change(OrderStatus.PAID, SYSTEM, timezone.now())
        change_order(change, sale_id=token.sale_id, order_id=token.order_id, code="C" * 16)


def ended(token: PurchaseToken) -> None:
    change = Change(OrderStatus.CANCELLED, SYSTEM, timezone.now())
    end_orders(change, sale_id=token.sale_id, order_ids=[token.order_id])


@pytest.mark.parametrize(("change", "status"), [(paid, "paid"), (ended, "cancelled")])
def test_change_invalidates_the_copy_at_once(
    change: Callable[[PurchaseToken], None], status: str
) -> None:
    (token,) = written_orders(make_sale(), make_buyers(1))
    assert proven(token).status == "unpaid"
    change(token)
    assert proven(token).status == status


def test_control_change_without_invalidation_shows_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transitions, "invalidate_rows", lambda **_: None)
    (token,) = written_orders(make_sale(), make_buyers(1))
    paid(token)
    assert proven(token).status == "unpaid"


@pytest.mark.parametrize(("released", "status"), [(True, "cancelled"), (False, "unpaid")])
def test_release_drops_a_copy_that_missed_the_change(
    monkeypatch: pytest.MonkeyPatch, released: bool, status: str
) -> None:
    """Redis refused to drop it before the order ended; the control refuses the release too."""
    monkeypatch.setattr(transitions, "invalidate_rows", lambda **_: None)
    if not released:
        monkeypatch.setattr(cancellation, "release", lambda **_: None)
    (token,) = written_orders(make_sale(), make_buyers(1))
    assert proven(token).status == "unpaid"
    ended(token)
    assert proven(token).status == status


def test_row_read_before_a_change_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader stands still between its look at the row and the keeping of what it saw."""
    sale, buyer = make_sale(), make_buyer()
    order = make_order(sale, buyer)
    (token,) = tokens_for(sale, [buyer])
    token = token._replace(order_id=order.pk)
    keep = cache_row

    def paid_meanwhile(**kept: Any) -> None:
        paid(token)
        keep(**kept)

    monkeypatch.setattr(receipts, "cache_row", paid_meanwhile)
    assert proven(token).status == "unpaid"
    assert proven(token).status == "paid"


@pytest.mark.django_db(transaction=True)
def test_payment_between_commit_and_confirm_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker stands still after the commit: its copies come when the order is paid already."""
    sale, (token,) = reserved_sale(make_buyers(1))

    def late(**told: Any) -> None:
        paid(token)
        confirm(**told)

    monkeypatch.setattr(worker, "confirm", late)
    fulfil_sale(sale_id=sale.pk)
    assert proven(token).status == "paid"


@pytest.mark.parametrize("written", [False, True])
def test_other_buyers_order_has_no_receipt(ledger: Redis, written: bool) -> None:
    sale, (owner, other) = make_sale(), make_buyers(2)
    (token,) = reserved(sale, [owner])
    if written:
        fulfil_sale(sale_id=sale.pk)
    # An id tells whole seconds only: let the ledger be older than any of this test.
    change_state(sale.pk, loaded_at_ms=snapshot(sale_id=sale.pk).loaded_at_ms - 2_000)
    with pytest.raises(NoReceipt):
        find_receipt(sale_id=sale.pk, order_id=token.order_id, user_id=other.pk)


def test_order_of_other_sale_has_no_receipt() -> None:
    sale, other, buyer = make_sale(), make_sale(), make_buyer()
    order = make_order(sale, buyer)
    with pytest.raises(NoReceipt):
        find_receipt(sale_id=other.pk, order_id=order.pk, user_id=buyer.pk)


def test_missing_sale_raises_by_name() -> None:
    sale, buyer = make_sale(), make_buyer()
    with pytest.raises(SeckillVoucher.DoesNotExist):
        find_receipt(sale_id=sale.pk + 1, order_id=id_minted(seconds_ago=5), user_id=buyer.pk)


def test_unknown_id_younger_than_ledger_was_never_accepted() -> None:
    sale, buyer = make_sale(), make_buyer()
    with pytest.raises(NoReceipt):
        find_receipt(sale_id=sale.pk, order_id=id_minted(seconds_ago=-5), user_id=buyer.pk)


def test_id_was_lost_even_if_the_clock_of_redis_went_back() -> None:
    """The ledger that replaced another may be younger than it says."""
    sale, buyer = make_sale(), make_buyer()
    rebuild_sale(sale_id=sale.pk)
    order_id = id_minted(seconds_ago=-20)
    found = find_receipt(sale_id=sale.pk, order_id=order_id, user_id=buyer.pk, has_token=True)
    assert found == lost(sale, order_id)
    with pytest.raises(NoReceipt):
        find_receipt(
            sale_id=sale.pk, order_id=id_minted(seconds_ago=-90), user_id=buyer.pk, has_token=True
        )


def test_unknown_id_older_than_ledger_was_lost_if_its_token_says_so() -> None:
    sale, buyer = make_sale(), make_buyer()
    order_id = id_minted(seconds_ago=60)
    found = find_receipt(sale_id=sale.pk, order_id=order_id, user_id=buyer.pk, has_token=True)
    assert found == lost(sale, order_id)
    with pytest.raises(NoReceipt):
        find_receipt(sale_id=sale.pk, order_id=order_id, user_id=buyer.pk)


def test_lost_reservation_is_lost_until_retried(ledger: Redis) -> None:
    sale, buyer = make_sale(), make_buyer()
    (token,) = reserved(sale, [buyer])
    ledger.flushdb()
    found = receipt_for(token, has_token=True)  # this loads the sale
    assert found == lost(sale, token.order_id)
    reserve(sale_id=sale.pk, order_id=token.order_id, user_id=buyer.pk)
    assert receipt_for(token).status == QUEUED


@pytest.mark.parametrize("key", ["sale", "buyers"])
def test_reservation_surviving_a_lost_key_is_queued(ledger: Redis, key: str) -> None:
    """Else a page says that the order is lost, and a moment later there it is."""
    sale, (token,) = reserved_sale([make_buyer()])
    ledger.delete(getattr(LedgerKeys(sale.pk), key))
    assert receipt_for(token).status == QUEUED
    fulfil_sale(sale_id=sale.pk)
    assert live_ids(sale) == [token.order_id]


def test_row_written_between_the_reads_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sale, buyer = make_sale(), make_buyer()
    (token,) = reserved(sale, [buyer])
    look = read_buyer_holdings

    def refused_meanwhile(**kwargs: Any) -> BuyerHoldings:
        User.objects.filter(pk=buyer.pk).update(is_active=False)
        fulfil_sale(sale_id=sale.pk)
        return look(**kwargs)

    monkeypatch.setattr(receipts, "read_buyer_holdings", refused_meanwhile)
    assert receipt_for(token).reason == "inactive_buyer"


def test_redis_down_serves_rows_only(lose_ledger: Callable[[], None]) -> None:
    sale, (first, second) = make_sale(), make_buyers(2)
    (written,) = written_orders(sale, [first])
    (queued,) = reserved(sale, [second])
    lose_ledger()
    assert receipt_for(written).status == proven(written).status == "unpaid"
    with pytest.raises(LedgerUnavailable):
        receipt_for(queued)


def test_restarted_redis_is_not_trusted_until_rebuilt(ledger: Redis) -> None:
    """It may have gone back, and what it has forgotten may yet become an order."""
    sale, (buyer,) = make_sale(), make_buyers(1)
    (token,) = tokens_for(sale, [buyer])
    ledger.hset(LedgerKeys(sale.pk).sale, "run_id", "of another run")
    with pytest.raises(LedgerUnavailable):
        proven(token)
    rebuild_after_restart(now=timezone.now())
    found = proven(token)
    assert (found.status, found.reason) == ("refused", "lost")


def test_ledger_rebuilt_between_reads_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    sale, (buyer,) = make_sale(), make_buyers(1)
    (token,) = tokens_for(sale, [buyer])

    def rebuilt(sale_id: int, *_: int) -> None:
        rebuild_sale(sale_id=sale_id)

    with monkeypatch.context() as patch:
        patch.setattr(receipts, "_from_pending", rebuilt)
        with pytest.raises(LedgerUnavailable):
            proven(token)
    assert proven(token).reason == "lost"
