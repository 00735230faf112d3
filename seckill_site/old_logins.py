"""Ended sessions and old records of sign-ins, which nothing needs any more."""

import datetime as dt

from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.contrib.sessions.models import Session

KEPT_FOR = dt.timedelta(days=30)
"""How long it is kept who signed in, or failed to, from which address."""

MOST_ROWS = 5_000
"""The most rows of a table in one statement, so that no sign-in waits for it long."""


def delete_old_logins(*, now: dt.datetime) -> int:
    """Delete ended sessions and old records of sign-ins; return how many rows."""
    old = {"attempt_time__lt": now - KEPT_FOR}
    rows = [
        Session.objects.filter(expire_date__lt=now),
        *(model.objects.filter(**old) for model in (AccessAttempt, AccessFailureLog, AccessLog)),
    ]
    deleted = 0
    for found in rows:
        while ids := list(found.values_list("pk", flat=True)[:MOST_ROWS]):
            deleted += found.filter(pk__in=ids).delete()[0]
    return deleted
