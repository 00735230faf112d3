"""Ended sessions, which nothing needs any more."""

import datetime as dt

from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.db.models import Exists, OuterRef

MOST_ROWS = 5_000
"""The most rows of a table in one statement, so that no sign-in waits for it long."""

GRACE_PERIOD = dt.timedelta(hours=1)
"""A session of which only this is known so far is no ended one."""


def delete_ended_sessions(*, now: dt.datetime) -> int:
    """Delete ended sessions, and what their owners were shown of them; return how many rows."""
    sessions = Session.objects.filter(pk=OuterRef("session_key"))
    begun = now - GRACE_PERIOD
    rows = [
        Session.objects.filter(expire_date__lt=now),
        UserSession.objects.filter(~Exists(sessions), created_at__lt=begun),
    ]
    deleted = 0
    for ended in rows:
        while ids := list(ended.values_list("pk", flat=True)[:MOST_ROWS]):
            deleted += ended.filter(pk__in=ids).delete()[0]
    return deleted
