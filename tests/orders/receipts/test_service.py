"""Receipts: what became of an order id, told to its owner and to nobody else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries
from redis import Redis

from orders.fulfilment import worker
from orders.fulfilment.worker import fulfill_sale
from orders.lifecycle import transitions
from orders.lifecycle.cancellation import end_orders
from orders.lifecycle.transitions import SYSTEM, change_order
from orders.models import OrderStatus
from orders.placing.tokens import PurchaseToken
from orders.receipts import service as receipts
from orders.receipts.service import QUEUED, NoReceipt, Receipt, find_receipt, poll_after_ms
from seckill_site.clock import epoch_ms
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
    tokens_for,
)
from vouchers.inventory.buyer_holdings import Standing
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable
from vouchers.inventory.rebuild import rebuild_sale
from vouchers.inventory.reservations import confirm, reserve
from vouchers.inventory.restart_watch import rebuild_after_restart
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db


def receipt_for(token: PurchaseToken) -> Receipt:
    return find_receipt(sale_id=token.sale_id, order_id=token.order_id, user_id=token.user_id)


def lost(sale: SeckillVoucher, order_id: int) -> Receipt:
    return Receipt(order_id, sale.pk, "refused", "lost")


@pytest.mark.parametrize("status", OrderStatus.values)
def test_a_row_and_its_payments_tell_each_status_of_its_life_without_redis(
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


def test_what_is_pending_is_queued_and_then_it_is_unpaid() -> None:
    sale, buyer = make_sale(), make_buyer()
    (token,) = reserved(sale, [buyer])
    assert receipt_for(token) == Receipt(token.order_id, sale.pk, QUEUED, place=1)
    fulfill_sale(sale_id=sale.pk)
    assert receipt_for(token).status == "unpaid"


def test_each_unit_of_a_buyer_has_its_receipt() -> None:
    sale, buyer = make_sale(limit=3), make_buyer()
    tokens = reserved(sale, [buyer] * 3)
    found = [receipt_for(token) for token in tokens]
    assert [(each.status, each.place) for each in found] == [(QUEUED, 1), (QUEUED, 2), (QUEUED, 3)]


def test_the_place_of_a_queued_order_is_that_of_its_entry_and_falls_as_others_are_written() -> None:
    sale = make_sale()
    tokens = reserved(sale, make_buyers(3))
    assert [receipt_for(token).place for token in tokens] == [1, 2, 3]
    confirm(sale_id=sale.pk, entries=pending(sale)[:1])
    assert receipt_for(tokens[2]).place == 2


@pytest.mark.parametrize(
    ("place", "pace_ms"),
    [(None, 300), (1, 300), (300, 300), (301, 301), (812, 812), (2_000, 2_000), (90_000, 2_000)],
)
def test_the_further_back_an_order_is_the_later_it_is_asked_for(
    place: int | None, pace_ms: int
) -> None:
    assert poll_after_ms(place=place) == pace_ms


def test_the_receipt_of_a_queued_order_is_one_statement_and_two_looks_at_the_ledger(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    sale = make_sale(limit=20)
    (token,) = reserved(sale, make_buyers(1))
    receipt_for(token)  # the scripts are known from here on
    with redis_commands() as commands, django_assert_num_queries(1):
        assert receipt_for(token).place == 1
    assert len(commands.ledger) == len(commands) == 2


def test_a_crowd_that_waits_costs_one_look_at_the_ledger_and_no_statement(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    sale = make_sale(limit=20)
    (token,) = reserved(sale, make_buyers(1))
    proven(token)
    with redis_commands() as commands, django_assert_num_queries(0):
        found = proven(token)
    assert (found.status, found.place) == (QUEUED, 1)
    assert len(commands) == 1


def proven(token: PurchaseToken) -> Receipt:
    return find_receipt(
        sale_id=token.sale_id, order_id=token.order_id, user_id=token.user_id, has_token=True
    )


def test_a_written_order_costs_its_crowd_one_look_at_redis_and_no_statement_from_the_first_on(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    sale = make_sale()
    (token, other) = reserved(sale, make_buyers(2))
    proven(other)  # the script is known from here on
    fulfill_sale(sale_id=sale.pk)
    with redis_commands() as commands, django_assert_num_queries(0):
        found = proven(token)
    assert len(commands) == 1
    assert found == receipt_for(token)
    assert (found.status, found.price_cents) == ("unpaid", PRICE_CENTS)


def test_a_refused_order_costs_a_statement_once(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    sale, buyer = make_sale(), make_buyer()
    (token,) = reserved(sale, [buyer])
    User.objects.filter(pk=buyer.pk).update(is_active=False)
    fulfill_sale(sale_id=sale.pk)
    with django_assert_num_queries(1):
        found = proven(token)
    with django_assert_num_queries(0):
        assert proven(token) == found
    assert (found.status, found.reason) == ("refused", "inactive_buyer")


def test_a_copy_is_told_to_its_owner_alone() -> None:
    sale, (owner, other) = make_sale(), make_buyers(2)
    (token,) = reserved(sale, [owner])
    fulfill_sale(sale_id=sale.pk)
    with pytest.raises(NoReceipt):
        find_receipt(sale_id=sale.pk, order_id=token.order_id, user_id=other.pk, has_token=True)


def paid(token: PurchaseToken) -> None:
    with transaction.atomic():
        change_order(
            sale_id=token.sale_id,
            order_id=token.order_id,
            to=OrderStatus.PAID,
            by=SYSTEM,
            at=timezone.now(),
            code="C" * 16,
        )


def ended(token: PurchaseToken) -> None:
    end_orders(
        sale_id=token.sale_id, order_ids=[token.order_id], to=OrderStatus.CANCELLED, by=SYSTEM
    )


@pytest.mark.parametrize(("change", "status"), [(paid, "paid"), (ended, "cancelled")])
def test_a_change_is_told_at_once_although_there_was_a_copy(
    change: Callable[[PurchaseToken], None], status: str
) -> None:
    sale = make_sale()
    (token,) = reserved(sale, make_buyers(1))
    fulfill_sale(sale_id=sale.pk)
    assert proven(token).status == "unpaid"
    change(token)
    assert proven(token).status == status


def test_control_a_change_of_which_redis_does_not_hear_is_told_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transitions, "forget_rows", lambda **_: None)
    sale = make_sale()
    (token,) = reserved(sale, make_buyers(1))
    fulfill_sale(sale_id=sale.pk)
    paid(token)
    assert proven(token).status == "unpaid"


def test_a_row_that_was_read_before_a_change_leaves_no_copy_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reader stands still between its look at the row and the keeping of what it saw."""
    sale, buyer = make_sale(), make_buyer()
    order = make_order(sale, buyer)
    (token,) = tokens_for(sale, [buyer])
    token = replace(token, order_id=order.pk)
    keep = receipts.keep_row

    def paid_meanwhile(**kept: Any) -> None:
        paid(token)
        keep(**kept)

    monkeypatch.setattr(receipts, "keep_row", paid_meanwhile)
    assert proven(token).status == "unpaid"
    assert proven(token).status == "paid"


