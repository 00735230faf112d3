"""Limits of requests, per address and per account, shared by all web processes.

Two ways to count, in the same keys of the cache (``limits``):

- Signing up, signing in and resetting a password are counted exactly, in a round trip of their own.
- All other requests are counted in memory: what a buyer or a program asks for, and whatever else a
  thread has to make. A page that lies in memory is neither counted nor refused. A process adds
  what it has counted of the busy ones to the shared count once a second and learns of the others'
  share, so no request waits for that.

Without the cache each process limits by its own count, and sign-ups, sign-ins and resets are not
limited. Limited subjects are listed for staff, who may lift a limit.
"""

import logging
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from time import monotonic
from typing import Any, NamedTuple

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.utils.translation import gettext, gettext_noop
from django_redis import get_redis_connection
from limits import RateLimitItem, RateLimitItemPerSecond
from limits.storage import RedisStorage
from limits.strategies import FixedWindowRateLimiter
from redis.exceptions import RedisError

from seckill_site.clocks.ledger import ledger_now_ms
from seckill_site.kept_settings import kept
from seckill_site.metrics import counter
from seckill_site.process_memory import Buffer, Memory
from seckill_site.web.clients import client_address
from seckill_site.web.responses import problem, seems_signed_in

logger = logging.getLogger(__name__)

RATE_LIMITED_TEXT = gettext_noop("Too many requests. Wait a moment and try again.")

SHARE_S = 1.0
"""How often a process shares what it has counted."""

REFUSED_S = 1.0
"""How long a process repeats the refusal of a sign-in without asking the cache again."""

MOST_COUNTS = 100_000
"""The most counts in a process."""

LISTED = "seckill:limited"
"""A sorted set: each limited subject, by the end of its limit in seconds since 1970."""

REDIS_PREFIX = "seckill:rates"

COUNTED = "seckill.counted"
"""Set in the environment of a request that has been counted."""

_GUARDED = re.compile(
    r"/(?:api/|me/|orders/|accounts/|admin/login/|sandbox/"
    r"|vouchers/[0-9]+/(?!live/|orders/\Z)[a-z])"
)
"""What belongs to a buyer, an account or a program; order requests are counted where their tokens
are read."""

_UNCOUNTED = re.compile(r"/(?:static/|payments/[^/]+/notify/|(?:healthz|readyz|metrics)\Z)")
"""A provider sends its notifications from few addresses, and a probe must not fail in a crowd."""

_ACCOUNT_PATHS = re.compile(
    r"/(?:accounts/(?:(?P<signup>signup)|(?P<reset>password)|(?P<signin>login|reauth|2fa))"
    r"|(?P<admin>admin/login/))"
)
_PLACE = re.compile(r"/vouchers/[0-9]+/orders/")


class Limit(StrEnum):
    """What is limited."""

    ADDRESS = "address"
    ACCOUNT = "account"
    SIGN_UP = "signup"
    SIGN_IN = "signin"
    RESET = "reset"


class RateLimited(Exception):
    """This address or account has sent too many requests."""

    def __init__(self, limit: Limit, *, wait_s: float) -> None:
        super().__init__(f"too many requests: {limit}")
        self.limit, self.retry_after_s = limit, max(1, round(wait_s))


class Limited(NamedTuple):
    """An address, or the id of an account, that is limited until a time in seconds since 1970."""

    limit: Limit
    subject: str
    until_s: float

    @property
    def member(self) -> str:
        return f"{self.limit}:{self.subject}"


BUSY_PART = {Limit.ADDRESS: 64, Limit.ACCOUNT: 4}
"""A count is shared from this part of its limit on, so a crowd of small counts shares nothing."""


