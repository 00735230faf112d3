"""The sessions of an account."""

import datetime as dt

from allauth.usersessions.adapter import get_adapter
from allauth.usersessions.models import UserSession
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import User
from django.http import HttpRequest

from seckill_site.clocks.database import database_now


def user_of(request: HttpRequest) -> User:
    """Return the user of a request that only a signed-in one gets to make."""
    assert isinstance(request.user, User)
    return request.user


def end_all_sessions(user: User) -> int:
    """End the sessions in which this user signed in; return how many there were."""
    sessions = list(UserSession.objects.filter(user=user))
    get_adapter().end_sessions(sessions)
    return len(sessions)


def end_other_sessions(user: User) -> None:
    """End the sessions of this user, but not the one of the request."""
    sessions = UserSession.objects.filter(user=user)
    get_adapter().end_sessions([it for it in sessions if not it.is_current()])


STAFF_SESSION = dt.timedelta(hours=12)


def limit_staff_session(request: HttpRequest, user: User, **kwargs: object) -> None:
    """End a session of staff twelve hours after its sign-in (also a signal's receiver)."""
    if user.is_staff and request.session.get(SESSION_KEY) == str(user.pk):
        request.session.set_expiry(database_now() + STAFF_SESSION)
