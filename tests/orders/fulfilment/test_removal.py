"""Removing a ledger: what lets it go, what keeps it, and who races with it (docs/adr/0049)."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from redis import Redis

from orders.fulfilment import removal
from orders.fulfilment.reconcile import reconcile
from orders.fulfilment.removal import remove_ledgers
from orders.fulfilment.retry import retry_order
from orders.fulfilment.sweep import sweep
from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle.transitions import SYSTEM
from orders.models import OrderStatus, RefusalReason, VoucherOrder
from orders.payments.refunds import refund_order
from orders.placing.service import finish_order, place_order
from orders.placing.tokens import PurchaseToken
from orders.receipts.service import NoReceipt, find_receipt
from seckill_site.failpoints import _Points
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.inspection import MOMENTARY, live_ids, sale_keys
from tests.support.orders import (
    at_once,
    id_minted,
    make_buyers,
    make_order,
    make_sale,
    race,
    reserved,
    token_for,
    written_orders,
)
from tests.support.sales import HOUR, make_waiting
from tests.support.tiers import slow_after
from vouchers.catalogue.sales import edit_sale, terms_of
from vouchers.inventory import rebuild
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.rebuild import load_sale, snapshot_or_load
from vouchers.inventory.removal import LOOKED_ON, remove_again, remove_ledger
from vouchers.inventory.reservations import SaleEnded
from vouchers.inventory.restart_watch import rebuild_after_restart
from vouchers.inventory.sale_state import LedgerRemoved, snapshot
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import Draw, SaleMode, SeckillVoucher

pytestmark = pytest.mark.django_db

DAYS = dt.timedelta(days=7)
BACKUP = "backup:"


def end_long_ago(sale: SeckillVoucher, *, over: dt.timedelta = DAYS) -> None:
    """Let a sale have been over for as long, in its row and its ledger."""
    ends_at = (timezone.now() - over).replace(microsecond=0)
    SeckillVoucher.objects.filter(pk=sale.pk).update(begins_at=ends_at - HOUR, ends_at=ends_at)
    load_sale(sale_id=sale.pk)
    sale.refresh_from_db()


def sale_long_over(buyers: list[User] | None = None, **terms: Any) -> SeckillVoucher:
    """Return a sale that was over a week ago, with a paid order for each of these buyers."""
    sale = make_sale(**terms)
    written_orders(sale, buyers if buyers is not None else make_buyers(2))
    VoucherOrder.objects.filter(seckill_voucher=sale).update(status=OrderStatus.PAID)
    end_long_ago(sale)
    return sale


def is_removed(sale: SeckillVoucher) -> bool:
    """Return what the row says, which has to be what Redis has."""
    sale.refresh_from_db()
    return sale.ledger_removed_at is not None


def keys_of(sale: SeckillVoucher) -> list[str]:
    """Return the keys of a sale that do not expire within seconds."""
    keys = [key for key in sale_keys() if f"{{{sale.pk}}}" in key]
    return [key for key in keys if not (MOMENTARY.search(key) or key.startswith(BACKUP))]


@contextmanager
def at_point(name: str, act: Callable[[], object]) -> Iterator[None]:
    """Do something when the product reaches this point for the first time."""

    def reach(reached: str) -> None:
        if reached == name:
            _Points.listener = None
            act()

    _Points.listener = reach
    try:
        yield
    finally:
        _Points.listener = None


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no pass end early on a machine that stands still."""
    monkeypatch.setattr("vouchers.inventory.passes.PASS_S", 60.0)


# --- What goes and what stays ---------------------------------------------------------------------


def test_ledger_that_is_over_leaves_nothing_in_redis() -> None:
    sale = sale_long_over()
    epoch = sale.epoch
    assert remove_ledgers(now=timezone.now())
    assert is_removed(sale)
    assert (keys_of(sale), sale.epoch, sale.fence) == ([], epoch + 1, (epoch + 1) << 32)
    assert not remove_ledgers(now=timezone.now())


@pytest.mark.slow
def test_one_ledger_leaves_a_pass() -> None:
    sales = [sale_long_over([]) for _ in range(3)]
    removed = []
    for _ in sales:
        remove_ledgers(now=timezone.now())
        removed.append(sum(map(is_removed, sales)))
    assert removed == [1, 2, 3]


