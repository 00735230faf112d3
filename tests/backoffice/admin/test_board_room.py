"""The waiting room on the board: its figures, and what its three actions do."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.messages import get_messages
from django.test import Client

from tests.backoffice.admin.test_board import (
    act,
    board_of,
    data_of,
    everything,
    stored,
    will,
)
from tests.support.inspection import ledger_contents
from tests.support.orders import make_buyer, make_buyers, make_sale
from tests.support.rooms import change_room, make_room, place_at
from tests.support.staff import said
from tests.support.tiers import slow_after
from vouchers.catalogue.history import history_text
from vouchers.catalogue.live_changes import close_room
from vouchers.inventory.sale_state import snapshot
from vouchers.inventory.waiting_room import RoomTerms
from vouchers.models import MAX_ROOM_RATE, RoomKind, SeckillVoucher

pytestmark = pytest.mark.django_db
commits = pytest.mark.django_db(transaction=True)

ROOM_ACTIONS = ("open-room", "room-rate", "close-room")
CHANGED = (
    "error: Nothing was changed: someone else changed the sale first. Check its current state."
)


def make_line(*, visitors: int = 0, base: int = 0, **fields: Any) -> SeckillVoucher:
    """Return a sale with visitors in line, of whom the first ``base`` have had their turn."""
    sale = make_room(**fields)
    for buyer in make_buyers(visitors) if visitors else []:
        place_at(sale.pk, buyer.pk)
    change_room(sale.pk, base=base, rate=fields.get("room_rate", 0), since_ms=20_000)
    return sale


def sale_of_action(name: str) -> SeckillVoucher:
    return make_sale() if name == "open-room" else make_line(visitors=1)


def room_text(client: Client, sale: SeckillVoucher) -> str:
    return str(data_of(client, sale)["texts"]["room"])


def room_in_redis(sale: SeckillVoucher) -> RoomTerms | None:
    return snapshot(sale_id=sale.pk).terms.room


# --- Figures --------------------------------------------------------------------------------------


def test_board_shows_length_rate_and_wait(looker: Client) -> None:
    sale = make_line(visitors=3, base=1, room_rate=100)

    text = room_text(looker, sale)

    assert re.fullmatch(r"2 waiting, 100 let in per second, about (19|20)(\.\d)? s to wait", text)
    assert text in looker.get(board_of(sale)).text


def test_board_of_a_paused_room_names_no_wait(looker: Client) -> None:
    assert room_text(looker, make_line(visitors=3)).endswith("about – to wait")


def test_board_without_a_room_says_closed(looker: Client) -> None:
    assert room_text(looker, make_sale()) == "closed"


def test_board_without_redis_knows_nothing_of_the_room(looker: Client, redis_gone: Any) -> None:
    sale = make_line(visitors=3)

    with redis_gone():
        assert room_text(looker, sale) == "–"


# --- Actions --------------------------------------------------------------------------------------


@commits
def test_room_is_opened_with_a_rate(operator: Client) -> None:
    sale = make_sale()

    response = act(operator, sale, "open-room", rate="70", reason="a crowd")

    assert response.status_code == 302
    assert (stored(sale).room, stored(sale).room_rate) == (RoomKind.BUSY, 70)
    assert room_in_redis(sale) == RoomTerms.from_sale(stored(sale))
    assert history() == ["Waiting room opened: 70 people per second. Reason: a crowd"]


@commits
def test_rate_is_changed_and_places_stay(operator: Client) -> None:
    sale = make_line(visitors=2, room_rate=20, begins_in_s=600, room=RoomKind.START)
    buyer = make_buyer()
    before = place_at(sale.pk, buyer.pk)

    act(operator, sale, "room-rate", rate="30")

    assert room_in_redis(sale) == RoomTerms.from_sale(stored(sale))
    assert stored(sale).room_rate == 30
    assert place_at(sale.pk, buyer.pk).given == before.given == 3
    [line] = history()
    assert line.endswith("20 → 30")


@commits
def test_everybody_is_let_in(operator: Client) -> None:
    sale = make_line(visitors=2)

    act(operator, sale, "close-room")

    assert RoomTerms.from_sale(stored(sale)) is None
    assert snapshot(sale_id=sale.pk).line is None
    assert history() == ["Waiting room closed: everybody was let in"]


def history() -> list[str]:
    return [history_text(it) for it in LogEntry.objects.order_by("pk")]


def test_confirmations_say_what_will_happen(operator: Client) -> None:
    sale = make_line(visitors=3, base=1, room_rate=100)

    assert will(operator, make_sale(), "open-room") == [
        "Once more people come than it lets in, they wait in line before they can buy.",
        "Buyers who have the sale's page open already can still buy at once.",
    ]
    assert will(operator, sale, "room-rate") == [
        "In line: 2. Let in per second: 100.",
        "Everybody keeps their place. Pages in line learn of it within two minutes.",
    ]
    assert will(operator, sale, "close-room") == [
        "Closes the waiting room: everybody in line can buy as soon as their page asks.",
        "Pages in line learn of it within two minutes.",
    ]


# --- Refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["open-room", "room-rate"])
@pytest.mark.parametrize("rate", slow_after(1, ["", "0", "-1", "1.5", "x", str(MAX_ROOM_RATE + 1)]))
def test_rate_out_of_range_is_refused(operator: Client, name: str, rate: str) -> None:
    sale = sale_of_action(name)
    before = everything(sale)

    response = act(operator, sale, name, rate=rate)

    assert response.status_code == 200
    assert response.context["form"].errors["rate"]
    assert everything(sale) == before


def test_same_rate_is_refused(operator: Client) -> None:
    sale = make_line(room_rate=20)

    response = act(operator, sale, "room-rate", rate="20")

    assert response.context["form"].errors["rate"] == ["This is already the current rate."]


@pytest.mark.parametrize("name", ["room-rate", "close-room"])
def test_form_of_a_closed_room_leads_to_the_board(operator: Client, name: str) -> None:
    response = operator.get(board_of(sale := make_sale(), f"{name}/"))

    assert response["Location"] == board_of(sale)


def test_rate_of_a_room_closed_meanwhile_is_refused_once(operator: Client) -> None:
    sale = make_line(room_rate=20)
    sent = {"seen": "20", "rate": "30", "reason": ""}
    close_room(sale_id=sale.pk)

    response = operator.post(board_of(sale, "room-rate/"), sent, follow=True)

    assert said(response) == [CHANGED]
    assert response.redirect_chain == [(board_of(sale), 302)]


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_stale_form_does_not_change_the_rate(operator: Client, guarded: bool) -> None:
    """The rate that the page showed: without it the last form wins unseen."""
    sale = make_line(room_rate=20)
    SeckillVoucher.objects.filter(pk=sale.pk).update(room_rate=50)
    fields = {"seen": "20" if guarded else "50"}

    response = act(operator, sale, "room-rate", rate="30", **fields)

    assert (stored(sale).room_rate == 50) is guarded
    assert (CHANGED in said(response)) is guarded


@pytest.mark.parametrize(
    ("name", "is_open"),
    slow_after(2, [("open-room", True), ("room-rate", False), ("close-room", False)]),
)
def test_form_of_a_room_that_was_opened_or_closed_is_refused(
    operator: Client, name: str, is_open: bool
) -> None:
    sale = make_line() if is_open else make_sale()
    before = everything(sale)

    response = operator.post(board_of(sale, f"{name}/"), {"rate": "9", "seen": "200", "reason": ""})

    assert [str(it) for it in get_messages(response.wsgi_request)] == [
        CHANGED.removeprefix("error: ")
    ]
    assert everything(sale) == before


@pytest.mark.parametrize("name", slow_after(1, ROOM_ACTIONS))
def test_ended_sale_has_no_room_actions(operator: Client, name: str) -> None:
    sale = make_sale(begins_in_s=-60, ends_in_s=-1)
    if name != "open-room":
        SeckillVoucher.objects.filter(pk=sale.pk).update(room="busy", room_opened_ms=1)
    before = ledger_contents(), stored(sale).room

    act(operator, sale, name, rate="9", seen="200")

    assert (ledger_contents(), stored(sale).room) == before
