"""Bulk jobs change each order once, whichever worker dies and however many there are."""

from __future__ import annotations

import datetime as dt
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation
from redis import Redis

from backoffice import bulk_jobs, tasks
from backoffice.bulk_jobs import (
    FAILED,
    NO_SUCH_ORDER,
    STEP_ORDERS,
    refusal_text,
    start_job,
    take_turn,
)
from backoffice.job_engine import LEASE, RETRY_S, Superseded, Turn, record_step, resume
from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.transitions import Actor
from orders.models import OrderEvent, OrderJob, OrderStatus, Payment, VoucherOrder
from orders.payments.refunds import finish_refunds
from seckill_site.failpoints import FailpointReached, armed
from tests.fixtures.site import RedisGone
from tests.support.inspection import (
    assert_conserved,
    broker_length,
    live_ids,
    rows,
)
from tests.support.orders import at_once, make_buyer, make_buyers, make_order, make_sale
from tests.support.payments import (
    FakeProvider,
    history,
    make_payment,
    make_unpaid_order,
    make_unpaid_purchase,
    notify_of_fake,
    pay,
)
from vouchers.inventory.keys import LedgerKeys
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

CANCEL, REFUND = OrderJob.Kind.CANCEL, OrderJob.Kind.REFUND


def boss(name: str = "boss") -> User:
    return User.objects.get_or_create(username=name, is_staff=True)[0]


def job_of(ids: list[int], kind: OrderJob.Kind = CANCEL, *, by: str = "boss") -> OrderJob:
    return start_job(kind=kind, order_ids=ids, by=Actor.staff(boss(by).pk), why="sold by mistake")


def won_by(sale: SeckillVoucher, count: int) -> list[int]:
    """Make this many buyers win an unpaid order each; return the ids."""
    make_unpaid_order(sale, make_buyers(count))
    return live_ids(sale)


def step(job: OrderJob) -> Turn | None:
    return take_turn(job_id=job.pk, now=timezone.now())


def finish(job: OrderJob) -> OrderJob:
    """Work until no further task would be published."""
    while step(job):
        pass
    job.refresh_from_db()
    return job


def states(job: OrderJob) -> tuple[str, int, int, dict[str, str]]:
    return job.status, job.done, len(job.order_ids), job.refusals


def resumed(*, later: dt.timedelta = LEASE + dt.timedelta(seconds=1)) -> list[int]:
    """Run beat's task after the lease has expired; return the resumed jobs."""
    return [turn.job_id for turn in resume(OrderJob.objects.all(), now=timezone.now() + later)]


def cancellations(order_ids: list[int]) -> list[tuple[int, str, str]]:
    found = OrderEvent.objects.filter(order__in=order_ids, after="cancelled")
    return list(found.order_by("order").values_list("order", "actor__username", "reason"))


# --- What a job does -----------------------------------------------------------------------------


def test_job_cancels_orders_with_author_and_reason() -> None:
    sale = make_sale(stock=10)
    ids = won_by(sale, 5)
    job = finish(job_of(ids[:3]))
    assert states(job) == ("done", 3, 0, {})
    assert live_ids(sale) == ids[3:]
    assert cancellations(ids) == [(it, "boss", "sold by mistake") for it in ids[:3]]
    assert_conserved(sale)


def test_job_refunds_orders() -> None:
    sale = make_sale(stock=3, refundable=False)
    orders = [make_unpaid_order(sale) for _ in range(3)]
    payments = [pay(order) for order in orders]
    job = finish(job_of([order.pk for order in orders], REFUND))
    assert states(job) == ("done", 3, 0, {})
    assert set(Payment.objects.values_list("status", flat=True)) == {"refunded"}
    assert len(payments) == 3
    assert history(orders[0])[-2:] == ["refunding by staff", "refunded by system"]
    assert_conserved(sale)


def test_orders_in_other_states_are_listed_as_refused() -> None:
    sale = make_sale(stock=20, loaded=False)
    by_state = {
        status: make_order(sale, buyer, status=status, reason=reason).pk
        for buyer, status, reason in zip(
            make_buyers(8), OrderStatus, [""] * 7 + ["sold_out"], strict=True
        )
        if status != OrderStatus.UNPAID
    }
    before = rows()
    job = finish(job_of([*by_state.values(), 404]))
    assert job.refusals == {
        "404": NO_SUCH_ORDER,
        **{str(pk): str(status) for status, pk in by_state.items()},
    }
    assert (job.status, job.done) == ("done", 8)
    assert rows() == before


def test_order_cancelled_by_its_buyer_counts_as_refused() -> None:
    sale = make_sale()
    early, mine, late = won_by(sale, 3)
    cancel_order(order_id=early, by=Actor.buyer(make_buyer().pk), now=timezone.now())
    job = job_of([early, mine, late])
    cancel_order(
        order_id=late,
        by=Actor.staff(boss("colleague").pk),
        why="sold by mistake",
        now=timezone.now(),
    )
    finish(job)
    assert job.refusals == {str(early): "cancelled", str(late): "cancelled"}
    assert cancellations([mine]) == [(mine, "boss", "sold by mistake")]