@pytest.mark.parametrize("days", [1, 30])
def test_ledger_stays_for_the_days_of_the_setting(settings: Any, days: int) -> None:
    settings.SECKILL_LEDGER_DAYS = days
    sale = make_sale()
    end_long_ago(sale, over=dt.timedelta(days=days) - HOUR)
    assert not remove_ledgers(now=timezone.now())
    end_long_ago(sale, over=dt.timedelta(days=days))
    assert remove_ledgers(now=timezone.now())


def make_pending_entry(sale: SeckillVoucher, ledger: Redis) -> None:
    ledger.zadd(LedgerKeys(sale.pk).pending, {f"{id_minted(seconds_ago=9)}:7:1": 1})


def set_entry_aside(sale: SeckillVoucher, ledger: Redis) -> None:
    ledger.zadd(LedgerKeys(sale.pk).pending, {f"{id_minted(seconds_ago=9)}:7:1": 10**14 + 1})


def make_buyer_wait(sale: SeckillVoucher, ledger: Redis) -> None:
    ledger.zadd(LedgerKeys(sale.pk).waiting, {f"{id_minted(seconds_ago=9)}:7": 1})


def make_row_wait(sale: SeckillVoucher, _: Redis) -> None:
    make_waiting(sale, make_buyers(1)[0], order_id=id_minted(seconds_ago=9))


def leave_unpaid(sale: SeckillVoucher, _: Redis) -> None:
    VoucherOrder.objects.filter(pk=live_ids(sale)[0]).update(status=OrderStatus.UNPAID)


def leave_count(sale: SeckillVoucher, ledger: Redis) -> None:
    ledger.hset(LedgerKeys(sale.pk).tally, "1700000000:accepted", 1)


def leave_visit(sale: SeckillVoucher, ledger: Redis) -> None:
    ledger.hset(LedgerKeys(sale.pk).visits, "7", "1:1:1:0")


def leave_entry(sale: SeckillVoucher, ledger: Redis) -> None:
    ledger.zadd(LedgerKeys(sale.pk).fresh, {"1:7:1:E": 1})


def lose_buyer(sale: SeckillVoucher, ledger: Redis) -> None:
    fields = ledger.hkeys(LedgerKeys(sale.pk).buyers)
    ledger.hdel(LedgerKeys(sale.pk).buyers, next(it for it in fields if it != "state"))


def swap_buyer(sale: SeckillVoucher, ledger: Redis) -> None:
    lose_buyer(sale, ledger)
    ledger.hset(LedgerKeys(sale.pk).buyers, "7:1", str(id_minted(seconds_ago=9)))


def mistype(sale: SeckillVoucher, ledger: Redis) -> None:
    ledger.delete(LedgerKeys(sale.pk).pending)
    ledger.set(LedgerKeys(sale.pk).pending, "oops")


IN_REDIS = [
    make_pending_entry,
    set_entry_aside,
    make_buyer_wait,
    leave_count,
    leave_visit,
    leave_entry,
    lose_buyer,
    mistype,
]
KEPT_BY = [*IN_REDIS, swap_buyer, make_row_wait, leave_unpaid]


@pytest.mark.parametrize("spoil", slow_after(2, KEPT_BY), ids=lambda it: it.__name__)
def test_ledger_stays_while_something_needs_it(
    ledger: Redis, spoil: Callable[[SeckillVoucher, Redis], None]
) -> None:
    sale, other = sale_long_over(), sale_long_over([])
    epoch = sale.epoch
    spoil(sale, ledger)
    kept = set(keys_of(sale))
    while remove_ledgers(now=timezone.now()):
        pass
    assert (is_removed(sale), is_removed(other)) == (False, True)
    assert (set(keys_of(sale)), sale.epoch) == (kept, epoch)


@pytest.mark.parametrize("spoil", slow_after(2, IN_REDIS), ids=lambda it: it.__name__)
def test_script_removes_nothing_that_is_needed(
    ledger: Redis, spoil: Callable[[SeckillVoucher, Redis], None]
) -> None:
    """Whatever came since the comparison."""
    sale = sale_long_over()
    sale.epoch += 1
    spoil(sale, ledger)
    kept = set(keys_of(sale))
    assert remove_ledger(sale=sale, live=2)
    assert set(keys_of(sale)) == kept
    sale.epoch -= 1
    assert remove_ledger(sale=sale, live=None)  # and no ledger that was built since


