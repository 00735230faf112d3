"""Ended sessions and sign-ups are deleted, present ones are not."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.utils import timezone

from accounts import old_sessions
from accounts.old_sessions import GRACE_PERIOD, delete_ended_sessions
from orders.tasks import delete_ended_sessions as delete_task
from tests.support.orders import make_buyer
from tests.support.tiers import slow_after

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


DAY = dt.timedelta(days=1)


@pytest.mark.parametrize(
    ("name", "age", "facts", "stays"),
    slow_after(
        2,
        [
            ("user-0123456789ab", DAY, {}, False),
            ("user-0123456789ab", DAY - 2 * SECOND, {}, True),
            ("user-0123456789ab", DAY, {"last_login": timezone.now()}, True),
            ("user-0123456789ab", DAY, {"is_staff": True}, True),
            ("user-chosen", DAY, {}, True),
        ],
    ),
    ids=["nobody came", "under way", "signed in", "staff", "name of a person"],
)
def test_account_of_a_sign_up_without_its_code_goes(
    name: str, age: dt.timedelta, facts: dict[str, Any], stays: bool
) -> None:
    now = timezone.now()
    user = User.objects.create(username=name, date_joined=now - age - SECOND, **facts)
    EmailAddress.objects.create(user=user, email="ada@example.com")

    delete_ended_sessions(now=now)

    assert User.objects.exists() is EmailAddress.objects.exists() is stays


def test_beat_has_it_done_each_hour() -> None:
    entry = settings.CELERY_BEAT_SCHEDULE["delete_ended_sessions"]
    assert (entry["task"], entry["schedule"]) == (delete_task.name, 3600.0)


def test_task_deletes() -> None:
    Session.objects.create(session_key="x", expire_date=timezone.now() - dt.timedelta(days=1))
    delete_task()
    assert not Session.objects.exists()
