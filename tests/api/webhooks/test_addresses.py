"""Which addresses a webhook may reach."""

from __future__ import annotations

import asyncio
import socket
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from api.webhooks.addresses import (
    ForbiddenAddress,
    check_address,
    check_url,
    checked_addresses,
)
from seckill_site.http_client import NoAnswer
from tests.support.api import elsewhere

pytestmark = pytest.mark.quick

PUBLIC = ["8.8.8.8", "1.1.1.1", "172.15.0.1", "172.32.0.1", "2606:4700:4700::1111"]

FORBIDDEN = {
    "loopback": ["127.0.0.1", "127.255.0.9", "::1"],
    "unspecified": ["0.0.0.0", "0.1.2.3", "::"],
    "private": ["10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "fc00::1", "fd12::1"],
    "link-local": ["169.254.0.1", "fe80::1", "fe80::1%eth0", "fec0::1"],
    "metadata": ["169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16"],
    "shared": ["100.64.0.1", "192.0.0.192", "198.18.0.1"],
    "multicast": ["224.0.0.1", "239.1.2.3", "ff02::1", "ff0e::1"],
    "reserved": ["240.0.0.1", "255.255.255.255", "192.0.2.1", "2001:db8::1", "100::1"],
    "mapped": ["::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254"],
    "6to4": ["2002:7f00:1::", "2002:a00:1::", "2002:a9fe:a9fe::"],
    "NAT64": [
        "64:ff9b::127.0.0.1",
        "64:ff9b::169.254.169.254",
        "64:ff9b::10.0.0.1",
        "64:ff9b:1::1",
    ],
    "compatible": ["::127.0.0.1", "::10.0.0.1", "::8.8.8.8"],
    "translated": ["::ffff:0:127.0.0.1", "::ffff:0:8.8.8.8"],
    "new": ["5f00::1", "3fff::1", "3fff:fff::1"],
    "teredo": ["2001:0:7f00:1::", "2001:0:808:808::80ff:fffe"],
}


def is_allowed(address: str) -> bool:
    try:
        check_address(ip_address(address))
    except ForbiddenAddress:
        return False
    return True


@pytest.mark.parametrize("address", [*PUBLIC, "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"])
def test_public_address_is_allowed(address: str) -> None:
    assert is_allowed(address)


@pytest.mark.parametrize("address", [it for group in FORBIDDEN.values() for it in group])
def test_other_address_is_forbidden(address: str) -> None:
    assert not is_allowed(address)


def test_network_of_the_settings_is_allowed(settings: Any) -> None:
    settings.SECKILL_WEBHOOK_NETWORKS = [ip_network("10.1.0.0/16")]

    assert is_allowed("10.1.2.3")
    assert is_allowed("::ffff:10.1.2.3")
    assert not is_allowed("10.2.0.1")
    assert not is_allowed("::1")


LOOPBACK = [
    *("localhost", "LOCALHOST", "localhost.", "shop.localhost", "localhost.localdomain"),
    *("localhost6.localdomain6", "ip6-localhost", "ip6-loopback", "127.0.0.1", "127.0.0.1."),
    *("127.1", "2130706433", "0x7f000001", "0177.0.0.1", "[::127.0.0.1]", "[::ffff:0:127.0.0.1]"),
    *(
        "１２７.0.0.1",
        "①②⑦。0｡0．1",
        "localhost。",
        "127.0.0.1..",
        "127.0.0.1\u00ad",
        "ｌｏｃａｌｈｏｓｔ",
    ),
]


@pytest.mark.parametrize("host", [*LOOPBACK, "[::10.0.0.1]", "[3fff::1]"])
def test_host_that_is_this_machine_by_itself_is_refused(host: str) -> None:
    with pytest.raises(ForbiddenAddress):
        check_url(f"https://{host}:8443/hook")


@pytest.mark.parametrize("host", ["localhost", "127.1", "shop.localhost."])
def test_this_machine_may_be_in_the_networks_of_the_settings(settings: Any, host: str) -> None:
    settings.SECKILL_WEBHOOK_NETWORKS = [ip_network("127.0.0.0/8")]
    check_url(f"https://{host}/hook")


@pytest.mark.parametrize(
    "host",
    [
        "example.com",
        "localhost.example.com",
        "mylocalhost",
        "1.example",
        "例え.jp",
        "a_b.example.com.",
    ],
)
def test_other_name_is_good_until_it_is_resolved(host: str) -> None:
    check_url(f"https://{host}/hook")


@pytest.mark.parametrize(
    "url",
    [
        *("http://example.com/", "ftp://example.com/", "https:///x", "https://", "file:///etc"),
        *("https://u:p@example.com/", "https://u@example.com/", "https://127.0.0.1/", "//x"),
        *("https://[::1]/", "https://[::ffff:7f00:1]/", "https://example.com:x/", "https://[/"),
    ],
)
def test_address_that_is_wrong_by_itself_is_refused(url: str) -> None:
    with pytest.raises(ForbiddenAddress):
        check_url(url)


def test_http_is_a_setting(settings: Any) -> None:
    check_url("https://example.com/hook")
    settings.SECKILL_WEBHOOK_HTTP = True
    check_url("http://example.com/hook")


# --- Names ----------------------------------------------------------------------------------------


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Let every name have these addresses; return the list of names that were resolved."""
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (it, port)) for it in addresses]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


def resolve(host: str = "hooks.example") -> list[str]:
    return elsewhere(lambda: asyncio.run(checked_addresses(host, 443)))


def test_one_forbidden_address_forbids_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, "8.8.8.8", "10.0.0.1")

    with pytest.raises(ForbiddenAddress):
        resolve()


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "127.1", "0177.0.0.1", "localhost"])
def test_other_spellings_of_loopback_are_forbidden(host: str) -> None:
    with pytest.raises((ForbiddenAddress, NoAnswer)):
        resolve(host)


def test_name_that_is_no_name_is_unknown() -> None:
    with pytest.raises(NoAnswer):
        resolve("a" * 300)
