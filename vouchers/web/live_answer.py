"""The answer of ``live/``, the same at the front door and in Django's view."""

import json
from typing import Any

from django.utils.translation import gettext_noop

from seckill_site.web.responses import Answer
from vouchers.catalogue.public_sales import KnownSale
from vouchers.inventory.sale_state import Snapshot
from vouchers.models import SaleMode
from vouchers.web.pace import me_pace_ms

NO_SALE_TEXT = gettext_noop("We couldn't find that sale.")
NOT_LOADED_TEXT = gettext_noop("The sale is not loaded yet. Try again in a moment.")


def live_answer(snapshot: Snapshot, sale: KnownSale) -> Answer:
    """Return the answer of ``live/``, cacheable for a second."""
    headers = (("Cache-Control", "public, max-age=1"), ("Vary", "Accept"))
    content = live_json(snapshot) | {"me_pace_ms": me_pace_ms(), "revision": sale.revision}
    return Answer(200, json.dumps(content), headers)


def live_json(snapshot: Snapshot) -> dict[str, Any]:
    """Return the public figures of a sale."""
    figures = {
        "state": snapshot.state.value,
        "server_time_ms": snapshot.now_ms,
        "begins_at_ms": snapshot.terms.begins_at_ms,
        "ends_at_ms": snapshot.terms.ends_at_ms,
        "total": snapshot.terms.total,
        "remaining": snapshot.remaining,
    }
    if snapshot.terms.draw_gives_until_ms:
        figures |= {"mode": SaleMode.DRAW.value, "entries": snapshot.entries}
    return figures