@kept
def _items() -> dict[Limit, RateLimitItem]:
    """Return the limits by their number and seconds, without those that are off."""
    limits = {
        Limit.ADDRESS: (settings.SECKILL_REQUESTS_PER_ADDRESS, 60),
        Limit.ACCOUNT: (settings.SECKILL_REQUESTS_PER_ACCOUNT, 60),
        Limit.SIGN_UP: (settings.SECKILL_SIGN_UPS_PER_ADDRESS, 3600),
        Limit.SIGN_IN: (settings.SECKILL_SIGN_INS_PER_ADDRESS, 600),
        Limit.RESET: (settings.SECKILL_RESETS_PER_ADDRESS, 3600),
    }
    return {
        limit: RateLimitItemPerSecond(most, seconds, namespace="seckill")
        for limit, (most, seconds) in limits.items()
        if most > 0
    }


@kept
def _limiter() -> FixedWindowRateLimiter:
    pool = get_redis_connection("default").connection_pool
    # It would take a service and its database for one name, and read from replicas.
    storage = RedisStorage("redis://", connection_pool=pool, key_prefix=REDIS_PREFIX)
    return FixedWindowRateLimiter(storage)


# --- Counted in memory ----------------------------------------------------------------------------


@dataclass
class _Count:
    """A count of this process in a window of its own."""

    ends_at_s: float
    mine: int = 0
    unshared: int = 0
    shared: int = 0
    """The count of all processes when this one last shared its own."""


Key = tuple[Limit, str]


class _Counts:
    """The counts of this process."""

    def __init__(self) -> None:
        self._counting = threading.Lock()
        self._counts = Memory[Key, _Count](most=MOST_COUNTS)
        self._busy = Buffer[Key](self._share, most=MOST_COUNTS, every_s=SHARE_S, daemon=True)
        self.share = self._busy.flush

    def count(self, limit: Limit, subject: str) -> None:
        """Count one request.

        :raises RateLimited: it is one too many.
        """
        item = _items().get(limit)
        if item is None:
            return
        key, now_s = (limit, subject), monotonic()
        with self._counting:
            count = self._counts.last(key)
            if count is None or count.ends_at_s <= now_s:
                count = _Count(now_s + item.get_expiry())
                self._counts.keep(key, count)
            count.mine += 1
            count.unshared += 1
            is_over = count.shared + count.unshared > item.amount
        if count.mine * BUSY_PART[limit] >= item.amount:
            self._busy.count(key)
        if is_over:
            raise RateLimited(limit, wait_s=count.ends_at_s - now_s)

    def _share(self, busy: Collection[Key]) -> None:
        """Add high counts to the totals of all processes; keep them while the cache is away."""
        items, storage, listed = _items(), _limiter().storage, dict[str, float]()
        try:
            for limit, subject in busy:
                item, count = items.get(limit), self._counts.last((limit, subject))
                if item is None or count is None:
                    continue
                new = count.unshared
                if count.shared + count.unshared > item.amount:
                    listed[f"{limit}:{subject}"] = _now_s() + count.ends_at_s - monotonic()
                total = storage.incr(item.key_for(limit, subject), item.get_expiry(), amount=new)
                with self._counting:
                    count.unshared -= new
                    count.shared = total
            _list(listed)
        except RedisError as error:
            logger.warning("request counts are not shared: %s", error)


counts = _Counts()
_refused = Memory[Key, bool](most=MOST_COUNTS, for_s=REFUSED_S)


def is_guarded(environ: Mapping[str, Any]) -> bool:
    """Return whether a request counts even if no thread is needed for its answer."""
    return _GUARDED.match(environ["PATH_INFO"]) is not None


def check_address(environ: dict[str, Any]) -> None:
    """Count a request against its client's address, once.

    :raises RateLimited: too many came from there.
    """
    if COUNTED in environ or _UNCOUNTED.match(environ["PATH_INFO"]):
        return
    environ[COUNTED] = True
    if address := client_address(environ):
        counts.count(Limit.ADDRESS, address)
        # Here, in front of the gate of sign-ins, whose places this request would take from others.
        limit = _account_limit(environ)
        if limit is not None and _refused.recall((limit, address)):
            raise RateLimited(limit, wait_s=REFUSED_S)


