"""Retention: rows about people go once nothing needs them any more (``docs/retention.md``)."""

import datetime as dt
from collections import Counter
from typing import Any

from django.db.models import Q, QuerySet

from orders.models import JobStatus, Notice, OrderJob, RoomVisit, RuleRefusal
from seckill_site.models import Activity

MOST_ROWS, MOST_JOBS = 5_000, 100
"""The most that one call deletes of a table, so that no order waits for it long."""


def delete_old_rows(*, now: dt.datetime) -> bool:
    """Delete old rows about people, or empty them; return whether some may be left.

    Two calls at once do no harm: they delete the same rows.
    """
    over, told = now - dt.timedelta(days=30), now - dt.timedelta(days=90)
    Activity.objects.filter(address__gt="", at__lt=told).update(address="")
    # While a sale has a line, it is restored from the visits.
    visits = RoomVisit.objects.filter(seckill_voucher__ends_at__lt=over, joined_at__lt=over)
    # The oldest were written first, so this takes no index. An earlier release wrote no time.
    oldest = RuleRefusal.objects.order_by("pk").values_list("pk", flat=True)[:MOST_ROWS]
    is_old = Q(refused_at__lt=over) | Q(refused_at=None, seckill_voucher__ends_at__lt=over)
    rules = RuleRefusal.objects.filter(is_old, pk__in=list(oldest))
    was_told = Q(told_at__lt=told) | Q(told_at=None, asked_at__lt=told)
    notices = Notice.objects.filter(was_told, live=False)
    return any([*map(_delete_some, (visits, rules, notices)), _empty_jobs(over)])


def _delete_some(rows: QuerySet[Any]) -> bool:
    ids = list(rows.values_list("pk", flat=True)[:MOST_ROWS])
    rows.model.objects.filter(pk__in=ids).delete()
    return len(ids) == MOST_ROWS


def _empty_jobs(before: dt.datetime) -> bool:
    """Drop the order ids of finished jobs; how often each reason was met stays."""
    done = OrderJob.objects.filter(status=JobStatus.DONE, changed_at__lt=before)
    jobs = list(done.filter(sums__isnull=True)[:MOST_JOBS])
    for job in jobs:
        sums = dict(Counter(job.refusals.values()))
        OrderJob.objects.filter(pk=job.pk).update(order_ids=[], refusals={}, sums=sums)
    return len(jobs) == MOST_JOBS
