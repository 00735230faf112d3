"""Data of the benchmark of a sale: sessions made in bulk are what signing in leaves."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client

from bench.sale.data import sign_in
from seckill_site.sessions import SessionStore
from tests.support.asgi import ask
from tests.support.orders import make_buyer

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("is_cached", [True, False])
def test_bulk_sessions_belong_to_their_users(is_cached: bool) -> None:
    buyers = [make_buyer() for _ in range(3)]
    cookies = sign_in(user_ids=[it.pk for it in buyers])
    if not is_cached:
        cache.clear()
    answers = [ask("GET", "/me/", HTTP_COOKIE=cookie) for cookie in cookies]
    assert [it.json["name"] for it in answers] == [it.username for it in buyers]


def test_bulk_session_is_cached_as_one_of_a_login_is() -> None:
    buyer = make_buyer()
    (cookie,) = sign_in(user_ids=[buyer.pk])
    content = content_of(cookie.partition("=")[2])
    assert content
    assert content == content_of(login(buyer))


def login(user: User) -> str:
    client = Client()
    client.force_login(user)
    return client.cookies[settings.SESSION_COOKIE_NAME].value


def content_of(session_key: str) -> object:
    return cache.get(SessionStore.cache_key_prefix + session_key)
