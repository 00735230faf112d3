"""Ended sessions, and accounts of sign-ups that nobody completed: nothing needs them any more."""

import datetime as dt

from allauth.usersessions.models import UserSession
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db.models import Exists, OuterRef

from accounts.usernames import MADE_UP_NAME

MOST_ROWS = 2_000
"""The most rows of a table in one call, so that no sign-in and no order waits for it long."""

GRACE_PERIOD = dt.timedelta(hours=1)
"""A session of which only this is known so far is no ended one."""

SIGN_UP = dt.timedelta(days=1)
"""How long a sign-up may stay incomplete; its code is valid for minutes only."""


def delete_ended_sessions(*, now: dt.datetime) -> bool:
    """Delete ended sessions, what their owners were shown of them, and accounts without an owner.

    Return whether some may be left. Two calls at once do no harm: they delete the same rows.
    """
    sessions = Session.objects.filter(pk=OuterRef("session_key"))
    begun = now - GRACE_PERIOD
    nobodys = User.objects.filter(username__regex=MADE_UP_NAME, last_login=None)
    rows = [
        Session.objects.filter(expire_date__lt=now),
        UserSession.objects.filter(~Exists(sessions), created_at__lt=begun),
        nobodys.filter(is_staff=False, date_joined__lt=now - SIGN_UP),
    ]
    most = 0
    for ended in rows:
        ids = list(ended.values_list("pk", flat=True)[:MOST_ROWS])
        ended.filter(pk__in=ids).delete()
        most = max(most, len(ids))
    return most == MOST_ROWS
