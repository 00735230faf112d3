"""The address of a client, as the limits per address know it.

``REMOTE_ADDR`` is the client's: behind a proxy of ``SECKILL_TRUSTED_PROXIES``, ``asgi.py`` and
``wsgi.py`` put there what the proxy says.
"""

from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any

from django.conf import settings

from seckill_site.kept_settings import kept

Networks = tuple[IPv4Network | IPv6Network, ...]

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


@lru_cache(maxsize=8192)
def _limited_address(text: str, unlimited: Networks) -> str:
    try:
        address = ip_address(text)
    except ValueError:  # a unix socket has none
        return ""
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    if any(address.version == it.version and address in it for it in unlimited):
        return ""
    if isinstance(address, IPv6Address):
        return str(IPv6Network((int(address), PREFIX_BITS), strict=False))
    return str(address)


_unlimited_networks = kept(lambda: tuple(settings.SECKILL_UNLIMITED_NETWORKS))