def check_account(environ: Mapping[str, Any], user_id: int) -> None:
    """Count a request against its account, unless its network has no limits.

    :raises RateLimited: the account sent too many.
    """
    if client_address(environ):
        counts.count(Limit.ACCOUNT, str(user_id))


# --- Counted exactly ------------------------------------------------------------------------------


def check_account_path(environ: Mapping[str, Any]) -> None:
    """Count an attempt to sign up, sign in or reset a password, over all account names.

    :raises RateLimited: too many came from this address.
    """
    limit, address = _account_limit(environ), client_address(environ)
    item = _items().get(limit) if limit else None
    if limit is None or item is None or not address:
        return
    try:
        if _limiter().hit(item, limit, address):
            return
        wait_s = max(0.0, _limiter().get_window_stats(item, limit, address).reset_time - _now_s())
        _refused.keep((limit, address), True)
        _list({f"{limit}:{address}": _now_s() + wait_s})
    except RedisError as error:
        logger.warning("%s is not limited: %s", limit, error)
        return
    raise RateLimited(limit, wait_s=wait_s)


def _account_limit(environ: Mapping[str, Any]) -> Limit | None:
    """Return the limit of an attempt to sign up, sign in or reset a password; None for the rest."""
    if environ["REQUEST_METHOD"] != "POST":
        return None
    match = _ACCOUNT_PATHS.match(environ["PATH_INFO"])
    if match is None:
        return None
    return Limit.SIGN_IN if match.lastgroup == "admin" else Limit(str(match.lastgroup))


# --- The middleware -------------------------------------------------------------------------------


class RequestRates:
    """Middleware: answers requests that are too many with 429."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        try:
            check_address(request.META)
            check_account_path(request.META)
            if _has_session(request) and (user_id := request.user.pk) is not None:
                check_account(request.META, user_id)
        except RateLimited as error:
            count_limited(error.limit)
            return problem(
                request,
                status=429,
                code="rate_limited",
                message=gettext(RATE_LIMITED_TEXT),
                retry_after_s=error.retry_after_s,
            )
        return self._get_response(request)


def _has_session(request: HttpRequest) -> bool:
    """Return whether the request's account is in its session; an order's is in its token."""
    path, environ = request.META["PATH_INFO"], request.META
    if not seems_signed_in(request) or "HTTP_PURCHASE_TOKEN" in environ or _PLACE.fullmatch(path):
        return False
    return is_guarded(environ) and client_address(environ) != ""


def count_limited(limit: Limit) -> None:
    """Count a refused request for the metrics."""
    counter("limited_requests", limit.value).inc()


# --- For staff ------------------------------------------------------------------------------------


def _now_s() -> float:
    return ledger_now_ms(may_wait=False) / 1000


def _list(members: Mapping[str, float]) -> None:
    if not members:
        return
    with get_redis_connection("default").pipeline(transaction=False) as pipe:
        pipe.zremrangebyscore(LISTED, 0, _now_s())
        pipe.zadd(LISTED, dict(members))
        pipe.expire(LISTED, 3600)
        pipe.execute()


def limited_now(*, most: int) -> list[Limited]:
    """Return the subjects that are limited now, longest wait first; none without the cache."""
    try:
        listed = get_redis_connection("default").zrevrangebyscore(
            LISTED, "+inf", _now_s(), start=0, num=most, withscores=True
        )
    except RedisError:
        return []
    pairs = [(member.decode().partition(":"), until_s) for member, until_s in listed]
    return [
        Limited(Limit(limit), subject, until_s)
        for (limit, _, subject), until_s in pairs
        if limit in set(Limit)
    ]


def lift_limits(limited: Iterable[Limited]) -> None:
    """Let all processes count these anew, within about a second.

    :raises redis.RedisError: the cache did not respond.
    """
    for it in limited:
        if item := _items().get(it.limit):
            _limiter().clear(item, it.limit, it.subject)
        get_redis_connection("default").zrem(LISTED, it.member)
