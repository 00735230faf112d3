"""Who asks, at the front door: one command to the cache, or one look at the database.

If a request sends a session cookie, only Django may decide that nobody is signed in.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

from django.conf import settings
from django.http import parse_cookie
from redis.exceptions import RedisError

from seckill_site.front_door.ledger_node import cache_node
from seckill_site.front_door.requests import Environ
from seckill_site.front_door.threads import threads
from seckill_site.kept_settings import kept
from seckill_site.process_memory import Flights
from seckill_site.sessions import Buyer, find_buyer, is_unknown, session_call

_finding = Flights[str, Buyer | None]()


def session_key_of(environ: Environ) -> str:
    """Return the session that a request names, or nothing."""
    return cookie_of(environ, _cookie_name())


def cookie_of(environ: Mapping[str, Any], name: str) -> str:
    """Return the value of a cookie, or nothing, as Django's ``parse_cookie`` does, only faster."""
    cookies = environ.get("HTTP_COOKIE", "")
    if name not in cookies:
        return ""
    if '"' in cookies:
        return parse_cookie(cookies).get(name, "")
    last_value = ""
    for part in cookies.split(";"):
        key, equals, value = part.partition("=")
        if equals and key.strip() == name:
            last_value = value.strip()
    return last_value


_cookie_name = kept(lambda: str(settings.SESSION_COOKIE_NAME))


async def buyer_of(session_key: str) -> Buyer | None:
    """Return the user of this session; None if Django must decide.

    :raises Busy: too much waits for a thread.
    :raises django.db.DatabaseError: neither the cache nor the database can tell.
    """
    if is_unknown(session_key):
        return None
    buyer = await _cached_buyer(session_key)
    if buyer is None and (running := _finding.running(session_key)):
        # It may have begun before a sign-out that this request comes after: ask again after it.
        await asyncio.wait([running])
        buyer = await _cached_buyer(session_key)
    if buyer is not None:
        return buyer
    find = partial(find_buyer, session_key=session_key)
    return await asyncio.shield(_finding.join(session_key, lambda: threads().query(find)))


async def _cached_buyer(session_key: str) -> Buyer | None:
    try:
        return await cache_node().run(session_call(session_key=session_key))
    except RedisError:
        return None