@pytest.mark.django_db(transaction=True)
def test_a_payment_between_the_commit_and_the_word_to_the_ledger_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker stands still after the commit: its copies come when the order is paid already."""
    sale = make_sale()
    (token,) = reserved(sale, make_buyers(1))
    confirm = worker.confirm

    def late(**told: Any) -> None:
        paid(token)
        confirm(**told)

    monkeypatch.setattr(worker, "confirm", late)
    fulfill_sale(sale_id=sale.pk)
    assert proven(token).status == "paid"


def test_with_redis_away_who_holds_the_token_is_told_by_the_row(
    lose_ledger: Callable[[], None],
) -> None:
    sale, buyer = make_sale(), make_buyer()
    order = make_order(sale, buyer)
    lose_ledger()
    found = find_receipt(sale_id=sale.pk, order_id=order.pk, user_id=buyer.pk, has_token=True)
    assert found.status == "unpaid"


def test_what_was_accepted_and_then_refused_says_why() -> None:
    sale, buyer = make_sale(), make_buyer()
    (token,) = reserved(sale, [buyer])
    User.objects.filter(pk=buyer.pk).update(is_active=False)
    fulfill_sale(sale_id=sale.pk)
    found = receipt_for(token)
    assert (found.status, found.reason) == ("refused", "inactive_buyer")


@pytest.mark.parametrize("written", [False, True])
def test_somebody_elses_order_is_no_receipt(ledger: Redis, written: bool) -> None:
    sale, (owner, other) = make_sale(), make_buyers(2)
    (token,) = reserved(sale, [owner])
    if written:
        fulfill_sale(sale_id=sale.pk)
    # An id tells whole seconds only: let the ledger be older than any of this test.
    ledger.hincrby(LedgerKeys(sale.pk).sale, "loaded_at_ms", -2_000)
    with pytest.raises(NoReceipt):
        find_receipt(sale_id=sale.pk, order_id=token.order_id, user_id=other.pk)


def test_an_order_under_another_sales_address_is_no_receipt() -> None:
    sale, other, buyer = make_sale(), make_sale(), make_buyer()
    order = make_order(sale, buyer)
    with pytest.raises(NoReceipt):
        find_receipt(sale_id=other.pk, order_id=order.pk, user_id=buyer.pk)


def test_a_sale_that_there_is_not_is_said_by_name() -> None:
    sale, buyer = make_sale(), make_buyer()
    with pytest.raises(SeckillVoucher.DoesNotExist):
        find_receipt(sale_id=sale.pk + 1, order_id=id_minted(seconds_ago=5), user_id=buyer.pk)


def test_the_refusal_of_a_deleted_account_is_told_to_the_holder_of_its_token_alone() -> None:
    sale, buyer = make_sale(), make_buyer()
    (token,) = reserved(sale, [buyer])
    User.objects.filter(pk=buyer.pk).delete()
    fulfill_sale(sale_id=sale.pk)
    asked = {"sale_id": sale.pk, "order_id": token.order_id, "user_id": token.user_id}
    assert find_receipt(**asked, has_token=True).reason == "inactive_buyer"
    with pytest.raises(NoReceipt):
        find_receipt(**asked)


def test_an_unknown_id_younger_than_the_ledger_was_never_accepted() -> None:
    sale, buyer = make_sale(), make_buyer()
    with pytest.raises(NoReceipt):
        find_receipt(sale_id=sale.pk, order_id=id_minted(seconds_ago=-5), user_id=buyer.pk)


def test_an_unknown_id_older_than_the_ledger_was_lost_with_an_earlier_one() -> None:
    sale, buyer = make_sale(), make_buyer()
    order_id = id_minted(seconds_ago=60)
    found = find_receipt(sale_id=sale.pk, order_id=order_id, user_id=buyer.pk)
    assert found == lost(sale, order_id)


def test_a_reservation_that_died_with_the_ledger_is_lost_until_it_is_asked_for_again(
    ledger: Redis,
) -> None:
    sale, buyer = make_sale(), make_buyer()
    (token,) = reserved(sale, [buyer])
    ledger.flushdb()
    assert receipt_for(token) == lost(sale, token.order_id)  # this loads the sale
    reserve(sale_id=sale.pk, order_id=token.order_id, user_id=buyer.pk)
    assert receipt_for(token).status == QUEUED


@pytest.mark.parametrize("key", ["sale", "buyers"])
def test_a_reservation_that_survived_the_loss_of_a_key_is_queued_not_lost(
    ledger: Redis, key: str
) -> None:
    """Else a page says that the order is lost, and a moment later there it is."""
    sale, buyer = make_sale(), make_buyer()
    (token,) = reserved(sale, [buyer])
    ledger.delete(getattr(LedgerKeys(sale.pk), key))
    assert receipt_for(token).status == QUEUED
    fulfill_sale(sale_id=sale.pk)
    assert live_ids(sale) == [token.order_id]


def test_what_became_a_row_between_the_two_looks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    sale, buyer = make_sale(), make_buyer()
    (token,) = reserved(sale, [buyer])
    look = receipts.standing_of

    def refused_meanwhile(**kwargs: Any) -> Standing:
        User.objects.filter(pk=buyer.pk).update(is_active=False)
        fulfill_sale(sale_id=sale.pk)
        return look(**kwargs)

    monkeypatch.setattr(receipts, "standing_of", refused_meanwhile)
    assert receipt_for(token).reason == "inactive_buyer"


def test_without_redis_a_row_is_told_and_anything_else_is_unknown(
    lose_ledger: Callable[[], None],
) -> None:
    sale, (first, second) = make_sale(), make_buyers(2)
    (written,) = reserved(sale, [first])
    fulfill_sale(sale_id=sale.pk)
    (queued,) = reserved(sale, [second])
    lose_ledger()
    assert receipt_for(written).status == "unpaid"
    with pytest.raises(LedgerUnavailable):
        receipt_for(queued)


def test_what_a_ledger_of_another_run_of_redis_does_not_know_is_unknown_until_it_is_rebuilt(
    ledger: Redis,
) -> None:
    """It may have gone back, and what it has forgotten may yet become an order."""
    sale, (buyer,) = make_sale(), make_buyers(1)
    (token,) = tokens_for(sale, [buyer])
    who = {"sale_id": sale.pk, "order_id": token.order_id, "user_id": buyer.pk}
    ledger.hset(LedgerKeys(sale.pk).sale, "run_id", "of another run")
    with pytest.raises(LedgerUnavailable):
        find_receipt(**who)
    assert rebuild_after_restart(now=timezone.now()) == [sale.pk]
    found = find_receipt(**who)
    assert (found.status, found.reason) == ("refused", "lost")
    assert rebuild_after_restart(now=timezone.now()) == []


def test_a_ledger_that_is_rebuilt_between_two_looks_answers_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sale, (buyer,) = make_sale(), make_buyers(1)
    (token,) = tokens_for(sale, [buyer])
    who = {"sale_id": sale.pk, "order_id": token.order_id, "user_id": buyer.pk}

    def rebuilt(sale_id: int, *_: int) -> None:
        rebuild_sale(sale_id=sale_id)

    with monkeypatch.context() as patch:
        patch.setattr(receipts, "_from_pending", rebuilt)
        with pytest.raises(LedgerUnavailable):
            find_receipt(**who)
    assert find_receipt(**who).reason == "lost"
