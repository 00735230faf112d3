"""Jobs on many orders: each order once, whoever dies, however many workers; none is forgotten."""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone, translation
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from backoffice import bulk_jobs, tasks
from backoffice.bulk_jobs import (
    FAILED,
    LEFT_ALONE,
    NO_SUCH_ORDER,
    NOTED_AT_ONCE,
    begin_job,
    begins_at,
    resume_jobs,
    why_not,
    work_at,
)
from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.transitions import Actor
from orders.models import OrderEvent, OrderJob, OrderStatus, Payment, VoucherOrder
from orders.payments.refunds import finish_refunds
from seckill_site.failpoints import FailpointReached, armed
from tests.support.inspection import (
    assert_conserved,
    broker_length,
    ended_of,
    ledger_contents,
    live_ids,
    rows,
)
from tests.support.orders import at_once, make_buyer, make_buyers, make_order, make_sale
from tests.support.payments import begun, history, paid, tell_of_fake, use_fake, won
from vouchers.inventory.keys import LedgerKeys
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

CANCEL, REFUND = OrderJob.Kind.CANCEL, OrderJob.Kind.REFUND


def boss(name: str = "boss") -> User:
    return User.objects.get_or_create(username=name, is_staff=True)[0]


def job_of(ids: list[int], kind: OrderJob.Kind = CANCEL, *, by: str = "boss") -> OrderJob:
    return begin_job(kind=kind, order_ids=ids, by=Actor.staff(boss(by).pk), why="sold by mistake")


def won_by(sale: SeckillVoucher, count: int) -> list[int]:
    """Let so many buyers win an unpaid order each; return the ids."""
    won(sale, make_buyers(count))
    return live_ids(sale)


def finish(job: OrderJob) -> OrderJob:
    """Work until no task would be published any more."""
    while work_at(job_id=job.pk):
        pass
    job.refresh_from_db()
    return job


def states(job: OrderJob) -> tuple[str, int, int, dict[str, str]]:
    return job.status, job.done, len(job.order_ids), job.refusals


def left_alone(job: OrderJob) -> list[int]:
    """Let beat look when nothing was heard of the job for long enough; return what it resumes."""
    published: list[int] = []
    later = timezone.now() + LEFT_ALONE + dt.timedelta(seconds=1)
    resume_jobs(publish=lambda *, job_id: published.append(job_id), now=later)
    return published


def cancellations(order_ids: list[int]) -> list[tuple[int, str, str]]:
    found = OrderEvent.objects.filter(order__in=order_ids, after="cancelled")
    return list(found.order_by("order").values_list("order", "actor__username", "reason"))


# --- What a job does -----------------------------------------------------------------------------


def test_a_job_cancels_its_orders_by_whom_and_for_the_reason_it_was_given() -> None:
    sale = make_sale(stock=10)
    ids = won_by(sale, 5)
    job = finish(job_of(ids[:3]))
    assert states(job) == ("done", 3, 0, {})
    assert live_ids(sale) == ids[3:]
    assert cancellations(ids) == [(it, "boss", "sold by mistake") for it in ids[:3]]
    assert_conserved(sale)


def test_a_job_refunds_its_orders_and_the_money_goes_back() -> None:
    sale = make_sale(stock=3, refundable=False)
    orders = [won(sale) for _ in range(3)]
    payments = [paid(order) for order in orders]
    job = finish(job_of([order.pk for order in orders], REFUND))
    assert states(job) == ("done", 3, 0, {})
    assert set(Payment.objects.values_list("status", flat=True)) == {"refunded"}
    assert len(payments) == 3
    assert history(orders[0])[-2:] == ["refunding by staff", "refunded by system"]
    assert_conserved(sale)


def test_orders_in_another_state_are_not_changed_and_listed_with_it() -> None:
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


def test_an_order_that_its_buyer_cancelled_before_was_not_changed_by_the_job() -> None:
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


def test_an_order_chosen_twice_is_done_once() -> None:
    sale = make_sale()
    (order_id,) = won_by(sale, 1)
    job = finish(job_of([order_id, order_id]))
    assert (job.total, *states(job)) == (1, "done", 1, 0, {})


def test_a_job_without_orders_is_done() -> None:
    job = job_of([])
    assert job.status == "done"
    assert not work_at(job_id=job.pk)


def test_a_job_that_is_not_there_or_done_is_no_work() -> None:
    job = finish(job_of(won_by(make_sale(), 1)))
    before = rows()
    assert not work_at(job_id=404)
    assert not work_at(job_id=job.pk)
    assert rows() == before


@pytest.mark.parametrize(("kind", "status"), [(CANCEL, "unpaid"), (REFUND, "paid")])
def test_it_is_known_at_which_state_a_job_begins(kind: str, status: str) -> None:
    assert begins_at(kind) == status


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        ("used", "it is used"),
        (NO_SUCH_ORDER, "there is no such order"),
        (FAILED, "it could not be changed; the worker's log says why"),
    ],
)
def test_a_refusal_is_told_in_words(refusal: str, words: str) -> None:
    with translation.override("en"):
        assert why_not(refusal) == words


