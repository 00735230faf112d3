"""The sessions of an account."""

from __future__ import annotations

from allauth.usersessions.models import UserSession
from django.contrib.auth.models import User


def end_all_sessions(user: User) -> int:
    """End the sessions in which this user signed in; return how many there were."""
    sessions = list(UserSession.objects.filter(user=user))
    for session in sessions:
        session.end()
    return len(sessions)
