"""Which addresses a webhook may reach: public ones, and networks that the settings allow.

Staff name the host, and its owner names the addresses, at any time. So a name is resolved once, all
its addresses are checked, and the connection goes to one that was checked.
"""

import re
import socket
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from django.conf import settings

from seckill_site.http_client import resolve

IpAddress = IPv4Address | IPv6Address

NOT_PUBLIC = (
    IPv4Network("168.63.129.16/32"),  # a cloud's own service to its machines
    IPv4Network("192.0.0.0/24"),  # another's, and what IPv4 keeps for itself
    IPv6Network("64:ff9b:1::/48"),  # NAT64 inside a network
    IPv6Network("::/96"),  # IPv4 in IPv6, as it once was: [::127.0.0.1]
    IPv6Network("::ffff:0:0:0/96"),  # IPv4-translated addresses, as [::ffff:0:127.0.0.1]
    IPv6Network("5f00::/16"),  # segments of a route
    IPv6Network("3fff::/20"),  # for documents
)
"""Networks that some releases of Python wrongly treat as public."""

_THIS_MACHINE = re.compile(
    r"(?:.+\.)?(?:localhost|localdomain)[46]?|ip6-(?:localhost|loopback)", re.IGNORECASE
)
"""Names that mean this machine wherever they are looked up."""

_NAT64 = IPv6Network("64:ff9b::/96")


class ForbiddenAddress(Exception):
    """A webhook must not reach this address."""


def check_url(url: str) -> None:
    """Check what an address says by itself, when it is entered and before each message.

    What else a name resolves to is checked when something is sent: it may change at any time.

    :raises ForbiddenAddress: it is not HTTPS, has a user name or names a forbidden address.
    """
    try:
        parts = urlsplit(url)
        # As it is looked up: digits and dots of other scripts are plain ones there.
        host, _ = (parts.hostname or "").encode("idna").decode("ascii"), parts.port
    except ValueError as error:
        raise ForbiddenAddress("not an address") from error
    allowed = ("https", "http") if settings.SECKILL_WEBHOOK_HTTP else ("https",)
    if parts.scheme not in allowed or not host:
        raise ForbiddenAddress("not HTTPS")
    if parts.username is not None or parts.password is not None:
        raise ForbiddenAddress("a user name in the address")
    if address := _address_in(host.removesuffix(".")):
        check_address(address)


def _address_in(host: str) -> IpAddress | None:
    """Return the address that a host is in itself, in any spelling; None for a name."""
    if _THIS_MACHINE.fullmatch(host):
        return IPv4Address("127.0.0.1")
    with suppress(ValueError):
        return ip_address(host)
    with suppress(OSError):
        return IPv4Address(socket.inet_aton(host))  # 127.1, 2130706433, 0x7f000001
    return None


def check_address(address: IpAddress) -> None:
    """Check that an address is public, or in ``SECKILL_WEBHOOK_NETWORKS``.

    :raises ForbiddenAddress: it is neither.
    """
    for it in _meanings(address):
        allowed = any(it in network for network in settings.SECKILL_WEBHOOK_NETWORKS)
        if not allowed and not _is_public(it):
            raise ForbiddenAddress(f"{address} is not a public address")


async def checked_addresses(host: str, port: int) -> list[str]:
    """Resolve a host, and return its addresses after checking every one.

    :raises ForbiddenAddress: one of them is forbidden.
    :raises NoAnswer: there are none.
    """
    addresses = await resolve(host, port)
    for address in addresses:
        check_address(ip_address(address))
    return addresses


def _meanings(address: IpAddress) -> list[IpAddress]:
    """Return an address and the IPv4 addresses that it carries packets to."""
    if isinstance(address, IPv4Address):
        return [address]
    inside: list[IpAddress | None] = [address.ipv4_mapped, address.sixtofour]
    inside += address.teredo or ()
    if address in _NAT64:
        inside.append(IPv4Address(int(address) & 0xFFFFFFFF))
    carried: list[IpAddress] = [it for it in inside if it is not None]
    # A mapped address is nothing but its IPv4 address.
    return carried if address.ipv4_mapped else [address, *carried]


def _is_public(address: IpAddress) -> bool:
    if isinstance(address, IPv6Address) and address.is_site_local:
        return False
    if any(address in it for it in NOT_PUBLIC):
        return False
    return address.is_global and not address.is_multicast
