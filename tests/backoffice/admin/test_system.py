"""The page of the system: what it says of addresses."""

from __future__ import annotations

import pytest
from django.test import Client

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("address", "said"), [("", True), ("203.0.113.7", False)])
def test_requests_without_addresses_are_named(shop: Client, address: str, said: bool) -> None:
    page = shop.get("/admin/system/", REMOTE_ADDR=address).text
    assert ("Requests come through a unix socket, without an address" in page) is said
    assert ("Settings and servers are as they should be." in page) is not said
