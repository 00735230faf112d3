"""Ended sessions and old records of sign-ins are deleted, present ones are not."""

from __future__ import annotations

import datetime as dt

import pytest
from axes.models import AccessAttempt, AccessLog
from django.conf import settings
from django.contrib.sessions.models import Session
from django.utils import timezone

from orders.tasks import delete_old_logins as delete_task
from seckill_site import old_logins
from seckill_site.old_logins import KEPT_FOR, delete_old_logins

pytestmark = pytest.mark.django_db


def test_only_what_is_over_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_logins, "MOST_ROWS", 2)
    now, second = timezone.now(), dt.timedelta(seconds=1)
    for number in range(5):
        Session.objects.create(session_key=f"ended{number}", expire_date=now - second)
    Session.objects.create(session_key="good", expire_date=now + second)
    for model in (AccessLog, AccessAttempt):
        for name, age in (("old", KEPT_FOR + second), ("new", KEPT_FOR - second)):
            more = {"failures_since_start": 1} if model is AccessAttempt else {}
            record = model.objects.create(username=name, **more)
            model.objects.filter(pk=record.pk).update(attempt_time=now - age)

    assert delete_old_logins(now=now) == 7

    assert [it.session_key for it in Session.objects.all()] == ["good"]
    for model in (AccessLog, AccessAttempt):
        assert list(model.objects.values_list("username", flat=True)) == ["new"]


def test_beat_has_it_done_each_hour() -> None:
    entry = settings.CELERY_BEAT_SCHEDULE["delete_old_logins"]
    assert (entry["task"], entry["schedule"]) == (delete_task.name, 3600.0)


def test_task_deletes() -> None:
    Session.objects.create(session_key="x", expire_date=timezone.now() - dt.timedelta(days=1))
    delete_task()
    assert not Session.objects.exists()
