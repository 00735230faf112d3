"""Start-up checks of key rotation: a step left out shows before it refuses anybody.

Each server leaves fingerprints of its keys in the ledger's Redis, never the keys. A server whose
signatures another would refuse is found as the first of the two starts, and ``/readyz`` keeps the
fingerprints fresh. ``docs/key-rotation.md`` describes the two steps.
"""

import json
from collections.abc import Iterator
from socket import gethostname
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, register
from django.utils.crypto import salted_hmac
from redis import RedisError

from seckill_site.checks.configuration import SETTINGS
from seckill_site.checks.findings import finding
from seckill_site.checks.services import SERVICES
from seckill_site.clocks.ledger import read_ledger_ms
from seckill_site.redis.ledger_connection import ledger_connection

FINGERPRINTS = "seckill:keys"
FRESH_S = 24 * 3600
"""The time for which a server's fingerprints count, unless it renews them."""

Fingerprints = dict[str, list[str]]
"""Setting -> fingerprints: first the key that signs, then the others that verify."""


def shared_keys() -> dict[str, list[str]]:
    """Return the keys that all servers share: first the one that signs, then its fallbacks."""
    return {
        "SECRET_KEY": [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS],
        "SECKILL_SANDBOX_KEY": [
            settings.SECKILL_SANDBOX_KEY,
            *settings.SECKILL_SANDBOX_KEY_FALLBACKS,
        ],
    }


@register(SETTINGS)
def check_fallbacks(**_: Any) -> Iterator[CheckMessage]:
    """Find a key among its own fallbacks: the swap was forgotten, or the next key is missing."""
    for name, (key, *fallbacks) in shared_keys().items():
        if key in fallbacks:
            yield finding("W030", name=name)


@register(SERVICES, deploy=True)
def check_shared_keys(**_: Any) -> Iterator[CheckMessage]:
    """Find servers that would refuse each other's signatures; leave our own fingerprints."""
    keys, here = shared_keys().items(), gethostname()
    ours = {name: [_fingerprint(name, key) for key in them] for name, them in keys}
    try:
        others = _swap_fingerprints(here, ours)
    except RedisError:
        return  # another check reports it
    for host, theirs in sorted(others.items()):
        for name in ours.keys() & theirs.keys():
            if theirs[name][0] not in ours[name]:
                who = f"This server refuses what {host} signs or has signed."
                yield finding("W031", who=who, name=name)
            elif host != here and ours[name][0] not in theirs[name]:
                who = f"The server {host} refuses what this one signs."
                yield finding("W031", who=who, name=name)


def _fingerprint(name: str, key: str) -> str:
    mac = salted_hmac(f"seckill.fingerprint.{name}", "", key, algorithm="sha256")
    return mac.hexdigest()[:16]


def _swap_fingerprints(here: str, ours: Fingerprints) -> dict[str, Fingerprints]:
    """Leave our fingerprints, and return those left before, by host, also by this one."""
    client = ledger_connection()
    now_s = read_ledger_ms() // 1000
    by_host: dict[str, Fingerprints] = {}
    for host, text in client.hgetall(FINGERPRINTS).items():
        try:
            seen_s, theirs = json.loads(text)
            if seen_s > now_s - FRESH_S:
                by_host[host] = {str(name): list(them) for name, them in theirs.items() if them}
        except (ValueError, TypeError, AttributeError):
            continue  # a mistyped command; a server that runs writes its own again
    client.hset(FINGERPRINTS, here, json.dumps([now_s, ours]))
    client.expire(FINGERPRINTS, FRESH_S)
    return by_host
