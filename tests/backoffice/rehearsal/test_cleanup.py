"""Clearing up after a rehearsal: every trace goes, nothing else does, and nothing comes back."""

from __future__ import annotations

import datetime as dt

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.core import mail
from django.db.models import Model
from django.test import Client
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer
from redis import Redis

from backoffice.rehearsal.buyers import buyers_of, username_of
from backoffice.rehearsal.cleanup import WORKER_WAIT, clear_shadow
from locks import RedisLock
from orders import tasks
from orders.fulfilment.batch import StaleFence, write_batch
from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle.waiting_list import join
from orders.models import Payment, Rehearsal, RehearsalPhase, SandboxTrade, VoucherOrder
from orders.payments.service import start_payment
from orders.placing.tokens import issue_tokens
from seckill_site.failpoints import FailpointReached, armed
from tests.support.inspection import live_ids, pending_ids
from tests.support.orders import make_buyer, make_order, make_sale, pending, token_for
from tests.support.payments import ADDRESSES
from tests.support.rehearsals import (
    begun,
    everything_there,
    finish,
    shadow_id_of,
    shadow_of,
    steps_until,
)
from tests.support.tiers import slow_after
from vouchers.inventory import request_stats
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.rebuild import FENCE_BITS
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SaleStage, SeckillVoucher

pytestmark = pytest.mark.django_db(transaction=True)

SOON = dt.timedelta(seconds=3)


@pytest.fixture
def bought(live_server: LiveServer) -> Rehearsal:
    """A rehearsal whose crowd is done, with five orders not written yet."""
    return steps_until(begun(make_sale(), live_server.url), RehearsalPhase.DRAINING)


def clear(shadow: SeckillVoucher, *, later: dt.timedelta = SOON) -> bool:
    return clear_shadow(shadow_id=shadow.pk, now=timezone.now() + later)


def closed(rehearsal: Rehearsal) -> SeckillVoucher:
    """Return the shadow after the first step of the clearing."""
    shadow = shadow_of(rehearsal)
    assert not clear(shadow, later=dt.timedelta())
    return shadow


# --- Removed --------------------------------------------------------------------------------------


def test_clearing_removes_every_trace_of_a_sale(bought: Rehearsal, ledger: Redis) -> None:
    shadow = shadow_of(bought)
    fulfil_sale(sale_id=shadow.pk)
    first = VoucherOrder.objects.filter(seckill_voucher=shadow).earliest("pk")
    start_payment(order_id=first.pk, **ADDRESSES, now=timezone.now())
    loser = buyers_of(shadow_id=shadow.pk).exclude(voucher_orders__isnull=False)[0]
    waits = token_for(shadow, loser)
    join(
        token_text=waits.sign(),
        sale_id=shadow.pk,
        user_id=loser.pk,
        now_ms=int(timezone.now().timestamp() * 1000),
    )
    for row in (shadow, shadow.voucher, first):
        note(row)
    keys = LedgerKeys(shadow.pk)
    ledger.set(keys.trying, "1 2")
    ledger.hset(keys.tries, "1", 3)
    ledger.hset(keys.swept, "oldest", "x")
    ledger.hset(keys.side("buyers", "abc"), "1:1", "2")
    ledger.set(keys.loading, "1")
    assert snapshot(sale_id=shadow.pk).waiting == 1
    assert Payment.objects.count() == SandboxTrade.objects.count() == 1
    kept = note(bought.seckill_voucher)

    finish(bought)

    tables, left = everything_there()
    assert {name for name in left if f"{{{shadow.pk}}}" in name} == set()
    for name in ("orders.Payment", "orders.SandboxTrade", "orders.WaitingEntry"):
        assert tables[name] == 0
    assert list(LogEntry.objects.all()) == [kept]


def note(row: Model) -> LogEntry:
    """Record a change of a row in the admin's log."""
    return LogEntry.objects.create(
        user=User.objects.get_or_create(username="boss")[0],
        content_type=ContentType.objects.get_for_model(row),
        object_id=str(row.pk),
        object_repr=str(row)[:200],
        action_flag=CHANGE,
    )


def test_clearing_removes_late_request_counts(bought: Rehearsal, ledger: Redis) -> None:
    shadow = closed(bought)
    fulfil_sale(sale_id=shadow.pk)
    ledger.delete(LedgerKeys(shadow.pk).kick)
    assert not clear(shadow, later=dt.timedelta(seconds=1)), "a process may still count"
    request_stats.count_request(sale_id=shadow.pk, answer="ended")
    request_stats.flush_request_counts()
    assert ledger.exists(LedgerKeys(shadow.pk).tally)
    assert clear(shadow)
    assert not ledger.exists(LedgerKeys(shadow.pk).tally)