def test_order_selected_twice_is_changed_once() -> None:
    sale = make_sale()
    (order_id,) = won_by(sale, 1)
    job = finish(job_of([order_id, order_id]))
    assert (job.total, *states(job)) == (1, "done", 1, 0, {})


def test_job_without_orders_is_done() -> None:
    job = job_of([])
    assert job.status == "done"
    assert step(job) is None


def test_missing_or_finished_job_is_no_work() -> None:
    job = finish(job_of(won_by(make_sale(), 1)))
    before = rows()
    assert take_turn(job_id=404, now=timezone.now()) is None
    assert step(job) is None
    assert rows() == before


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        ("used", "it is used"),
        (NO_SUCH_ORDER, "the order does not exist"),
        (FAILED, "it could not be changed; the worker's log has the reason"),
    ],
)
def test_refusal_text(refusal: str, words: str) -> None:
    with translation.override("en"):
        assert refusal_text(refusal) == words


def test_step_over_ten_thousand_ids_uses_few_queries() -> None:
    job = job_of([10**18 + number for number in range(10_000)])
    with CaptureQueriesContext(connection) as queries:
        assert step(job)
    job.refresh_from_db()
    assert (job.done, len(job.refusals)) == (STEP_ORDERS, STEP_ORDERS)
    assert job.order_ids[0] == 10**18 + STEP_ORDERS
    # One query for each order, one to read the job and one to record the step.
    assert len(queries) <= 2 * STEP_ORDERS + 6


# --- Crashes and concurrent workers --------------------------------------------------------------


@pytest.mark.slow
def test_second_worker_finishes_job_of_dead_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    sale = make_sale(stock=60)
    ids = won_by(sale, 50)
    job = job_of(ids)
    monkeypatch.setattr(bulk_jobs, "STEP_ORDERS", 20)
    step(job)
    with armed("job.changed=raise"), pytest.raises(FailpointReached):
        step(job)
    job.refresh_from_db()
    assert states(job) == ("running", 20, 30, {})
    assert len(live_ids(sale)) == 10, "twenty were changed and not recorded"

    assert resumed() == [job.pk]
    finish(job)

    assert states(job) == ("done", 50, 0, {})
    assert cancellations(ids) == [(it, "boss", "sold by mistake") for it in ids]
    assert_conserved(sale)


def test_resumed_refunds_pay_nobody_twice(fake: FakeProvider) -> None:
    sale = make_sale()
    orders = [make_unpaid_order(sale) for _ in range(3)]
    for order in orders:
        notify_of_fake(make_payment(order))
    job = job_of([order.pk for order in orders], REFUND)
    with armed("job.changed=raise"), pytest.raises(FailpointReached):
        step(job)
    finish(job)
    assert states(job) == ("done", 3, 0, {})
    assert len(fake.refunds) == len(set(fake.refunds)) == 3
    assert_conserved(sale)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("row_locks")
def test_two_workers_change_each_order_once() -> None:
    for _ in range(3):
        sale = make_sale(stock=60)
        ids = won_by(sale, 60)
        job = job_of(ids)
        outcomes = at_once(*[partial(step, job)] * 2)
        assert not [it for it in outcomes if isinstance(it, Exception)]
        finish(job)
        assert states(job) == ("done", 60, 0, {})
        assert cancellations(ids) == [(it, "boss", "sold by mistake") for it in ids]
        assert_conserved(sale)


def test_slower_worker_records_nothing_after_a_faster_one() -> None:
    first, second = won_by(make_sale(), 2)
    job = job_of([first, 404, second])
    finish(OrderJob.objects.get(pk=job.pk))
    with pytest.raises(Superseded):
        record_step(job, now=timezone.now(), refusals={str(first): "cancelled"})
    job.refresh_from_db()
    assert states(job) == ("done", 3, 0, {"404": NO_SUCH_ORDER})


def test_only_abandoned_jobs_are_resumed() -> None:
    sale = make_sale()
    first, second = won_by(sale, 2)
    done, running = finish(job_of([first])), job_of([second])
    assert resumed(later=dt.timedelta()) == []
    assert resumed() == [running.pk]
    assert resumed() == [], "sent once, and then not again at once"
    assert OrderJob.objects.get(pk=done.pk).changed_at == done.changed_at


def test_task_publishes_the_next_step_until_the_job_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bulk_jobs, "STEP_ORDERS", 2)
    job = job_of(won_by(make_sale(), 3))
    for done, published in [(2, 1), (3, 1)]:
        tasks.work_at_job(job_id=job.pk)
        job.refresh_from_db()
        assert (job.done, broker_length()) == (done, published)
    assert job.status == "done"


def test_slow_provider_does_not_keep_a_job_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(won_by(make_sale(), 3))
    monkeypatch.setattr(bulk_jobs, "STEP_S", -1.0)  # each order takes longer than this
    assert step(job)
    job.refresh_from_db()
    assert job.done == 1


