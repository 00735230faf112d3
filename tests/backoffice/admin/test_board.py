"""The board in the admin: its page, permissions, actions and history."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.cache import cache
from django.db import OperationalError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from pytest_django import Settings

from backoffice.admin import board as board_admin
from orders.fulfilment.worker import fulfil_sale
from orders.models import OrderStatus, VoucherOrder
from seckill_site.process_memory import forget_everything
from tests.support.inspection import broker_length, empty_broker, ledger_contents, rows
from tests.support.orders import (
    make_buyer,
    make_buyers,
    make_order,
    make_sale,
    pending,
    reserved,
    reserved_sale,
    written_orders,
)
from tests.support.patience import wait_for
from tests.support.sales import change_stock, make_loaded_sale, reserve
from tests.support.staff import said, staff_with, words
from tests.support.tiers import slow_after
from vouchers.catalogue.history import history_text
from vouchers.inventory import rebuild
from vouchers.inventory.batch_journal import set_aside
from vouchers.inventory.reservations import OrdersLimited
from vouchers.inventory.sale_state import snapshot
from vouchers.inventory.waiting_list import join_waiting
from vouchers.models import SaleState, SeckillVoucher

SALES = "/admin/vouchers/seckillvoucher/"
ACTIONS = ("pause", "resume", "extend", "stock", "end")


pytestmark = pytest.mark.django_db
commits = pytest.mark.django_db(transaction=True)
"""Marks tests of actions that widen a sale: Redis follows when they are committed."""


def board_of(sale: SeckillVoucher, what: str = "") -> str:
    return f"{SALES}{sale.pk}/board/{what}"


def data_of(client: Client, sale: SeckillVoucher) -> dict[str, Any]:
    response = client.get(board_of(sale, "data/"), headers={"Accept": "application/json"})
    assert response.status_code == 200
    return dict(response.json())


def will(client: Client, sale: SeckillVoucher, name: str) -> list[str]:
    """Return the sentences of a confirmation page."""
    response = client.get(board_of(sale, f"{name}/"))
    assert response.status_code == 200
    return list(response.context["will"])


def seen_by(client: Client, sale: SeckillVoucher, name: str) -> dict[str, Any]:
    """Return the initial values of the form on a confirmation page."""
    page = client.get(board_of(sale, f"{name}/")).text
    seen = re.search(r'name="seen" value="([^"]*)"', page)
    return {"seen": unescape(seen[1])} if seen else {}


def act(client: Client, sale: SeckillVoucher, name: str, **fields: Any) -> Any:
    """Submit the form of a confirmation page."""
    fields = {"reason": "", **seen_by(client, sale, name), **fields}
    return client.post(board_of(sale, f"{name}/"), fields)


def stored(sale: SeckillVoucher) -> SeckillVoucher:
    return SeckillVoucher.objects.get(pk=sale.pk)


def state_of(sale: SeckillVoucher) -> SaleState:
    return snapshot(sale_id=sale.pk).state


def everything(sale: SeckillVoucher) -> Any:
    return ledger_contents(), rows(), LogEntry.objects.count()


def entries() -> list[tuple[str, str]]:
    """Return the log entries of sales, newest first."""
    return [(it.user.get_username(), history_text(it)) for it in LogEntry.objects.all()]


def to_the_second(moment: dt.datetime) -> str:
    return f"{timezone.localtime(moment):%Y-%m-%d %H:%M:%S}"


# --- The page and its figures --------------------------------------------------------------------


def test_board_shows_figures_without_script(operator: Client) -> None:
    sale = make_sale(stock=20)
    written_orders(sale, make_buyers(3))
    reserved(sale, [make_buyer()])
    make_order(sale, make_buyer(), status=OrderStatus.EXPIRED)

    page = operator.get(board_of(sale))

    text = words(page.text)
    assert "On sale" in text
    assert "Left 16 of 20" in text
    assert "20 = 16 + 1 + 3 adds up" in text
    assert "Gross revenue ¥0.00 · Refunds ¥0.00 · Net revenue ¥0.00" in text
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC\+8", text)
    assert "expired 1" in text
    assert 'aria-label="Left: 16 of 20 vouchers"' in page.text
    assert re.search(r'<noscript>\s*<meta http-equiv="refresh"', page.text)


@pytest.mark.parametrize(("ends_in_s", "is_over"), [(-1, True), (60, False)])
def test_ended_board_links_to_its_report(operator: Client, ends_in_s: int, is_over: bool) -> None:
    sale = make_sale(begins_in_s=-60, ends_in_s=ends_in_s)
    page = operator.get(board_of(sale)).text
    hidden, link = re.findall(r'data-over\s+(hidden)?>.*?href="([^"]*)"', page, re.DOTALL)[0]
    assert (not hidden, link) == (is_over, f"/admin/vouchers/seckillvoucher/{sale.pk}/report/")
    assert (f'href="{link}"' in operator.get("/admin/vouchers/seckillvoucher/").text) is is_over


def test_board_data_equals_the_page(operator: Client) -> None:
    sale = make_sale(stock=20)
    page = operator.get(board_of(sale)).text
    (block,) = re.findall(r'<script id="board-data"[^>]*>(.*?)</script>', page)
    found = json.loads(unescape(block))
    moving = {"now_ms", "chart"}
    assert {k: v for k, v in found.items() if k not in moving} == {
        k: v for k, v in data_of(operator, sale).items() if k not in moving
    }


def test_board_is_not_cached(operator: Client) -> None:
    response = operator.get(board_of(make_sale(), "data/"))
    assert {"private", "no-store"} <= set(response["Cache-Control"].split(", "))


@pytest.mark.parametrize("what", slow_after(1, ["", "data/", *(f"{name}/" for name in ACTIONS)]))
def test_missing_sale_is_not_found(operator: Client, what: str) -> None:
    assert operator.get(f"{SALES}999999/board/{what}").status_code == 404
    assert operator.post(f"{SALES}999999/board/{what}").status_code == 404


@pytest.mark.parametrize("what", slow_after(1, ["", "data/"]))
def test_board_page_works_without_redis(
    operator: Client, lose_ledger: Callable[[], None], what: str
) -> None:
    sale = make_sale()
    lose_ledger()
    response = operator.get(board_of(sale, what))
    assert response.status_code == 200
    assert "Redis is not responding" in response.text


@pytest.mark.parametrize("what", slow_after(1, ["", *(f"{name}/" for name in ACTIONS)]))
def test_pages_of_an_unloaded_sale_work(operator: Client, what: str) -> None:
    sale = make_sale(loaded=False, paused=what == "resume/")
    assert operator.get(board_of(sale, what)).status_code == 200


@pytest.mark.slow
@commits
def test_board_query_count_ignores_history_length(operator: Client) -> None:
    def statements() -> int:
        cache.clear()  # the counts are kept for a second, which may be over now or not
        with CaptureQueriesContext(connection) as captured:
            data_of(operator, sale)
        return len(captured)

    sale = make_sale(stock=100)
    data_of(operator, sale)  # what is asked for once in a process
    before = statements()
    for stock in range(101, 113):
        act(operator, sale, "stock", stock=stock)
    written_orders(sale, make_buyers(30))
    assert statements() == before


# --- Permissions ---------------------------------------------------------------------------------


def test_viewer_sees_board_without_buttons(looker: Client) -> None:
    sale = make_sale()
    page = looker.get(board_of(sale))
    assert page.status_code == 200
    assert "data-action" not in page.text
    assert data_of(looker, sale)["actions"] == []


@pytest.mark.parametrize(
    ("fields", "offered"),
    slow_after(
        2,
        [
            ({}, ["pause", "extend", "stock", "open-room", "end"]),
            ({"paused": True}, ["resume", "extend", "stock", "open-room", "end"]),
            ({"begins_in_s": 60}, ["pause", "extend", "stock", "open-room"]),
            (
                {"room": "busy", "room_opened_ms": 1, "room_since_ms": 1},
                ["pause", "extend", "stock", "room-rate", "close-room", "end"],
            ),
            ({"ends_in_s": -1}, []),
        ],
    ),
)
def test_only_possible_actions_are_offered(
    operator: Client, fields: dict[str, Any], offered: list[str]
) -> None:
    sale = make_sale(**fields)
    assert data_of(operator, sale)["actions"] == offered
    page = operator.get(board_of(sale)).text
    assert re.findall(r'<li data-action="([\w-]+)"\s*>', page) == offered


# --- Confirmation --------------------------------------------------------------------------------


def test_end_confirmation_shows_live_figures(operator: Client) -> None:
    sale, buyers = make_sale(stock=3), make_buyers(5)
    reserved(sale, buyers[:3])
    for place, other in enumerate(buyers[3:]):
        join_waiting(sale_id=sale.pk, order_id=700 + place, user_id=other.pk, joined_at_ms=place)
    assert will(operator, sale, "end") == [
        "Ends the sale now for everyone.",
        "0 vouchers are unsold.",
        "3 orders in the queue will still be processed.",
        "2 buyers on the waiting list get nothing.",
        "Existing orders are kept and can be paid.",
        "This cannot be undone: an ended sale cannot be resumed or extended.",
    ]


def test_each_confirmation_says_what_will_happen(operator: Client) -> None:
    sale = make_sale(stock=1_500)
    reserved(sale, [make_buyer()])
    end = to_the_second(sale.ends_at)
    assert will(operator, sale, "pause")[:2] == [
        "Nobody can buy until the sale is resumed. Its end does not move.",
        "1 order in the queue will still be processed.",
    ]
    assert will(operator, sale, "extend") == [
        f"The sale currently ends at {end}. Buyers can buy until the new end.",
        "1,499 of 1,500 vouchers are left.",
    ]
    assert will(operator, sale, "stock")[:2] == [
        "1,500 vouchers are now offered, and 1,499 of them are left.",
        "The stock cannot go below the 1 already taken or above 1,000,000.",
    ]


def test_resuming_a_future_sale_promises_no_immediate_buying(operator: Client) -> None:
    assert will(operator, make_sale(paused=True, stock=7), "resume") == [
        "Buyers can buy again at once: 7 of 7 vouchers are left."
    ]
    coming = make_sale(paused=True, stock=7, begins_in_s=60)
    assert will(operator, coming, "resume") == [
        "Buyers can buy once the sale starts: 7 of 7 vouchers are left."
    ]


# --- Actions and history -------------------------------------------------------------------------


@commits
def test_pause_and_resume_are_recorded(operator: Client) -> None:
    sale = make_sale()

    paused = act(operator, sale, "pause", reason="too many complaints")
    assert state_of(sale) is SaleState.PAUSED
    resumed = act(operator, sale, "resume")

    assert (paused.url, resumed.url) == (board_of(sale), board_of(sale))
    assert said(paused) == ["success: Paused. Reason: too many complaints"]
    assert said(resumed)[-1] == "success: Resumed"
    assert state_of(sale) is SaleState.OPEN
    assert entries() == [
        ("clerk", "Resumed"),
        ("clerk", "Paused. Reason: too many complaints"),
    ]


@commits
@pytest.mark.parametrize(("by", "minutes"), slow_after(2, [("5", 5), ("15", 15), ("60", 60)]))
def test_end_moves_by_minutes(operator: Client, by: str, minutes: int) -> None:
    sale = make_sale()

    act(operator, sale, "extend", by=by, reason="late buses")

    end = sale.ends_at + dt.timedelta(minutes=minutes)
    assert stored(sale).ends_at == end
    assert snapshot(sale_id=sale.pk).terms.ends_at_ms == int(end.timestamp() * 1000)
    line = f"Ends at: {to_the_second(sale.ends_at)} → {to_the_second(end)}. Reason: late buses"
    assert entries() == [("clerk", line)]


@commits
@pytest.mark.parametrize(
    "written", slow_after(1, ["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S"])
)
def test_new_end_is_in_the_shops_time_zone(operator: Client, written: str) -> None:
    sale = make_sale()
    end = (sale.ends_at + dt.timedelta(days=1)).replace(second=0, microsecond=0)

    act(operator, sale, "extend", by="until", until=f"{timezone.localtime(end):{written}}")

    assert stored(sale).ends_at == end


@commits
def test_sale_is_extended_into_the_repeated_hour(operator: Client, settings: Settings) -> None:
    settings.TIME_ZONE = "America/New_York"
    end = dt.datetime(2027, 11, 7, 5, 20, tzinfo=dt.UTC)  # 01:20, for the first time
    sale = make_loaded_sale(ends_at=end)
    page = operator.get(board_of(sale, "extend/")).text
    [until] = re.findall(r'type="text" name="until" value="([^"]*)"', page)
    assert until == "2027-11-07T01:25:00-04:00"

    act(operator, sale, "extend", by="5", until=until)
    assert stored(sale).ends_at == end + dt.timedelta(minutes=5)
    act(operator, sale, "extend", by="until", until=until.replace("-04", "-05"))
    assert stored(sale).ends_at == end + dt.timedelta(minutes=65)


@commits
@pytest.mark.parametrize("stock", slow_after(1, [3, 5_000]))
def test_stock_changes_up_and_down(operator: Client, stock: int) -> None:
    sale = make_sale(stock=10)
    reserved(sale, make_buyers(3))

    response = act(operator, sale, "stock", stock=stock)

    assert stored(sale).stock == snapshot(sale_id=sale.pk).terms.total == stock
    assert said(response) == [f"success: Stock: 10 → {stock:,}"]
    assert entries() == [("clerk", f"Stock: 10 → {stock:,}")]


@commits
@pytest.mark.parametrize(("waiting", "tasks"), [(1, 1), (0, 0)])
def test_added_stock_sends_the_task_of_who_waits(
    operator: Client, waiting: int, tasks: int
) -> None:
    sale = make_sale(stock=1)
    written_orders(sale, [make_buyer()])
    for order_id in range(901, 901 + waiting):
        join_waiting(sale_id=sale.pk, order_id=order_id, user_id=make_buyer().pk, joined_at_ms=1)
    empty_broker()

    act(operator, sale, "stock", stock=2)

    assert broker_length() == tasks
    assert snapshot(sale_id=sale.pk).pending == tasks


@commits
def test_ended_sale_stays_ended(operator: Client) -> None:
    sale = make_sale()

    act(operator, sale, "end", reason="fraud")

    assert state_of(sale) is SaleState.ENDED
    before, after = to_the_second(sale.ends_at), to_the_second(stored(sale).ends_at)
    line = f"Ended now; Ends at: {before} → {after}. Reason: fraud"
    assert entries() == [("clerk", line)]
    assert data_of(operator, sale)["actions"] == []


@pytest.mark.slow
@commits
def test_board_lists_the_last_ten_changes(operator: Client) -> None:
    sale = make_sale(stock=10)
    for stock in range(11, 23):
        act(operator, sale, "stock", stock=stock, reason=f"<b>{stock}</b>")
    act(operator, make_sale(), "pause", reason="another sale")

    history = data_of(operator, sale)["history"]

    assert [it["what"] for it in history] == [
        f"Stock: {stock - 1} → {stock}. Reason: <b>{stock}</b>" for stock in range(22, 12, -1)
    ]
    assert {it["by"] for it in history} == {"clerk"}
    assert (
        "<b>" not in operator.get(board_of(sale)).text.split("data-history")[1].split("<script")[0]
    )


@pytest.mark.parametrize(
    ("name", "outcome"), [("retry-unwritten", "unpaid"), ("refuse-unwritten", "refused")]
)
def test_staff_decide_about_unwritten_orders(operator: Client, name: str, outcome: str) -> None:
    sale, (token,) = reserved_sale([make_buyer()], stock=5)
    assert name not in data_of(operator, sale)["actions"]
    set_aside(sale_id=sale.pk, entries=[pending(sale)[0]])
    found = data_of(operator, sale)
    assert name in found["actions"]
    assert "1 accepted order could not be written and waits" in found["alert"]["text"]
    assert "Its buyer is waiting." in will(operator, sale, name)[0]

    act(operator, sale, name, reason="checked")
    fulfil_sale(sale_id=sale.pk)

    assert VoucherOrder.objects.get(pk=token.order_id).status == outcome
    assert "the orders that could not be written. Reason: checked" in entries()[0][1]
    assert name not in data_of(operator, sale)["actions"]


def test_action_loads_an_unloaded_sale_first(operator: Client) -> None:
    sale = make_sale(loaded=False)
    act(operator, sale, "pause", reason="not yet")
    assert state_of(sale) is SaleState.PAUSED


def test_change_unknown_to_redis_is_a_warning(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = make_sale(paused=True)
    monkeypatch.setattr(transaction, "on_commit", lambda call: None)  # it goes away just now
    response = act(operator, sale, "resume")
    assert stored(sale).paused is False
    assert said(response)[1].startswith("warning: Redis does not know about this yet")


# --- Refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pause", "end"])
@pytest.mark.parametrize("reason", slow_after(1, ["", "   ", "x" * 201]))
def test_pause_and_end_need_a_reason(operator: Client, name: str, reason: str) -> None:
    sale = make_sale()
    before = everything(sale)
    response = act(operator, sale, name, reason=reason)
    assert response.status_code == 200
    assert "errorlist" in response.text
    assert everything(sale) == before


@pytest.mark.parametrize("name", slow_after(1, ACTIONS))
def test_sale_that_is_over_is_not_changed(operator: Client, name: str) -> None:
    sale = make_sale(ends_in_s=-1, paused=name == "resume")
    before = everything(sale)
    fields = {"reason": "why", "stock": 50, "by": "5", "seen": sale.ends_at.isoformat()}
    for response in (
        operator.get(board_of(sale, f"{name}/")),
        operator.post(board_of(sale, f"{name}/"), fields),
    ):
        assert response["Location"] == board_of(sale)
        assert said(response)[-1] == (
            "error: Nothing was changed: the sale has ended. To sell again, copy it."
        )
    assert everything(sale) == before


def test_future_sale_cannot_be_ended(operator: Client) -> None:
    sale = make_sale(begins_in_s=60)
    before = everything(sale)
    response = operator.post(board_of(sale, "end/"), {"reason": "why"})
    assert said(response) == [
        "error: Nothing was changed: the sale has not started, so there is "
        "nothing to end. Delete it or set it back to draft."
    ]
    assert everything(sale) == before


def test_stock_cannot_go_below_taken_units(operator: Client) -> None:
    sale = make_sale(stock=10)
    reserved(sale, make_buyers(3))
    before = everything(sale)

    response = act(operator, sale, "stock", stock=2, reason="fewer came")

    assert "3 vouchers are already taken" in response.text
    assert 'value="fewer came"' in response.text
    assert everything(sale) == before


@pytest.mark.parametrize(
    "stock", slow_after(1, ["", "10", "-1", "1000001", "1.5", "many", "9" * 400, "\0"])
)
def test_invalid_stock_shows_the_form_again(operator: Client, stock: str) -> None:
    sale = make_sale()
    before = everything(sale)
    response = act(operator, sale, "stock", stock=stock)
    assert response.status_code == 200
    assert "errorlist" in response.text
    assert everything(sale) == before


@pytest.mark.parametrize(
    ("by", "until"),
    slow_after(2, [
        ("", ""), ("7", ""), ("until", ""), ("until", "soon"), ("until", "2020-01-01T00:00:00"),
        ("until", "2101-01-01T00:00:00"), ("until", "9999-12-31T23:59:59"),
    ]),
)  # fmt: skip
def test_invalid_end_shows_the_form_again(operator: Client, by: str, until: str) -> None:
    sale = make_sale()
    before = everything(sale)
    response = act(operator, sale, "extend", by=by, until=until)
    assert response.status_code == 200
    assert "errorlist" in response.text
    assert everything(sale) == before


@pytest.mark.parametrize(
    ("name", "seen"),
    slow_after(
        2,
        [
            ("stock", "many"),
            ("stock", ""),
            ("end", "soon"),
            ("end", "2026-11-11"),
            ("extend", "\0"),
            ("extend", "9999-12-31T23:59:59+00:00"),
            ("extend", "0001-01-01T00:00:00+00:00"),
        ],
    ),
)
def test_foreign_form_is_a_bad_request(operator: Client, name: str, seen: str) -> None:
    sale = make_sale()
    before = everything(sale)
    response = act(operator, sale, name, seen=seen, stock=9, by="5", reason="why")
    assert response.status_code == 400
    assert everything(sale) == before


@commits
@pytest.mark.parametrize(
    ("name", "fields"),
    slow_after(
        2,
        [
            ("pause", {"reason": "why"}),
            ("resume", {}),
            ("extend", {"by": "5"}),
            ("stock", {"stock": 20}),
            ("end", {"reason": "why"}),
        ],
    ),
)
def test_form_sent_twice_acts_once(operator: Client, name: str, fields: dict[str, Any]) -> None:
    sale = make_sale(stock=10, paused=name == "resume")
    fields = {"reason": "", **seen_by(operator, sale, name), **fields}

    first = operator.post(board_of(sale, f"{name}/"), fields)
    done = everything(sale)
    second = operator.post(board_of(sale, f"{name}/"), fields)

    assert said(first)[-1].startswith("success")
    assert said(second)[-1].startswith("error: Nothing was changed")
    assert everything(sale) == done
    assert len(entries()) == 1


@commits
def test_outdated_stock_form_is_shown_again(operator: Client) -> None:
    sale = make_sale(stock=10)
    seen = seen_by(operator, sale, "stock")
    change_stock(sale_id=sale.pk, stock=500)

    response = operator.post(board_of(sale, "stock/"), {"stock": 20, "reason": "", **seen})

    assert response["Location"] == board_of(sale, "stock/")
    assert said(response) == [
        "error: Nothing was changed: someone else changed the sale first. Check its current state."
    ]
    assert stored(sale).stock == 500
    assert seen_by(operator, sale, "stock") == {"seen": "500"}


@pytest.mark.parametrize("name", slow_after(1, ACTIONS))
def test_board_action_without_redis_changes_nothing(
    operator: Client, lose_ledger: Callable[[], None], name: str
) -> None:
    sale = make_sale(stock=10, paused=name == "resume")
    seen = seen_by(operator, sale, name)
    before = rows()
    lose_ledger()

    fields = {"reason": "why", "stock": 20, "by": "5", **seen}
    response = operator.post(board_of(sale, f"{name}/"), fields)

    assert said(response) == ["error: The change was not saved: Redis did not respond. Try again."]
    assert rows() == before
    assert not entries()


def test_lock_timeout_is_a_message(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(**kwargs: Any) -> None:
        raise OperationalError(1205, "Lock wait timeout exceeded")

    sale = make_sale()
    monkeypatch.setattr(rebuild, "lock_seckill_voucher", locked)
    response = act(operator, sale, "pause", reason="why")
    assert said(response) == ["error: Redis or the database did not respond. Try again."]
    assert not entries()


@commits
def test_change_and_history_are_one_transaction(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut(*args: Any, **kwargs: Any) -> None:
        raise OperationalError(2013, "Lost connection to server during query")

    sale = make_sale(stock=10)
    monkeypatch.setattr(board_admin, "entry", cut)
    act(operator, sale, "stock", stock=20)
    assert (stored(sale).stock, snapshot(sale_id=sale.pk).terms.total) == (10, 10)


# --- Links to the board --------------------------------------------------------------------------


@pytest.fixture
def owner() -> Client:
    return staff_with(name="owner", is_owner=True)


def test_list_links_to_boards_of_unfinished_sales(owner: Client) -> None:
    running, coming, over = make_sale(), make_sale(begins_in_s=60), make_sale(ends_in_s=-1)
    page = owner.get(SALES).text
    assert f'<a href="{board_of(running)}">Board</a>' in page
    assert f'<a href="{board_of(coming)}">Board</a>' in page
    assert board_of(over) not in page


def test_sale_form_links_to_board_and_site(owner: Client) -> None:
    sale = make_sale()
    page = owner.get(f"{SALES}{sale.pk}/change/").text
    tools = page.split('class="object-tools"')[1].split("</ul>")[0]
    assert board_of(sale) in tools
    assert "historylink" in tools
    assert "viewsitelink" in tools


def test_viewer_gets_board_link_but_no_copy_link(looker: Client) -> None:
    sale = make_sale()
    page = looker.get(f"{SALES}{sale.pk}/change/").text
    tools = page.split('class="object-tools"')[1].split("</ul>")[0]
    assert board_of(sale) in tools
    assert "copy" not in tools
    assert "rehearse" not in tools
    assert "series" not in looker.get(SALES).text.split("object-tools")[1].split("</ul>")[0]


# --- Limits ---------------------------------------------------------------------------------------


def limit_an_address(sale: SeckillVoucher) -> None:
    """Let an address order once more than the sale allows it."""
    forget_everything()
    reserve(sale_id=sale.pk, order_id=901, user_id=901, address="203.0.113.7")
    with pytest.raises(OrdersLimited):
        reserve(sale_id=sale.pk, order_id=902, user_id=902, address="203.0.113.7")


@pytest.fixture
def limited_sale(young_window: None) -> SeckillVoucher:
    sale = make_sale(stock=10, per_address=1)
    limit_an_address(sale)
    return sale


def test_limited_addresses_are_shown_to_who_may_lift_them(
    limited_sale: SeckillVoucher, operator: Client, looker: Client
) -> None:
    assert data_of(operator, limited_sale)["limited"] == [
        ["203.0.113.7", "orders of this sale, 1 refused"]
    ]
    assert "lift-limits" in data_of(operator, limited_sale)["actions"]
    assert "203.0.113.7" in operator.get(board_of(limited_sale)).text
    assert data_of(looker, limited_sale)["limited"] == []
    assert "203.0.113.7" not in looker.get(board_of(limited_sale)).text


def test_lifted_limit_lets_the_address_order_and_is_recorded(
    limited_sale: SeckillVoucher, operator: Client
) -> None:
    response = act(operator, limited_sale, "lift-limits", limits=["a:203.0.113.7"], reason="office")

    assert response.status_code == 302
    reserve(sale_id=limited_sale.pk, order_id=903, user_id=903, address="203.0.113.7")
    assert data_of(operator, limited_sale)["limited"] == []
    assert "203.0.113.7" in history_text(LogEntry.objects.latest("pk"))


def test_limits_cannot_be_lifted_without_permission_or_choice(
    limited_sale: SeckillVoucher, operator: Client, looker: Client
) -> None:
    assert act(looker, limited_sale, "lift-limits", limits=["a:203.0.113.7"]).status_code == 403
    assert act(operator, limited_sale, "lift-limits", limits=["a:192.0.2.1"]).status_code == 200
    assert act(operator, limited_sale, "lift-limits").status_code == 200
    assert len(data_of(operator, limited_sale)["limited"]) == 1


def test_limit_of_the_site_is_shown_and_lifted(operator: Client, settings: Settings) -> None:
    settings.SECKILL_SIGN_INS_PER_ADDRESS = 1
    sale = make_sale()
    for _ in range(2):
        status = Client(REMOTE_ADDR="203.0.113.7").post("/accounts/login/").status_code
    assert status == 429
    assert data_of(operator, sale)["limited"] == [["203.0.113.7", "signing in"]]

    act(operator, sale, "lift-limits", limits=["signin:203.0.113.7"])

    assert data_of(operator, sale)["limited"] == []
    wait_for(  # a process repeats a refusal for a second
        lambda: Client(REMOTE_ADDR="203.0.113.7").post("/accounts/login/").status_code == 200,
        what="the lifted limit",
    )
