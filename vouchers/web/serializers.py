"""The JSON of the public sale endpoints (``docs/http.md``)."""

from __future__ import annotations

import json
from typing import Any

from django.urls import reverse

from seckill_site.clock import epoch_ms
from seckill_site.web.responses import Answer
from vouchers.catalogue.listing import SaleCard
from vouchers.inventory.sale_state import Snapshot


def live_answer(snapshot: Snapshot) -> Answer:
    """Return the answer of ``live/``, cacheable for a second."""
    headers = (("Cache-Control", "public, max-age=1"), ("Vary", "Accept"))
    return Answer(200, json.dumps(live_json(snapshot)), headers)


def live_json(snapshot: Snapshot) -> dict[str, Any]:
    """Return the public figures of a sale."""
    return {
        "state": snapshot.state.value,
        "server_time_ms": snapshot.now_ms,
        "begins_at_ms": snapshot.terms.begins_at_ms,
        "ends_at_ms": snapshot.terms.ends_at_ms,
        "total": snapshot.terms.total,
        "remaining": snapshot.remaining,
    }


def card_json(card: SaleCard) -> dict[str, Any]:
    """Return a sale as an entry of the list."""
    sale = card.sale
    return {
        "voucher_id": str(sale.pk),
        "title": sale.voucher.title,
        "price_cents": sale.voucher.price_cents,
        "face_value_cents": sale.voucher.face_value_cents,
        "state": card.state.value,
        "begins_at_ms": epoch_ms(sale.begins_at),
        "ends_at_ms": epoch_ms(sale.ends_at),
        "total": card.total,
        "remaining": card.remaining,
        "url": reverse("purchase", args=[sale.pk]),
    }