# --- Outages -------------------------------------------------------------------------------------


def test_job_waits_for_redis(redis_gone: RedisGone) -> None:
    sale = make_sale()
    ids = won_by(sale, 3)
    job = job_of(ids)
    with redis_gone():
        before = rows()
        assert step(job) == Turn(job.pk, 1, RETRY_S)
        assert rows() == before
    job.refresh_from_db()
    assert states(job) == ("running", 0, 3, {})
    assert resumed() == [job.pk]
    finish(job)
    assert states(job) == ("done", 3, 0, {})
    assert_conserved(sale)


def test_redis_lost_midway_loses_no_recorded_change(
    redis_gone: RedisGone, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = make_sale()
    ids = won_by(sale, 4)
    job = job_of(ids)
    end = bulk_jobs.end_order
    with ExitStack() as lost, monkeypatch.context() as patch:

        def until_the_third(*, order_id: int, **options: Any) -> None:
            if order_id == ids[2]:
                lost.enter_context(redis_gone())
            end(order_id=order_id, **options)

        patch.setattr(bulk_jobs, "end_order", until_the_third)
        assert step(job) == Turn(job.pk, 1, RETRY_S)
    job.refresh_from_db()
    assert states(job) == ("running", 2, 2, {})
    finish(job)
    assert states(job) == ("done", 4, 0, {})
    assert_conserved(sale)


def test_lock_timeout_makes_the_job_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(**kwargs: Any) -> None:
        raise OperationalError(1205, "Lock wait timeout exceeded")

    job = job_of(won_by(make_sale(), 2))
    with monkeypatch.context() as patch:
        patch.setattr(bulk_jobs, "end_order", locked)
        assert step(job) == Turn(job.pk, 1, RETRY_S)
    assert states(finish(job)) == ("done", 2, 0, {})


def test_busy_order_goes_to_the_end(ledger: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orders.lifecycle.cancellation.USER_LOCK_WAIT_MS", 50)
    sale = make_sale()
    ids = won_by(sale, 3)
    buyer = VoucherOrder.objects.get(pk=ids[0]).user_id
    assert buyer
    key = LedgerKeys(sale.pk).user_lock(buyer)
    ledger.set(key, "a worker", px=60_000)
    job = job_of(ids)
    assert step(job)
    assert step(job) == Turn(job.pk, 2, RETRY_S), "it waits when only busy orders are left"
    job.refresh_from_db()
    assert (job.done, job.order_ids, job.refusals) == (2, [ids[0]], {})
    ledger.delete(key)
    assert states(finish(job)) == ("done", 3, 0, {})
    assert_conserved(sale)


def test_broken_order_does_not_stop_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    end = bulk_jobs.end_order
    sale = make_sale()
    ids = won_by(sale, 3)

    def poisoned(*, order_id: int, **options: Any) -> None:
        if order_id == ids[1]:
            raise ZeroDivisionError
        end(order_id=order_id, **options)

    monkeypatch.setattr(bulk_jobs, "end_order", poisoned)
    assert states(finish(job_of(ids))) == ("done", 3, 0, {str(ids[1]): FAILED})
    assert live_ids(sale) == [ids[1]]


def test_refund_that_failed_after_its_start_counts_as_changed(fake: FakeProvider) -> None:
    """The order is being refunded even if the provider could not be reached."""
    sale = make_sale()
    order = make_unpaid_order(sale)
    notify_of_fake(make_payment(order))
    charges = dict(fake.charges)
    fake.charges.clear()  # an unknown charge: a KeyError, which no provider should raise
    assert states(finish(job_of([order.pk], REFUND))) == ("done", 1, 0, {})
    fake.charges = charges
    finish_refunds(now=timezone.now() + dt.timedelta(minutes=1))
    order.refresh_from_db()
    assert order.status == "refunded"
    assert_conserved(sale)


@pytest.mark.usefixtures("broker_refuses")
def test_unpublished_job_is_resumed_by_beat() -> None:
    job = job_of(won_by(make_sale(), 1))
    bulk_jobs.publish_job(job_id=job.pk)
    assert resumed() == [job.pk]


def test_job_survives_deletion_of_its_author() -> None:
    sale = make_sale()
    job = job_of(won_by(sale, 2))
    boss().delete()
    assert states(finish(job)) == ("done", 2, 0, {})


def test_called_off_sale_gives_back_each_unit_of_a_purchase(fake: FakeProvider) -> None:
    sale = make_sale(limit=6)
    ids = [it.pk for it in make_unpaid_purchase(sale, 3)]
    charge = make_payment(VoucherOrder.objects.get(pk=ids[0]))
    notify_of_fake(charge)
    assert finish(job_of(ids, REFUND)).refusals == {}
    assert list(fake.gone[charge.reference].values()) == [charge.amount_cents] * 3
    assert set(VoucherOrder.objects.values_list("status", flat=True)) == {"refunded"}
    assert_conserved(sale)