def test_draw_that_is_not_finished_keeps_its_ledger() -> None:
    sale = make_sale(mode=SaleMode.DRAW)
    draws = Draw.objects.filter(pk=Draw.of(sale).pk)
    end_long_ago(sale)
    assert not remove_ledgers(now=timezone.now())
    draws.update(finished_at=timezone.now())
    assert remove_ledgers(now=timezone.now())


def test_lost_ledger_is_noted_as_removed(ledger: Redis) -> None:
    sale = sale_long_over()
    ledger.delete(*keys_of(sale))
    assert remove_ledgers(now=timezone.now())
    assert is_removed(sale)


# --- What answers from the row --------------------------------------------------------------------


@pytest.fixture
def buyers() -> list[User]:
    return make_buyers(2)


@pytest.fixture
def removed(buyers: list[User]) -> SeckillVoucher:
    sale = sale_long_over(buyers[:1])
    assert remove_ledgers(now=timezone.now())
    sale.refresh_from_db()
    return sale


def test_row_answers_for_a_removed_ledger(removed: SeckillVoucher, buyers: list[User]) -> None:
    found = snapshot_or_load(sale_id=removed.pk)
    assert (found.state, found.terms.total, found.remaining) == ("ended", 10, 9)
    comparison = reconcile(sale_id=removed.pk, repair=True)
    assert (comparison.remaining, comparison.difference, comparison.live_orders) == (None, 0, 1)
    assert sweep(now=timezone.now(), long_over=True, at_once=True) == []
    order_id = live_ids(removed)[0]
    receipt = find_receipt(sale_id=removed.pk, order_id=order_id, user_id=buyers[0].pk)
    assert receipt.status == OrderStatus.PAID
    with pytest.raises(NoReceipt):
        find_receipt(
            sale_id=removed.pk,
            order_id=id_minted(seconds_ago=9),
            user_id=buyers[0].pk,
            has_token=True,
        )
    fulfil_sale(sale_id=removed.pk)  # a late message
    assert keys_of(removed) == []


def test_reconcile_counts_the_rows_of_a_removed_ledger(removed: SeckillVoucher) -> None:
    SeckillVoucher.objects.update(sold=3)
    assert reconcile(sale_id=removed.pk).difference == 2
    assert reconcile(sale_id=removed.pk, repair=True).sold == 1


def test_ledger_that_leaves_amid_a_repair_stays_away(ledger: Redis) -> None:
    sale = sale_long_over()
    ledger.delete(*keys_of(sale))

    def leave() -> None:
        remove_ledgers(now=timezone.now())

    with at_point("reconcile.compared", leave):
        assert reconcile(sale_id=sale.pk, repair=True).remaining is None
    assert is_removed(sale)


def ordered(token: PurchaseToken) -> int:
    return place_order(token, finish=finish_order).order_id


@pytest.mark.slow
def test_late_token_gets_the_answer_that_it_would_get_anyway(
    removed: SeckillVoucher, buyers: list[User]
) -> None:
    known, other = live_ids(removed)[0], token_for(removed, buyers[1])
    token = token_for(removed, buyers[0])
    assert ordered(token._replace(order_id=known)) == known
    for late in (token, other):
        with pytest.raises(SaleEnded):
            ordered(late)
    assert keys_of(removed) == []


def test_refund_after_the_removal_needs_no_ledger(removed: SeckillVoucher) -> None:
    refund_order(order_id=live_ids(removed)[0], by=SYSTEM, now=timezone.now())
    assert is_removed(removed)
    assert (removed.sold, snapshot_or_load(sale_id=removed.pk).remaining) == (0, 10)
    # What ended is kept for an hour and what changed for a minute, as for any sale.
    keys = LedgerKeys(removed.pk)
    assert set(keys_of(removed)) <= {keys.ended, keys.changing}


# --- What brings it back --------------------------------------------------------------------------


