"""API tokens in the admin: shown once, for oneself alone, revoked at once."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from api.models import ApiToken
from api.tokens import BadToken, find_token
from tests.support.api import make_member, make_token
from tests.support.browsers import HTML, browser_of
from tests.support.tiers import slow_after
from vouchers.models import Merchant

pytestmark = pytest.mark.django_db

LIST = "/admin/api/apitoken/"
TOKEN = re.compile(r"sk_[\w-]{43}")


def add(client: Client, by: User, **fields: Any) -> Any:
    sent = {"name": "till", "owner": by.pk, "scopes": ["redeem"], "days": "30", **fields}
    return client.post(f"{LIST}add/", sent)


def test_token_is_shown_once(shop: Client) -> None:
    owner = make_member()
    response = add(shop, owner)

    (text,) = set(TOKEN.findall(response.text))
    assert "no-store" in response["Cache-Control"]
    token = find_token(text=text, now=timezone.now())
    assert (token.owner, token.scopes) == (owner, ["redeem"])
    for page in (LIST, f"{LIST}{token.pk}/change/", f"{LIST}{token.pk}/history/"):
        assert text not in shop.get(page).text
    assert text not in str(list(LogEntry.objects.values()))
    assert token.prefix in shop.get(LIST).text


@pytest.mark.parametrize(
    "wrong",
    slow_after(
        1, [{"scopes": []}, {"scopes": ["all"]}, {"days": "9999"}, {"owner": ""}, {"name": ""}]
    ),
)
def test_wrong_form_makes_no_token(shop: Client, wrong: dict[str, Any]) -> None:
    response = add(shop, make_member(), **wrong)
    assert response.status_code == 200
    assert not TOKEN.search(response.text)
    assert not ApiToken.objects.exists()


def test_buyers_and_closed_accounts_get_no_token(shop: Client) -> None:
    for owner in (make_member(is_staff=False), make_member(is_active=False)):
        add(shop, owner)
    assert not ApiToken.objects.exists()


def test_revoked_token_ends_at_once(shop: Client) -> None:
    token, text = make_token()
    shop.post(LIST, {"action": "revoke", "_selected_action": [token.pk]}, follow=True)

    with pytest.raises(BadToken):
        find_token(text=text, now=timezone.now())
    assert "revoked" in shop.get(LIST).text


def test_member_with_the_permission_makes_tokens_of_their_own() -> None:
    """Else they could act for somebody who may more."""
    member, other = make_member(), make_member()
    codenames = ["add_apitoken", "view_apitoken"]
    member.user_permissions.add(*Permission.objects.filter(codename__in=codenames))
    client = browser_of(member, headers=HTML)
    theirs, _ = make_token(owner=other)

    assert not TOKEN.search(add(client, other).text)
    assert TOKEN.search(add(client, member).text)
    assert theirs.prefix not in client.get(LIST).text
    client.post(LIST, {"action": "revoke", "_selected_action": [theirs.pk]})
    theirs.refresh_from_db()
    assert theirs.revoked_at is None


def test_token_is_bound_to_the_chosen_merchants(shop: Client) -> None:
    rice = Merchant.objects.create(name="Rice")
    add(shop, make_member(), merchants=[rice.pk])
    add(shop, make_member())
    free, bound = ApiToken.objects.order_by("-pk")
    assert (bound.merchant_ids, free.merchant_ids) == ([rice.pk], None)
    assert "Rice" in shop.get(f"{LIST}{bound.pk}/change/").text
    assert "all merchants" in shop.get(f"{LIST}{free.pk}/change/").text
