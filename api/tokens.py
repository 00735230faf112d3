"""Tokens: 256 random bits behind a recognisable prefix, stored as a digest.

A slow hash protects what people choose; nobody guesses 256 random bits.
"""

import base64
import datetime as dt
import hmac
import secrets
from collections.abc import Iterable
from hashlib import sha256

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Q

from accounts.second_factor import lacks_second_factor
from api.models import ApiToken, Scope
from vouchers.models import Merchant

START = "sk_"
PREFIX_LENGTH = 11
USE_NOTED = dt.timedelta(minutes=1)
"""``last_used_at`` may be as old as this, so a busy program writes seldom."""

PERMISSIONS = {
    Scope.READ_SALES: "vouchers.view_seckillvoucher",
    Scope.READ_ORDERS: "orders.view_voucherorder",
    Scope.REDEEM: "orders.redeem_voucherorder",
}
"""The permission that the owner needs for each scope."""


class BadToken(Exception):
    """There is no such token, it has expired or was revoked, or its owner is no longer staff."""


class MissingScope(Exception):
    """The token does not have this scope."""

    def __init__(self, scope: Scope) -> None:
        super().__init__(f"the token lacks {scope.value}")
        self.scope = scope


class MissingPermission(Exception):
    """The owner of the token may not do this."""


def create_token(
    *,
    owner: User,
    name: str,
    scopes: Iterable[Scope],
    expires_at: dt.datetime,
    now: dt.datetime,
    merchants: Iterable[Merchant] = (),
    text: str = "",
) -> tuple[ApiToken, str]:
    """Create a token; return it with its text, which is stored nowhere."""
    text = text or START + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        owner=owner,
        name=name,
        prefix=text[:PREFIX_LENGTH],
        digest=_digest(text),
        scopes=sorted(Scope(scope).value for scope in scopes),
        merchant_ids=[it.pk for it in merchants] or None,
        created_at=now,
        expires_at=expires_at,
    )
    return token, text


def text_for(key: str) -> str:
    """Return the text of the token that a form with this random key makes, however often sent."""
    digest = hmac.digest(settings.SECRET_KEY.encode(), f"api token {key}".encode(), "sha256")
    return START + base64.urlsafe_b64encode(digest).decode().rstrip("=")


def find_token(*, text: str, now: dt.datetime) -> ApiToken:
    """Return the valid token of this text, with its owner.

    :raises BadToken: no valid token has this text.
    """
    tokens = ApiToken.objects.select_related("owner")
    token = tokens.filter(digest=_digest(text), revoked_at=None, expires_at__gt=now).first()
    if token is None:
        raise BadToken
    owner = token.owner
    if not (owner.is_active and owner.is_staff) or lacks_second_factor(owner):
        raise BadToken
    return token


def check_scope(token: ApiToken, scope: Scope) -> None:
    """Check that a token may do something, and its owner too.

    :raises MissingScope: the token does not have the scope.
    :raises MissingPermission: its owner lacks the permission.
    """
    if scope not in token.scopes:
        raise MissingScope(scope)
    if not token.owner.has_perm(PERMISSIONS[scope]):
        raise MissingPermission


def merchants_of(token: ApiToken) -> frozenset[int] | None:
    """Return the merchants for whom a token redeems; None: for all.

    Its owner's are the most that it may have.
    """
    owners = Merchant.redeemed_by(token.owner)
    if token.merchant_ids is None or owners is None:
        return owners if token.merchant_ids is None else frozenset(token.merchant_ids)
    return owners.intersection(token.merchant_ids)


def note_use(token: ApiToken, *, now: dt.datetime) -> None:
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - USE_NOTED)
    if token.last_used_at is None or token.last_used_at < now - USE_NOTED:
        ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)


def revoke_tokens(tokens: Iterable[ApiToken], *, now: dt.datetime) -> int:
    """Revoke tokens for ever; return how many were still valid."""
    ids = [token.pk for token in tokens]
    return ApiToken.objects.filter(pk__in=ids, revoked_at=None).update(revoked_at=now)


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
