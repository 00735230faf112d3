"""The address of a client, as the limits per address know it."""

from __future__ import annotations

from ipaddress import ip_network

import pytest
from pytest_django import Settings

from seckill_site.web.clients import client_address, client_ip

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("address", "known_as"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("203.0.113.7:5123", "203.0.113.7"),
        ("[2001:db8:1:2::1]:5123", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::1]", "2001:db8:1:2::/64"),
        ("127.0.0.1:5123", ""),
        ("[::1]:5123", ""),
        ("proxy-7", "proxy-7"),
        ("unknown", "unknown"),
        ("203.0.113.7:x", "203.0.113.7:x"),
        ("127.0.0.1", ""),
        ("::1", ""),
        ("::ffff:127.0.0.1", ""),
        ("", ""),
        ("unix:", ""),
    ],
)
def test_address_is_that_of_the_network(address: str, known_as: str) -> None:
    assert client_address({"REMOTE_ADDR": address}) == known_as


@pytest.mark.parametrize(
    ("text", "ip"),
    [
        ("203.0.113.7:5123", "203.0.113.7"),
        ("[2001:db8::1]:5123", "2001:db8::1"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("unknown", ""),
        ("", ""),
    ],
)
def test_address_for_others_is_an_address_or_nothing(text: str, ip: str) -> None:
    assert client_ip({"REMOTE_ADDR": text}) == ip


def test_request_without_an_address_has_no_limit() -> None:
    assert client_address({}) == ""


def test_unlimited_networks_are_those_of_the_settings(settings: Settings) -> None:
    settings.SECKILL_UNLIMITED_NETWORKS = [
        ip_network("203.0.113.0/24"),
        ip_network("2001:db8::/32"),
    ]

    assert client_address({"REMOTE_ADDR": "203.0.113.7"}) == ""
    assert client_address({"REMOTE_ADDR": "2001:db8:9::1"}) == ""
    assert client_address({"REMOTE_ADDR": "127.0.0.1"}) == "127.0.0.1"
