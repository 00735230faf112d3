"""The buyers of the benchmark's evening: what each of them asks for, and in what order."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from bench.sale.buyers import buyers_with_pages, load_and_order, wait_and_order
from bench.sale.generator import Reply, Step, Visit

pytestmark = pytest.mark.quick

ME = {"signed_in": True, "sale": {"token": "7-1-5-0:signed"}}


@pytest.fixture
def visit() -> Visit:
    """A buyer who loads the page after one and two seconds; the sale starts after ten."""
    return load_and_order(5, "sessionid=key", [1.0, 2.0], 10.0)


def next_step(visit: Visit, answered: int, at_s: float, **body: Any) -> Step:
    return visit.send(Reply(answered, json.dumps(body).encode(), at_s))


def press(visit: Visit) -> Step:
    """Load the pages; return the order."""
    steps = [
        next(visit),
        next_step(visit, 200, 1.1),
        next_step(visit, 200, 1.2, me_pace_ms=0),
        next_step(visit, 200, 1.3, **ME),
        next_step(visit, 200, 2.1),
        next_step(visit, 200, 2.2, me_pace_ms=0),
        next_step(visit, 200, 2.3, **ME),
    ]
    assert [it.name for it in steps] == ["page", "live/", "me/", "page", "live/", "me/", "order"]
    assert [it.due_s for it in steps if it.due_s] == [1.0, 1.2, 2.0, 2.2, 10.0]
    sent = [it.request for it in steps if it.name in ("page", "me/")]
    assert all(b"Cookie: sessionid=key" in request for request in sent)
    return steps[-1]


def test_pages_ask_me_at_the_servers_pace() -> None:
    for pace_ms, least, most in ((500, 2.2, 2.7), (60_000, 2.2, 5.0)):
        dues = set()
        for _ in range(100):
            visit = load_and_order(5, "sessionid=key", [2.0], 10.0)
            next(visit)
            next_step(visit, 200, 2.1)
            dues.add(next_step(visit, 200, 2.2, me_pace_ms=pace_ms).due_s)
        assert least <= min(dues) < max(dues) <= most


def test_reloaded_page_asks_no_more(visit: Visit) -> None:
    next(visit)
    next_step(visit, 200, 1.1)
    step = next_step(visit, 200, 2.5, me_pace_ms=0)  # a late answer
    assert (step.name, step.due_s) == ("page", 2.0)


def test_buyer_orders_with_the_token_of_the_page(visit: Visit) -> None:
    order = press(visit)
    assert order.request.startswith(b"POST /vouchers/5/orders/ ")
    assert ME["sale"]["token"].encode() in order.request  # type: ignore[index]


def test_buyer_follows_the_receipt_at_the_servers_pace(visit: Visit) -> None:
    press(visit)
    queued = {"order_id": "7", "status": "queued", "poll_after_ms": 500}
    receipt = next_step(visit, 202, 11.0, **queued)
    assert (receipt.name, receipt.due_s) == ("receipt", 11.5)
    assert receipt.request.startswith(b"GET /vouchers/5/orders/7/ ")
    assert next_step(visit, 200, 12.0, **queued).due_s == 12.5
    with pytest.raises(StopIteration):
        next_step(visit, 200, 13.0, status="unpaid")


def test_refused_buyer_leaves(visit: Visit) -> None:
    press(visit)
    with pytest.raises(StopIteration):
        next_step(visit, 409, 11.0, code="sold_out")


def test_buyer_sends_the_same_order_again_after_a_503(visit: Visit) -> None:
    order = press(visit)
    again = next_step(visit, 503, 11.0, code="unavailable")
    assert again == order._replace(due_s=12.0)


def test_page_is_loaded_once_and_reloaded_twice_in_the_last_minute() -> None:
    opens_at = time.time() + 150
    for visit in buyers_with_pages(5, ["sessionid=key"] * 50, opens_at, 60):
        step, loads = next(visit), []
        while step.name != "order":
            loads += [step.due_s] if step.name == "page" else []
            step = next_step(visit, 200, step.due_s, me_pace_ms=0, **ME)
        first, second, third = (step.due_s - it for it in loads)
        assert 0 <= third <= second <= 60 <= first <= 120


def test_visitor_who_lost_the_turn_waits_again_with_the_signed_place() -> None:
    """As a browser does when Redis comes back without the last moment."""
    visit = wait_and_order(5, "sessionid=key", 1.0)
    next(visit)
    next_step(visit, 200, 1.1)
    no_token = {"sale": {"token": ""}}
    room = next_step(visit, 200, 1.2, **no_token)
    head = b"HTTP/1.1 200 OK\r\nSet-Cookie: place=9; Path=/\r\n"
    me = visit.send(Reply(200, b'{"turn": "in"}', 1.3, head))
    again = next_step(visit, 200, 1.4, **no_token)
    assert [it.name for it in (room, me, again)] == ["room/", "me/", "room/"]
    assert b"place" not in room.request
    assert b"Cookie: sessionid=key; place=9\r\n" in me.request
    assert b"Cookie: sessionid=key; place=9\r\n" in again.request
    next_step(visit, 200, 1.5, turn="in")
    assert next_step(visit, 200, 1.6, **ME).name == "order"


def test_visitor_whom_a_rule_refuses_does_not_wait_for_ever() -> None:
    visit = wait_and_order(5, "sessionid=key", 1.0)
    next(visit)
    next_step(visit, 200, 1.1)
    with pytest.raises(ValueError, match="unpaid_orders"):
        next_step(visit, 200, 1.2, sale={"token": "", "rule": "unpaid_orders"})
