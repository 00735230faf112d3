"""The address of a client, as the limits per address know it.

``REMOTE_ADDR`` is the client's: behind a proxy of ``SECKILL_TRUSTED_PROXIES``, ``asgi.py`` and
``wsgi.py`` put there what the proxy says.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

from django.conf import settings

from seckill_site.kept_settings import kept

Networks = tuple[IPv4Network | IPv6Network, ...]

UNIX_SOCKETS = ("", "unix:")
"""What servers say of a client behind a unix socket, who has no address."""

_WITH_PORT = re.compile(r"\[(?P<six>[^]]*)](:\d+)?|(?P<four>[^:]*):\d+")
"""Some proxies name the port too: 203.0.113.7:5123, [2001:db8::1]:5123."""

PREFIX_BITS = 64
"""A household or a server gets at least this much of IPv6, and may use all of it."""


def client_address(environ: Mapping[str, Any]) -> str:
    """Return the client's address, or its network in IPv6; nothing if it has no limit.

    ``environ`` is a WSGI environment, or Django's ``request.META``.
    """
    return _limited_address(environ.get("REMOTE_ADDR", ""), _unlimited_networks())


def client_network(environ: Mapping[str, Any]) -> str:
    """Return the client's address, or its network in IPv6, also if it has no limit."""
    return _limited_address(environ.get("REMOTE_ADDR", ""), ())


def client_ip(environ: Mapping[str, Any]) -> str:
    """Return the client's own address, or an empty string if the proxy sent no valid one."""
    address = _address_in(environ.get("REMOTE_ADDR", ""))
    return str(address) if address else ""


def _address_in(text: str) -> IPv4Address | IPv6Address | None:
    if match := _WITH_PORT.fullmatch(text):
        text = match["four"] or match["six"] or ""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


@lru_cache(maxsize=8192)
def _limited_address(text: str, unlimited: Networks) -> str:
    address = _address_in(text)
    if address is None:  # counted as it is, so that no odd spelling is a way around the limits
        return "" if text in UNIX_SOCKETS else text
    if any(address in it for it in unlimited):
        return ""
    if isinstance(address, IPv6Address):
        return str(IPv6Network((int(address), PREFIX_BITS), strict=False))
    return str(address)


_unlimited_networks = kept(lambda: tuple(settings.SECKILL_UNLIMITED_NETWORKS))
