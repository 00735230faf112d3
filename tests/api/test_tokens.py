"""Tokens: what is stored, who they speak for, and when they end."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from api.models import ApiToken, Scope
from api.tokens import (
    BadToken,
    MissingPermission,
    MissingScope,
    check_scope,
    find_token,
    merchants_of,
    note_use,
    revoke_tokens,
)
from tests.support.api import make_member, make_token
from vouchers.models import Merchant

pytestmark = pytest.mark.django_db


def find(text: str) -> ApiToken:
    return find_token(text=text, now=timezone.now())


def test_text_is_stored_nowhere() -> None:
    token, text = make_token()

    row = ApiToken.objects.values().get(pk=token.pk)
    assert text.startswith(token.prefix)
    assert len(text) > 40
    assert not any(text in str(value) or text[11:] in str(value) for value in row.values())
    assert find(text) == token


def test_other_texts_find_nothing() -> None:
    _, text = make_token()
    for other in ("", text[:-1], text + "x", text.upper(), text[:11]):
        with pytest.raises(BadToken):
            find(other)


ENDS: dict[str, Callable[[ApiToken], Any]] = {
    "revoked": lambda it: revoke_tokens([it], now=timezone.now()),
    "expired": lambda it: ApiToken.objects.filter(pk=it.pk).update(expires_at=timezone.now()),
    "deactivated": lambda it: User.objects.filter(pk=it.owner_id).update(is_active=False),
    "no longer staff": lambda it: User.objects.filter(pk=it.owner_id).update(is_staff=False),
    "deleted": lambda it: User.objects.filter(pk=it.owner_id).delete(),
}


@pytest.mark.parametrize("how", ENDS)
def test_token_ends_with_its_owner_and_its_time(how: str) -> None:
    token, text = make_token()
    find(text)

    ENDS[how](token)

    with pytest.raises(BadToken):
        find(text)


def test_owner_without_required_second_factor_is_refused(settings: Any) -> None:
    _, text = make_token()
    settings.SECKILL_STAFF_SECOND_FACTOR = True

    with pytest.raises(BadToken):
        find(text)


@pytest.mark.parametrize("scope", Scope)
def test_scope_and_permission_are_both_needed(scope: Scope) -> None:
    others = [it for it in Scope if it != scope]
    token, _ = make_token(scopes=[scope])
    check_scope(token, scope)

    without_scope, _ = make_token(scopes=others)
    with pytest.raises(MissingScope):
        check_scope(without_scope, scope)
    without_permission, _ = make_token(owner=make_member(may=others))
    with pytest.raises(MissingPermission):
        check_scope(without_permission, scope)


def test_use_is_noted_once_a_minute() -> None:
    token, _ = make_token()
    now = timezone.now()

    for seconds in (0, 30, 61):
        token.refresh_from_db()
        note_use(token, now=now + dt.timedelta(seconds=seconds))
        token.refresh_from_db()
        noted = 61 if seconds == 61 else 0
        assert token.last_used_at == now + dt.timedelta(seconds=noted)


@pytest.mark.parametrize(
    ("owners", "tokens", "redeemed"),
    [
        ("", "", None),
        ("", "A", "A"),
        ("AB", "", "AB"),
        ("AB", "BC", "B"),
        ("A", "B", ""),
    ],
)
def test_token_redeems_for_no_merchant_beyond_its_owner(
    owners: str, tokens: str, redeemed: str | None
) -> None:
    shops = {it: Merchant.objects.create(name=it) for it in "ABC"}
    owner = make_member()
    owner.merchants.set(shops[it] for it in owners)
    token, _ = make_token(owner=owner, merchants=[shops[it] for it in tokens])
    token.refresh_from_db()
    expected = None if redeemed is None else {shops[it].pk for it in redeemed}
    assert merchants_of(token) == expected


def test_token_of_a_merchant_that_went_redeems_nothing() -> None:
    gone = Merchant.objects.create(name="Gone")
    token, _ = make_token(merchants=[gone])
    gone.delete()
    token.refresh_from_db()
    assert merchants_of(token)
    assert not Merchant.objects.filter(pk__in=merchants_of(token) or ()).exists()
