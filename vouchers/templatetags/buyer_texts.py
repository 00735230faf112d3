"""Texts of the buyer pages, by the codes of the server (messages for programs: web/refusals.py).

``buyer_texts.toml`` has the sentences; here they become pages. The same dictionaries render the
first view of a page and go into it as JSON, so that the texts of server and script cannot differ.
"""

from pathlib import Path
from typing import Any

from seckill_site.web.text_files import read_texts


def _replaced(page: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return a page with other texts in place of its own, at any depth."""
    return page | {
        key: _replaced(page[key], it) if isinstance(it, dict) else it for key, it in others.items()
    }


_TEXTS = read_texts(Path(__file__).with_suffix(".toml"))

STOCK, TERMS, WHY, MAIL = (_TEXTS[it] for it in ("stock", "terms", "why", "mail"))
MAIL_SUBJECTS = _TEXTS["mail_subject"]
DAYS, RULES_LISTED = _TEXTS["clock"]["days"], _TEXTS["rule_listed"]

VISITOR_STATES = {"scheduled": "sign_in", "open": "sign_in_open"}
"""The button's state for a visitor, by the sale's state; any other is shown as it is."""

_LIVE = {
    "clock": _TEXTS["clock"],
    **STOCK,
    "connection": _TEXTS["connection"],
    "age": {unit: WHY[unit] for unit in ("s", "min", "h")},
}

_PURCHASE: dict[str, Any] = {
    "visitor_states": VISITOR_STATES,
    **_TEXTS["purchase"],
    "pay_end": _TEXTS["pay_end"],
    **_LIVE,
    "queue": _TEXTS["queue"],
    "why": WHY,
    "your_turn": _TEXTS["room"]["heading"]["in"],
}
_PURCHASE_DRAW = _replaced(_PURCHASE, _TEXTS["purchase_draw"])
_PURCHASE_DRAWN = _replaced(_PURCHASE_DRAW, _TEXTS["purchase_drawn"])

RECEIPT = {
    **_TEXTS["receipt"],
    "end": _TEXTS["pay_end"],
    "clock": {"days": DAYS},
    "queue": _TEXTS["queue"],
    "proof": {**_TEXTS["chain"]["result"], **_TEXTS["chain"]["own"]},
}

PAGES: dict[str, dict[str, Any]] = {
    "purchase": _PURCHASE,
    "purchase_draw": _PURCHASE_DRAW,
    "purchase_drawn": _PURCHASE_DRAWN,
    "purchase_form": _replaced(_PURCHASE, _TEXTS["purchase_form"]),
    "purchase_form_draw": _replaced(_PURCHASE_DRAW, _TEXTS["purchase_form"]),
    "list": {"badge": _TEXTS["badge"], **_LIVE},
    "receipt": RECEIPT,
    "receipt_several": _replaced(RECEIPT, _TEXTS["receipt_several"]),
    **{it: _TEXTS[it] for it in ("draw", "chain", "order_status", "waiting")},
    **{it: _TEXTS[it] for it in ("room", "redeem", "mail", "mail_several", "purchase_several")},
}
