"""Retention: what about people goes after which time, and what stays (docs/retention.md)."""

from __future__ import annotations

import datetime as dt

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from orders.lifecycle import retention
from orders.lifecycle.retention import delete_old_rows
from orders.models import JobStatus, Notice, OrderJob, RoomVisit, RuleRefusal
from tests.support.orders import make_buyer, make_sale
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

NOW = timezone.now()
DAY = dt.timedelta(days=1)
OVER, TOLD = NOW - 30 * DAY, NOW - 90 * DAY


@pytest.fixture
def sale() -> SeckillVoucher:
    return make_sale(ends_in_s=-31 * 86_400, begins_in_s=-32 * 86_400, loaded=False)


@pytest.fixture
def buyer() -> User:
    return make_buyer()


def visit(sale: SeckillVoucher, buyer: User, at: dt.datetime) -> RoomVisit:
    return RoomVisit.objects.create(
        seckill_voucher=sale, user=buyer, opened_ms=at.timestamp(), given=1, joined_at=at
    )


def test_visits_stay_for_30_days_and_as_long_as_their_sale(
    sale: SeckillVoucher, buyer: User
) -> None:
    visit(sale, buyer, OVER - DAY)
    kept = [visit(sale, buyer, OVER + DAY), visit(make_sale(loaded=False), buyer, OVER - DAY)]
    assert not delete_old_rows(now=NOW)
    assert list(RoomVisit.objects.order_by("pk")) == kept


def test_refusals_by_rules_stay_for_30_days(sale: SeckillVoucher, buyer: User) -> None:
    going_on = make_sale(loaded=False)
    refused = [(sale, OVER - DAY), (going_on, OVER - DAY), (sale, None)]
    stays = [(sale, OVER + DAY), (going_on, None)]
    rows = [
        RuleRefusal.objects.create(seckill_voucher=it, user=buyer, rule=str(n), refused_at=at)
        for n, (it, at) in enumerate(refused + stays)
    ]
    assert not delete_old_rows(now=NOW)
    assert list(RuleRefusal.objects.order_by("pk")) == rows[len(refused) :]


def test_notices_stay_for_90_days_after_they_were_told(sale: SeckillVoucher) -> None:
    def notice(*, live: bool, told_at: dt.datetime | None) -> Notice:
        asked = {"asked_at": TOLD - 2 * DAY, "told_at": told_at, "live": live}
        return Notice.objects.create(
            seckill_voucher=sale, user=make_buyer(), kind=Notice.Kind.START, **asked
        )

    notice(live=False, told_at=TOLD - DAY)
    notice(live=False, told_at=None)  # stopped by its reader
    kept = [notice(live=False, told_at=TOLD + DAY), notice(live=True, told_at=TOLD - DAY)]
    assert not delete_old_rows(now=NOW)
    assert list(Notice.objects.order_by("pk")) == kept


def test_finished_jobs_keep_sums_and_no_ids() -> None:
    def job(status: JobStatus, changed_at: dt.datetime) -> OrderJob:
        refusals = {"11": "busy", "12": "busy", "13": "state"}
        made = OrderJob.objects.create(
            kind=OrderJob.Kind.CANCEL, status=status, order_ids=[14], refusals=refusals, total=4
        )
        OrderJob.objects.filter(pk=made.pk).update(changed_at=changed_at)
        return made

    emptied = job(JobStatus.DONE, OVER - DAY)
    kept = [job(JobStatus.DONE, OVER + DAY), job(JobStatus.RUNNING, OVER - DAY)]
    for _ in range(2):
        assert not delete_old_rows(now=NOW)
    emptied.refresh_from_db()
    assert (emptied.order_ids, emptied.refusals) == ([], {})
    assert emptied.sums == {"busy": 2, "state": 1}
    for it in kept:
        it.refresh_from_db()
        assert (it.order_ids, len(it.refusals), it.sums) == ([14], 3, None)


def test_statement_deletes_only_so_many(
    sale: SeckillVoucher, buyer: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "MOST_ROWS", 2)
    for days in range(1, 6):
        visit(sale, buyer, OVER - days * DAY)
    left = []
    with CaptureQueriesContext(
        connection,
    ) as queries:
        while delete_old_rows(now=NOW):
            left.append(RoomVisit.objects.count())
    assert left == [3, 1]
    assert not RoomVisit.objects.exists()
    deletes = [it["sql"] for it in queries if it["sql"].startswith("DELETE")]
    assert max(sql.count(",") + 1 for sql in deletes) == 2
