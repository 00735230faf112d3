"""Sessions as Django's own engine keeps them, and facts about users, for requests without SQL.

The facts of a user are id, name, whether the account is active, and the hash that Django signs into
each session: it changes with the password and is not the password's hash.

Change users by ``save()`` and ``delete()``, and end sessions through their store. What changes them
otherwise (``update()``, ``bulk_update()``, SQL) has to empty the cache after its commit.
"""

import json
import re
from hmac import compare_digest
from pathlib import Path
from typing import Any, NamedTuple

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.backends import cached_db, db
from django.contrib.sessions.backends.base import VALID_KEY_CHARS
from django.core.cache import cache
from django.db import transaction

from locks.lua_script import LuaScript, ScriptCall
from seckill_site.kept_settings import kept
from seckill_site.process_memory import Memory
from seckill_site.redis.cached_facts import (
    LONGEST_LIFE_S,
    drop_after_commit,
    drop_now,
    fill_fact,
    record_stale_fact,
    stored_key,
    take_lease,
)

DESK = "staff_desk"
"""The key in a session of staff that says where they work: ``office`` or ``redeem``."""

_unknown = Memory[str, bool](most=1_000, for_s=1.0)
"""Session keys that the database did not know a moment ago.

That hides no new session: its key is random, and nobody is told it before its row is committed.
"""

_SESSION_KEY = re.compile(f"[{VALID_KEY_CHARS}]{{32}}")
_USER = "seckill.user"
_READ_SESSION = LuaScript(Path(__file__).parent / "lua" / "read_session.lua")


class Buyer(NamedTuple):
    """A signed-in user; ``desk`` is where they work, if the session is one of staff."""

    user_id: int
    name: str
    desk: str = ""


class SessionStore(cached_db.SessionStore):
    """Django's cached sessions, which never return from the cache once they have ended."""

    def _validate_session_key(self, key: str | None) -> bool:
        """Accept keys as Django makes them.

        MariaDB takes ABC for abc, the cache does not: a sign-out would leave a copy under ABC.
        """
        return bool(key and _SESSION_KEY.fullmatch(key))

    def load(self) -> dict[str, Any]:
        """Return the session from the cache, else from the database."""
        key = self.session_key
        if key is None or is_unknown(key):
            self._session_key = None  # as Django: a key of the client's choice is never used
            return {}
        cached = cache.get(self.cache_key)
        if cached is not None:
            return dict(cached)
        lease = take_lease(self.cache_key)
        row = self._get_session_from_db()  # type: ignore[attr-defined]
        if not row:
            _unknown.keep(key, True)
            return {}
        data: dict[str, Any] = self.decode(row.session_data)
        life_s = int(self.get_expiry_age(expiry=row.expire_date))
        if life_s > 0:
            fill_fact(self.cache_key, json.dumps(data), lease=lease, life_s=life_s)
        return data

    def save(self, must_create: bool = False) -> None:
        """Write the session; the cache takes it unless it ends meanwhile."""
        if self.session_key is None:
            return self.create()
        lease = take_lease(self.cache_key)
        db.SessionStore.save(self, must_create)
        life_s, text = int(self.get_expiry_age()), json.dumps(dict(self))
        if life_s <= 0 or not fill_fact(self.cache_key, text, lease=lease, life_s=life_s):
            drop_now(self.cache_key)  # another reader may be about to fill in what was before
        return None

    def delete(self, session_key: str | None = None) -> None:
        """End the session, and have the cache drop it."""
        key = session_key or self.session_key
        if key is None:
            return
        name = self.cache_key_prefix + key
        with transaction.atomic():
            record_id = record_stale_fact(name)
            db.SessionStore.delete(self, key)
            drop_after_commit(name, record_id)


def is_unknown(session_key: str) -> bool:
    """Return whether the database knew no such session within the last second."""
    return _unknown.recall(session_key) is not None


# --- One command ----------------------------------------------------------------------------------


def session_call(*, session_key: str) -> ScriptCall[Buyer | None]:
    """Build the call to the cache that reads a session and its user; None if that is not enough."""
    return ScriptCall(
        script=_READ_SESSION,
        keys=[stored_key(SessionStore.cache_key_prefix + session_key)],
        args=[stored_key(_USER)],
        read=_read_session,
    )


def _read_session(reply: list[str]) -> Buyer | None:
    session, facts = [json.loads(text) if text else {} for text in reply]
    return _buyer(session, facts)


_backends = kept(lambda: tuple(settings.AUTHENTICATION_BACKENDS))


def _buyer(session: dict[str, Any], facts: dict[str, Any]) -> Buyer | None:
    """Return the user that the session belongs to, if the facts are this user's and confirm it."""
    if not facts or session.get(SESSION_KEY) != str(facts["id"]) or not facts["is_active"]:
        return None
    if session.get(BACKEND_SESSION_KEY) not in _backends():
        return None
    if not compare_digest(session.get(HASH_SESSION_KEY, ""), facts["session_hash"]):
        return None
    return Buyer(facts["id"], facts["name"], str(session.get(DESK, "")))


# --- From the database ----------------------------------------------------------------------------


def find_buyer(*, session_key: str) -> Buyer | None:
    """Return a session's user from the database, for the cache to keep; None if Django must decide.

    One statement for each of the two that the cache does not know.
    """
    session = SessionStore(session_key).load()
    user_id = session.get(SESSION_KEY)
    return _buyer(session, _read_facts(int(user_id))) if user_id else None


def _read_facts(user_id: int) -> dict[str, Any]:
    name = f"{_USER}{user_id}"
    lease = take_lease(name)
    user = User.objects.filter(pk=user_id).only("username", "password", "is_active").first()
    if user is None:
        return {}
    facts = {
        "id": user.pk,
        "name": user.username,
        "is_active": user.is_active,
        "session_hash": user.get_session_auth_hash(),
    }
    fill_fact(name, json.dumps(facts), lease=lease, life_s=LONGEST_LIFE_S)
    return facts


# --- Changes of users -----------------------------------------------------------------------------


def before_change(instance: User, **kwargs: Any) -> None:
    """Record, with the change, that the facts about a user change (a receiver of signals)."""
    if instance.pk and set(kwargs.get("update_fields") or ()) != {"last_login"}:
        instance._stale_facts = record_stale_fact(f"{_USER}{instance.pk}")  # type: ignore[attr-defined]


def after_change(instance: User, **kwargs: Any) -> None:
    """Have the cache drop the facts about a user (a receiver of signals)."""
    record_id = instance.__dict__.pop("_stale_facts", None)
    if record_id is not None:
        drop_after_commit(f"{_USER}{instance.pk}", record_id)
