"""Ended sessions are deleted, present ones are not."""

from __future__ import annotations

import datetime as dt

import pytest
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.sessions.models import Session
from django.utils import timezone

from accounts import old_sessions
from accounts.old_sessions import GRACE_PERIOD, delete_ended_sessions
from orders.tasks import delete_ended_sessions as delete_task
from tests.support.orders import make_buyer

pytestmark = pytest.mark.django_db

SECOND = dt.timedelta(seconds=1)


def test_only_what_is_over_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(old_sessions, "MOST_ROWS", 2)
    now, buyer = timezone.now(), make_buyer()
    for number in range(5):
        Session.objects.create(session_key=f"ended{number}", expire_date=now - SECOND)
    Session.objects.create(session_key="good", expire_date=now + SECOND)
    for key, age in (
        ("ended0", GRACE_PERIOD + SECOND),
        ("good", GRACE_PERIOD + SECOND),
        ("new", SECOND),
    ):
        row = UserSession.objects.create(user=buyer, ip="127.0.0.1", session_key=key)
        UserSession.objects.filter(pk=row.pk).update(created_at=now - age)

    passes = [delete_ended_sessions(now=now) for _ in range(3)]

    assert passes == [True, True, False]

    assert [it.session_key for it in Session.objects.all()] == ["good"]
    assert {it.session_key for it in UserSession.objects.all()} == {"good", "new"}


def test_beat_has_it_done_each_hour() -> None:
    entry = settings.CELERY_BEAT_SCHEDULE["delete_ended_sessions"]
    assert (entry["task"], entry["schedule"]) == (delete_task.name, 3600.0)


def test_task_deletes() -> None:
    Session.objects.create(session_key="x", expire_date=timezone.now() - dt.timedelta(days=1))
    delete_task()
    assert not Session.objects.exists()