def test_three_hundred_orders() -> None:
    sale = make_sale(stock=300)
    ids = won_by(sale, 300)
    assert len(ids) == 300
    job = finish(job_of(ids))
    assert states(job) == ("done", 300, 0, {})
    assert live_ids(sale) == []
    assert len(cancellations(ids)) == 300
    assert_conserved(sale)


def test_ten_thousand_ids_are_noted_in_milliseconds_and_fit() -> None:
    job = job_of([10**18 + number for number in range(10_000)])
    with CaptureQueriesContext(connection) as queries:
        assert bulk_jobs._next_orders(job.pk)
    job.refresh_from_db()
    assert (job.done, len(job.refusals)) == (NOTED_AT_ONCE, NOTED_AT_ONCE)
    assert job.order_ids[0] == 10**18 + NOTED_AT_ONCE
    # Each order is asked for once, and the rest is one look, one lock and one note.
    assert len(queries) <= 2 * NOTED_AT_ONCE + 6


# --- Workers that die, and workers that meet -----------------------------------------------------


def test_a_worker_that_dies_half_way_is_followed_by_another_that_ends_the_job() -> None:
    sale = make_sale(stock=60)
    ids = won_by(sale, 50)
    job = job_of(ids)
    with armed("job.changed:2=raise"), pytest.raises(FailpointReached):
        work_at(job_id=job.pk)
    job.refresh_from_db()
    assert states(job) == ("running", NOTED_AT_ONCE, 50 - NOTED_AT_ONCE, {})
    assert len(live_ids(sale)) == 50 - 2 * NOTED_AT_ONCE, "twenty were changed and not noted"

    assert left_alone(job) == [job.pk]
    finish(job)

    assert states(job) == ("done", 50, 0, {})
    assert cancellations(ids) == [(it, "boss", "sold by mistake") for it in ids]
    assert_conserved(sale)


def test_a_worker_that_dies_half_way_through_refunds_refunds_none_twice(settings: Any) -> None:
    fake = use_fake(settings)
    sale = make_sale()
    orders = [won(sale) for _ in range(3)]
    for order in orders:
        tell_of_fake(begun(order))
    job = job_of([order.pk for order in orders], REFUND)
    with armed("job.changed=raise"), pytest.raises(FailpointReached):
        work_at(job_id=job.pk)
    finish(job)
    assert states(job) == ("done", 3, 0, {})
    assert len(fake.refunds) == len(set(fake.refunds)) == 3
    assert_conserved(sale)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("row_locks")
def test_two_workers_at_one_job_change_each_order_once() -> None:
    for _ in range(3):
        sale = make_sale(stock=60)
        ids = won_by(sale, 60)
        job = job_of(ids)
        outcomes = at_once(*[partial(work_at, job_id=job.pk)] * 2)
        assert not [it for it in outcomes if isinstance(it, Exception)]
        finish(job)
        assert states(job) == ("done", 60, 0, {})
        assert cancellations(ids) == [(it, "boss", "sold by mistake") for it in ids]
        assert_conserved(sale)


def test_a_slower_worker_notes_nothing_over_what_a_faster_one_has_noted() -> None:
    sale = make_sale()
    first, second = won_by(sale, 2)
    job = job_of([first, 404, second])
    finish(job)
    assert not bulk_jobs._note(job.pk, {first: "cancelled", 404: "cancelled"}, set())
    job.refresh_from_db()
    assert states(job) == ("done", 3, 0, {"404": NO_SUCH_ORDER})


def test_only_a_job_that_was_left_is_sent_again() -> None:
    sale = make_sale()
    first, second = won_by(sale, 2)
    done, running = finish(job_of([first])), job_of([second])
    assert resume_jobs(publish=bulk_jobs.publish_job, now=timezone.now()) == []
    assert left_alone(running) == [running.pk]
    assert left_alone(running) == [], "sent once, and then not again at once"
    assert OrderJob.objects.get(pk=done.pk).changed_at == done.changed_at


def test_a_job_that_takes_longer_than_a_task_is_handed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sale = make_sale(stock=50)
    job = job_of(won_by(sale, 45))
    monkeypatch.setattr(bulk_jobs, "WORK_S", 0.0)
    monkeypatch.setattr(bulk_jobs, "NOTE_S", 0.0)
    assert work_at(job_id=job.pk)
    monkeypatch.undo()
    tasks.work_at_job(job_id=job.pk)
    job.refresh_from_db()
    assert job.status == "done"
    assert broker_length() == 0


def test_a_task_that_leaves_work_publishes_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_of(won_by(make_sale(), 2))
    monkeypatch.setattr(bulk_jobs, "WORK_S", 0.0)
    tasks.work_at_job(job_id=job.pk)
    assert broker_length() == 1


def test_a_slow_provider_does_not_keep_a_job_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    sale = make_sale()
    job = job_of(won_by(sale, 3))
    monkeypatch.setattr(bulk_jobs, "NOTE_S", -1.0)  # each order takes longer than this
    assert bulk_jobs._next_orders(job.pk)
    job.refresh_from_db()
    assert job.done == 1


