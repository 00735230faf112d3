"""Data of the benchmark of a sale: sessions made in bulk."""

from __future__ import annotations

import pytest

from bench.sale.data import sign_in
from tests.support.asgi import ask
from tests.support.orders import make_buyer

pytestmark = pytest.mark.django_db


def test_bulk_sessions_belong_to_their_users() -> None:
    buyers = [make_buyer() for _ in range(3)]
    cookies = sign_in(user_ids=[it.pk for it in buyers])
    answers = [ask("GET", "/me/", HTTP_COOKIE=cookie) for cookie in cookies]
    assert [it.json["name"] for it in answers] == [it.username for it in buyers]