def test_clearing_removes_many_buyers_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    shadow = make_sale(stage=SaleStage.REHEARSAL)
    names = [username_of(shadow_id=shadow.pk, number=number) for number in range(7)]
    User.objects.bulk_create([User(username=name) for name in names])
    other = User.objects.create(username=username_of(shadow_id=shadow.pk * 10, number=1))
    monkeypatch.setattr("backoffice.rehearsal.cleanup.BUYERS_AT_ONCE", 3)
    monkeypatch.setattr("backoffice.rehearsal.cleanup.ORDERS_AT_ONCE", 2)
    monkeypatch.setattr("backoffice.rehearsal.cleanup.REMOVING_S", 60)
    for buyer in buyers_of(shadow_id=shadow.pk):
        make_order(shadow, buyer)
    assert not clear(shadow, later=dt.timedelta())
    assert clear(shadow)
    assert list(User.objects.all()) == [other]


# --- Kept -----------------------------------------------------------------------------------------


def test_clearing_never_touches_a_real_sale(ledger: Redis) -> None:
    sale = make_sale()
    make_order(sale, make_buyer())
    User.objects.create(username=username_of(shadow_id=sale.pk, number=0))
    before = everything_there()
    assert clear(sale, later=dt.timedelta(days=1))
    assert everything_there() == before


# --- Other processes ------------------------------------------------------------------------------


def test_clearing_waits_for_pending_up_to_a_limit(bought: Rehearsal) -> None:
    shadow = closed(bought)
    assert len(pending_ids(shadow)) == 5
    assert not clear(shadow, later=WORKER_WAIT - dt.timedelta(seconds=1))
    assert len(pending_ids(shadow)) == 5
    assert clear(shadow, later=WORKER_WAIT + SOON)


def test_clearing_waits_for_a_queued_task(bought: Rehearsal, ledger: Redis) -> None:
    shadow = closed(bought)
    fulfil_sale(sale_id=shadow.pk)
    ledger.set(LedgerKeys(shadow.pk).kick, "1", px=60_000)
    assert not clear(shadow)
    assert len(live_ids(shadow)) == 5
    ledger.delete(LedgerKeys(shadow.pk).kick)
    assert clear(shadow)


def test_clearing_waits_for_a_writing_worker(
    bought: Rehearsal, ledger: Redis, monkeypatch: pytest.MonkeyPatch, elsewhere
) -> None:
    monkeypatch.setattr("backoffice.rehearsal.cleanup.LOCK_MS", 50)
    shadow = closed(bought)
    lock = RedisLock(ledger, LedgerKeys(shadow.pk).sale_lock, lease_ms=60_000)
    elsewhere(lock.acquire)
    assert not clear(shadow, later=WORKER_WAIT + SOON)
    assert len(pending_ids(shadow)) == 5
    elsewhere(lock.release)
    assert clear(shadow, later=WORKER_WAIT + SOON)


def test_paused_worker_writes_nothing_after_clearing(bought: Rehearsal, ledger: Redis) -> None:
    shadow = closed(bought)
    entries, keys = pending(shadow), LedgerKeys(shadow.pk)
    floor = shadow.epoch << FENCE_BITS
    with RedisLock(ledger, keys.sale_lock, fence_key=keys.fence, fence_floor=floor) as lock:
        token = lock.fencing_token
        assert token is not None
    with armed("clear.orders_deleted=raise"), pytest.raises(FailpointReached):
        clear(shadow, later=WORKER_WAIT + SOON)
    with pytest.raises(StaleFence):
        write_batch(
            sale_id=shadow.pk,
            entries=entries,
            fencing_token=token,
            number=1,
            lost=lambda: False,
        )
    assert not VoucherOrder.objects.exists()


@pytest.mark.parametrize(
    "after", slow_after(1, ["closed", "orders_deleted", "buyers_deleted", "shadow_deleted"])
)
def test_beat_and_late_messages_restore_nothing(
    bought: Rehearsal, after: str, client: Client
) -> None:
    """Run every periodic task between the steps of clearing."""
    shadow = shadow_of(bought)
    token = issue_tokens(sale=shadow, user_ids=[buyers_of(shadow_id=shadow.pk)[0].pk])[0].sign()
    fulfil_sale(sale_id=shadow.pk)
    before = SeckillVoucher.objects.exclude(pk=shadow.pk).count()
    with armed(f"clear.{after}=raise"), pytest.raises(FailpointReached):
        finish(bought)

    assert not fulfil_sale(sale_id=shadow.pk)
    answer = client.post(f"/vouchers/{shadow.pk}/orders/", {"token": token, "attempt": 1})
    assert answer.status_code in (404, 409)
    for task in (
        tasks.sweep, tasks.sweep_long_over, tasks.watch_ledger, tasks.reconcile, tasks.expire,
        tasks.restore_lines, tasks.tell_buyers, tasks.send_notices, tasks.store_tallies,
    ):  # fmt: skip
        task()

    rehearsal = finish(Rehearsal.objects.get(pk=bought.pk))
    assert rehearsal.phase == RehearsalPhase.DONE
    tables, keys = everything_there()
    assert tables["orders.VoucherOrder"] == tables["orders.OrderEvent"] == 0
    assert tables["auth.User"] == 0
    assert tables["vouchers.SeckillVoucher"] == before
    assert not [key for key in keys if f"{{{shadow.pk}}}" in key]


def test_rehearsal_sends_no_mail(bought: Rehearsal) -> None:
    fulfil_sale(sale_id=shadow_id_of(bought))
    tasks.tell_buyers()
    finish(bought)
    assert mail.outbox == []