# --- Parts that are away -------------------------------------------------------------------------


def test_without_redis_a_job_waits_and_then_goes_on() -> None:
    sale = make_sale()
    ids = won_by(sale, 3)
    job = job_of(ids)
    with pytest.MonkeyPatch.context() as patch:
        lose(patch)
        before = rows()
        assert not work_at(job_id=job.pk)
        assert rows() == before
    job.refresh_from_db()
    assert states(job) == ("running", 0, 3, {})
    assert left_alone(job) == [job.pk]
    finish(job)
    assert states(job) == ("done", 3, 0, {})
    assert_conserved(sale)


def lose(patch: pytest.MonkeyPatch) -> None:
    """Let the ledger be at a closed port while the patch holds."""
    nowhere = Redis(port=1, decode_responses=True, retry=Retry(NoBackoff(), 0))
    patch.setattr("seckill_site.ledger_connection.get_redis_connection", lambda alias: nowhere)


def test_redis_that_goes_away_in_the_middle_loses_nothing_that_was_done() -> None:
    sale = make_sale()
    ids = won_by(sale, 4)
    job = job_of(ids)
    end = bulk_jobs.end_order
    with pytest.MonkeyPatch.context() as patch:

        def until_the_third(*, order_id: int, **options: Any) -> None:
            if order_id == ids[2]:
                lose(patch)
            end(order_id=order_id, **options)

        patch.setattr(bulk_jobs, "end_order", until_the_third)
        assert not work_at(job_id=job.pk)
    job.refresh_from_db()
    assert states(job) == ("running", 2, 2, {})
    finish(job)
    assert states(job) == ("done", 4, 0, {})
    assert_conserved(sale)


def test_a_row_that_is_locked_for_too_long_lets_the_job_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def locked(**kwargs: Any) -> None:
        raise OperationalError(1205, "Lock wait timeout exceeded")

    job = job_of(won_by(make_sale(), 2))
    with monkeypatch.context() as patch:
        patch.setattr(bulk_jobs, "end_order", locked)
        assert not work_at(job_id=job.pk)
    assert states(finish(job)) == ("done", 2, 0, {})


def test_an_order_whose_buyer_is_busy_goes_to_the_end_of_the_line(
    ledger: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orders.lifecycle.cancellation.MEET_MS", 50)
    sale = make_sale()
    ids = won_by(sale, 3)
    buyer = VoucherOrder.objects.get(pk=ids[0]).user_id
    assert buyer
    key = LedgerKeys(sale.pk).user_lock(buyer)
    ledger.set(key, "a worker", px=60_000)
    job = job_of(ids)
    assert not work_at(job_id=job.pk), "with nothing but what is busy left, it waits"
    job.refresh_from_db()
    assert (job.done, job.order_ids, job.refusals) == (2, [ids[0]], {})
    ledger.delete(key)
    assert states(finish(job)) == ("done", 3, 0, {})
    assert_conserved(sale)


def test_an_order_that_nothing_can_be_done_with_does_not_stop_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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


def test_a_refund_that_failed_after_it_began_counts_as_changed(settings: Any) -> None:
    """The order is being refunded, whatever became of telling the provider."""
    fake = use_fake(settings)
    sale = make_sale()
    order = won(sale)
    tell_of_fake(begun(order))
    charges = dict(fake.charges)
    fake.charges.clear()  # an unknown charge: a KeyError, which no provider should raise
    assert states(finish(job_of([order.pk], REFUND))) == ("done", 1, 0, {})
    fake.charges = charges
    finish_refunds(now=timezone.now() + dt.timedelta(minutes=1))
    order.refresh_from_db()
    assert order.status == "refunded"
    assert_conserved(sale)


def test_with_the_provider_away_the_orders_are_being_refunded(settings: Any) -> None:
    fake = use_fake(settings)
    sale = make_sale()
    order = won(sale)
    tell_of_fake(begun(order))
    fake.away = True
    assert states(finish(job_of([order.pk], REFUND))) == ("done", 1, 0, {})
    order.refresh_from_db()
    assert (order.status, order.live) == ("refunding", True)


@pytest.mark.usefixtures("broker_refuses")
def test_a_job_that_could_not_be_published_is_sent_by_beat() -> None:
    job = job_of(won_by(make_sale(), 1))
    bulk_jobs.publish_job(job_id=job.pk)
    assert left_alone(job) == [job.pk]


def test_a_deleted_author_leaves_the_job_going() -> None:
    sale = make_sale()
    job = job_of(won_by(sale, 2))
    boss().delete()
    assert states(finish(job)) == ("done", 2, 0, {})


def test_the_ledger_says_how_the_orders_ended() -> None:
    sale = make_sale()
    ids = won_by(sale, 2)
    finish(job_of(ids))
    assert {it.split(":")[1] for it in ended_of(sale).values()} == {"cancelled"}
    assert ledger_contents()
