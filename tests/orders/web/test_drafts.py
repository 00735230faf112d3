"""A draft is no sale to buyers: each address answers as for an id that does not exist."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import get_resolver

from tests.support import asgi
from tests.support.browsers import HTML, browser_of, session_cookie
from tests.support.orders import make_buyer, make_sale
from tests.support.staff import staff_with, words
from tests.support.tiers import slow_after
from vouchers.models import SaleStage

pytestmark = pytest.mark.django_db(transaction=True)

UNKNOWN_SALE = 987_654_321
ORDER_ID = 1_000_000
SENT = {"token": "x", "code": "ABCDEF", "attempt": "1"}
MADE_UP_SESSION = f"sessionid={'x' * 32}"

ROUTES = [
    "me/?sale=<id:sale_id>",
    *(
        str(pattern.pattern)
        for included in get_resolver().url_patterns
        for pattern in getattr(included, "url_patterns", [])
        if str(pattern.pattern).startswith("vouchers/<id:sale_id>/")
    ),
]


def answers_of(route: str, sale_id: int, user: User) -> dict[str, Any]:
    """Return all answers of an address, without the sale's own id and the time."""
    path = "/" + route.replace("<id:sale_id>", str(sale_id)).replace("<id:order_id>", str(ORDER_ID))
    answers: dict[str, Any] = {}
    for accept in ("application/json", HTML["Accept"]):
        headers = {"Accept": accept}
        for who, client in {"visitor": Client(), "buyer": browser_of(user)}.items():
            for ask in (
                client.get(path, headers=headers),
                client.post(path, SENT, headers=headers),
            ):
                name = f"{who} {ask.request['REQUEST_METHOD']} {accept}"
                answers[name] = (ask.status_code, ask.get("Location", ""), words(ask.text))
        for who, cookie in {
            "visitor": "",
            "buyer": session_cookie(user),
            "stranger": MADE_UP_SESSION,
        }.items():
            asked = asgi.ask("GET", path, accept=accept, HTTP_COOKIE=cookie)
            answers[f"{who} at the door {accept}"] = (asked.status, words(asked.body.decode()))
    own = rf"\b{sale_id}\b|_ms\": \d+"  # of the texts alone: a status may be the same number
    return {name: (it[0], re.sub(own, "", repr(it[1:]))) for name, it in answers.items()}


@pytest.mark.parametrize("route", slow_after(1, ROUTES))
def test_draft_is_answered_like_an_unknown_sale(route: str) -> None:
    draft, buyer = make_sale(stage=SaleStage.DRAFT), make_buyer()
    shown = answers_of(route, draft.pk, buyer)
    unknown = answers_of(route, UNKNOWN_SALE, buyer)
    assert {name: it for name, it in shown.items() if it != unknown[name]} == {}


@pytest.mark.parametrize(("required", "status"), [(True, 404), (False, 200)])
def test_staff_without_a_required_factor_sees_no_draft(
    settings: Any, required: bool, status: int
) -> None:
    settings.SECKILL_STAFF_SECOND_FACTOR = required
    draft = make_sale(stage=SaleStage.DRAFT)
    assert (
        staff_with("view_seckillvoucher").get(f"/vouchers/{draft.pk}/form/").status_code == status
    )