def edited(sale: SeckillVoucher, **changes: Any) -> None:
    edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), **changes))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("changes", "is_back"),
    slow_after(
        2,
        [
            ({"stock": 12}, True),
            ({"ends_at": timezone.now() + HOUR}, True),
            ({"paused": True}, False),
        ],
    ),
    ids=["stock", "end", "pause"],
)
def test_change_of_end_or_stock_brings_it_back(
    removed: SeckillVoucher, changes: dict[str, Any], is_back: bool
) -> None:
    edited(removed, **changes)
    assert is_removed(removed) is not is_back
    if is_back:
        assert snapshot(sale_id=removed.pk).taken == 1
        assert not remove_ledgers(now=timezone.now())  # it stays for another week
    else:
        assert keys_of(removed) == []


def test_staff_bring_it_back_and_nobody_else(removed: SeckillVoucher) -> None:
    with pytest.raises(LedgerRemoved):
        load_sale(sale_id=removed.pk)
    load_sale(sale_id=removed.pk, bring_back=True)
    assert snapshot(sale_id=removed.pk).taken == 1
    assert not is_removed(removed)
    assert not remove_ledgers(now=timezone.now())
    assert remove_ledgers(now=timezone.now() + DAYS)


@pytest.mark.slow
def test_retry_brings_it_back(removed: SeckillVoucher, buyers: list[User]) -> None:
    failed = RefusalReason.FAILED
    order = make_order(removed, buyers[1], status=OrderStatus.REFUSED, reason=failed)
    retry_order(order_id=order.pk, now=timezone.now())
    assert not is_removed(removed)
    assert snapshot(sale_id=removed.pk).taken == 2


# --- An old Redis ---------------------------------------------------------------------------------


def backed_up(sale: SeckillVoucher, ledger: Redis) -> list[str]:
    """Copy the keys of a sale, as a backup of Redis has them; return their names."""
    keys = keys_of(sale)
    for key in keys:
        ledger.copy(key, f"{BACKUP}{key}")
    return keys


def restored(keys: list[str], ledger: Redis) -> None:
    """Let Redis be one that was restarted with this older data."""
    for key in keys:
        ledger.copy(f"{BACKUP}{key}", key, replace=True)
    ledger.set(LOOKED_ON, "another run")


@pytest.mark.slow
@pytest.mark.parametrize("is_guarded", [True, False], ids=["guard", "control"])
def test_removed_ledger_that_comes_back_is_removed_again(
    ledger: Redis, monkeypatch: pytest.MonkeyPatch, is_guarded: bool
) -> None:
    sale = sale_long_over()
    backup = backed_up(sale, ledger)
    assert remove_ledgers(now=timezone.now())
    restored(backup, ledger)
    assert keys_of(sale)
    if not is_guarded:
        monkeypatch.setattr("vouchers.inventory.restart_watch.remove_again", lambda **_: False)
    while rebuild_after_restart(now=timezone.now()):
        pass
    assert is_removed(sale)
    assert bool(keys_of(sale)) is not is_guarded


@pytest.mark.slow
def test_pending_entry_that_comes_back_becomes_a_row(ledger: Redis) -> None:
    buyers = make_buyers(2)
    sale = make_sale()
    written_orders(sale, buyers[:1])
    [late] = reserved(sale, buyers[1:])
    VoucherOrder.objects.update(status=OrderStatus.PAID)
    end_long_ago(sale)
    backup = backed_up(sale, ledger)
    ledger.delete(*keys_of(sale))  # it is lost, as is the order that was accepted last
    assert remove_ledgers(now=timezone.now())
    restored(backup, ledger)
    while remove_again(run_id="this run"):
        pass
    assert not is_removed(sale)
    fulfil_sale(sale_id=sale.pk)
    assert late.order_id in live_ids(sale)


# --- Races ----------------------------------------------------------------------------------------

GUARDS = pytest.mark.parametrize("is_guarded", [True, False], ids=["guard", "control"])


@GUARDS
def test_refund_whose_release_is_on_its_way_keeps_the_ledger(
    monkeypatch: pytest.MonkeyPatch, is_guarded: bool
) -> None:
    sale = sale_long_over()
    if not is_guarded:  # the ledger is not compared with the rows
        monkeypatch.setattr(removal, "BY_IDS_UP_TO", -1)
        monkeypatch.setattr(removal, "remove_ledger", remove_unseen)
    with at_point("end.committed", lambda: remove_ledgers(now=timezone.now())):
        refund_order(order_id=live_ids(sale)[0], by=SYSTEM, now=timezone.now())
    assert is_removed(sale) is not is_guarded
    if is_guarded:
        assert remove_ledgers(now=timezone.now())
    # Without the guard, what the refund wrote is left behind for a ledger that is gone.
    assert bool(keys_of(sale)) is not is_guarded


