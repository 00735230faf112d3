"""The settings that owners make on a page."""

from __future__ import annotations

import secrets

from seckill_site.face.owners_settings import known
from seckill_site.models import ONLY_ROW, ShopSettings


def set_by_owner(*, logo: bytes = b"", **values: str) -> None:
    """Set these fields and no other, and let this process know."""
    row = {"revision": secrets.token_hex(8), "values": values, "logo": logo}
    ShopSettings.objects.update_or_create(pk=ONLY_ROW, defaults=row)
    known.trust(for_s=0)
