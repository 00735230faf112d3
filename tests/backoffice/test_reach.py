"""Every page of staff can be reached: by links alone, from where a role lands after signing in."""

from __future__ import annotations

import re
from collections import deque
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import pytest
from django.test import Client
from django.urls import Resolver404, resolve
from django.utils import timezone

from orders.models import InvitationCode, Rehearsal, RoomVisit
from tests.orders.test_roles import PAGES, browser_of, unprobed, world
from tests.support.sales import make_waiting

__all__ = ["unprobed", "world"]

pytestmark = pytest.mark.slow

HOMES = {
    "cashier": "/staff/redeem/",
    **dict.fromkeys(("reader", "clerk", "operator", "owner"), "/admin/"),
}

OFFICE = ("/admin/", "/staff/")

NOT_LINKED = {
    # What scripts of a page ask for, or a form of it sends; nobody opens it.
    *("admin:sale-check", "admin:sale-board-data", "admin:orders_rehearsal_progress"),
    *("admin:vouchers_voucher_process_import", "admin:system-reconcile"),
    *("redeem-worker", "undo-redemption"),
    *("admin:orders_voucherorder_find", "admin:customer-send"),
    "admin:accounts_invitation_resend",
    # What an action of a list leads to, for the chosen rows.
    *("admin:sale-copies", "admin:sale-publish", "admin:sale-withdraw"),
    *("admin:sale-pause", "admin:sale-resume"),
    *("admin:orders_voucherorder_cancel_many", "admin:orders_voucherorder_refund_many"),
    "admin:orders_rehearsal_cancel",
    # Linked while an address is limited, which may end before the walk gets there.
    "admin:sale-board-lift-limits",
    # The history of what processes alone change is empty.
    *("admin:orders_rehearsal_history", "admin:orders_orderjob_history"),
    # Locks are in Redis: there is a list of them, and no page of one.
    *(f"admin:locks_lock_{it}" for it in ("change", "history", "delete")),
}

LINK = re.compile(r'<a\b[^>]*?\bhref="([^"]+)"')


def pages_of(who: str) -> set[str]:
    """Return the pages that a role may open, of the table of all."""
    pages = {key.partition(",")[0] for key, row in PAGES.items() if who in row.see} - NOT_LINKED
    if who == "clerk":  # deletes rehearsals together with their sale, and sees none
        pages.discard("admin:orders_rehearsal_delete")
    return pages - {"admin:index"} if who == "cashier" else pages  # Today sends them to Redeem


def reached(client: Client, home: str) -> tuple[set[str], dict[str, str]]:
    """Follow all links within the back office; return the pages, and links that led nowhere."""
    pages, dead = set[str](), dict[str, str]()
    waiting, seen = deque([(home, "")]), {(home, "")}
    while waiting:
        url, source = waiting.popleft()
        response: Any = client.get(url)
        if response.status_code == 302 and response["Location"].startswith(OFFICE):
            pages.add(resolve(urlsplit(url).path).view_name)
            there = response["Location"]
            if (urlsplit(there).path, fields(there)) not in seen:
                seen.add((urlsplit(there).path, fields(there)))
                waiting.append((there, url))
            continue
        if response.status_code != 200:
            dead[url] = f"{response.status_code}, from {source}"
            continue
        pages.add(resolve(urlsplit(url).path).view_name)
        if not response.get("Content-Type", "").startswith("text/html"):
            continue
        for href in map(unescape, LINK.findall(response.text)):
            there = urljoin(url, href).partition("#")[0]
            path, kind = urlsplit(there).path, fields(there)
            again = fields(url) and path == urlsplit(url).path  # a filter beside another
            if (
                (path, kind) not in seen
                and not again
                and path.startswith(OFFICE)
                and leads_on(path)
            ):
                seen.add((path, kind))
                waiting.append((there, url))
    return pages, dead


def fields(url: str) -> str:
    """Return the names in a query: a page may be another one with them, by any value."""
    return " ".join(sorted(parse_qs(urlsplit(url).query, keep_blank_values=True)))


def leads_on(path: str) -> bool:
    try:
        return "logout" not in resolve(path).view_name
    except Resolver404:
        return True  # a dead link is found by following it


@pytest.mark.parametrize("who", HOMES)
def test_every_page_of_a_role_is_reached_from_its_first(who: str, world: dict[str, Any]) -> None:
    """And no link leads to a page that the role may not open."""
    now, buyer = timezone.now(), world["user"]
    visit = {"opened_ms": 1, "given": 1, "joined_at": now}
    RoomVisit.objects.create(seckill_voucher=world["sale"], user=buyer, **visit)
    make_waiting(world["sale"], buyer, order_id=7)
    InvitationCode.objects.update(user=buyer, entered_at=now)
    Rehearsal.objects.update(actor=buyer)
    pages, dead = reached(browser_of(who), HOMES[who])
    assert dead == {}
    assert pages_of(who) - pages == set()