def remove_unseen(*, sale: SeckillVoucher, **_: object) -> str:
    return remove_ledger(sale=sale, live=None)


@GUARDS
@pytest.mark.django_db(transaction=True)
def test_edit_of_the_end_comes_before_the_removal(
    monkeypatch: pytest.MonkeyPatch, is_guarded: bool
) -> None:
    sale = sale_long_over()
    if not is_guarded:  # the row is not looked at again once it is held
        monkeypatch.setattr(removal, "_is_over", lambda *_: True)
    with at_point("remove.compared", lambda: edited(sale, ends_at=timezone.now() + HOUR)):
        remove_ledgers(now=timezone.now())
    assert is_removed(sale) is not is_guarded
    token = token_for(sale, make_buyers(1)[0])
    if is_guarded:
        assert ordered(token) == token.order_id
    else:  # a sale that is on refuses everybody
        with pytest.raises(SaleEnded):
            ordered(token)


@GUARDS
@race
def test_order_with_a_late_token_never_loads_a_ledger_that_is_being_removed(
    monkeypatch: pytest.MonkeyPatch, is_guarded: bool
) -> None:
    buyers = make_buyers(1)
    sale = sale_long_over(buyers)
    token = token_for(sale, buyers[0])._replace(order_id=live_ids(sale)[0])
    is_loading, answers = threading.Event(), list[Any]()
    copy_terms = rebuild._copy_terms

    def wait_for_the_row(**kwargs: Any) -> bool:
        is_loading.set()
        return copy_terms(**kwargs)

    def lock_and_forget(**kwargs: Any) -> SeckillVoucher:
        locked = lock_seckill_voucher(**kwargs)
        locked.ledger_removed_at = None
        return locked

    monkeypatch.setattr(rebuild, "_copy_terms", wait_for_the_row)
    if not is_guarded:  # who holds the row does not see that the ledger was removed
        monkeypatch.setattr(rebuild, "lock_seckill_voucher", lock_and_forget)
    late = threading.Thread(target=lambda: answers.extend(at_once(lambda: ordered(token))))

    def order_now() -> None:
        late.start()
        assert is_loading.wait(60)

    with at_point("remove.unlinked", order_now):
        assert remove_ledgers(now=timezone.now())
    late.join()
    assert answers == [token.order_id]
    assert is_removed(sale)
    assert bool(keys_of(sale)) is not is_guarded


@GUARDS
@pytest.mark.django_db(transaction=True)
def test_worker_from_before_the_removal_is_refused(
    ledger: Redis, monkeypatch: pytest.MonkeyPatch, is_guarded: bool
) -> None:
    """It has read an entry that Redis has lost since."""
    sale = sale_long_over()
    [entry] = late_entries(sale)

    def lose_entry_and_remove() -> None:
        ledger.zrem(LedgerKeys(sale.pk).pending, entry)
        ledger.hdel(LedgerKeys(sale.pk).buyers, entry.partition(":")[2])
        assert remove_ledgers(now=timezone.now())

    if not is_guarded:

        def raise_epoch_alone(locked: SeckillVoucher) -> int:
            locked.epoch += 1
            return locked.epoch

        monkeypatch.setattr(removal, "raise_epoch", raise_epoch_alone)
    with at_point("fulfill.begun", lose_entry_and_remove):
        fulfil_sale(sale_id=sale.pk)
    assert is_removed(sale)
    is_written = VoucherOrder.objects.filter(pk=int(entry.partition(":")[0])).exists()
    assert is_written is not is_guarded


def late_entries(sale: SeckillVoucher) -> list[str]:
    """Make an entry pending in a sale that is over, as one that was set aside for long."""
    member = f"{id_minted(seconds_ago=60)}:{make_buyers(1)[0].pk}:1"
    order_id, _, field = member.partition(":")
    client, keys = ledger_connection(), LedgerKeys(sale.pk)
    client.hset(keys.buyers, field, order_id)
    client.zadd(keys.pending, {member: 1})
    return [member]
