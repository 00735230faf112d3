"""The answers of ``room/``, and the cookie with a signed place, at the front door and in Django."""

import re
from collections.abc import Mapping
from typing import Any

from django.conf import settings

from orders.placing.places import HeldPlace, digest_of, read_held_place, sign_place, visitor_of
from orders.receipts.place_in_line import POLL_MS, LineView, Turn, view_of_place
from orders.receipts.token_admission import BuyerInSale
from orders.web.order_answers import owner_answer
from orders.web.serializers import line_json
from seckill_site.broker.pace import note_life
from seckill_site.front_door.buyers import cookie_of
from seckill_site.kept_settings import kept
from seckill_site.web.responses import Answer
from vouchers.inventory.sale_state import Snapshot
from vouchers.inventory.waiting_room import PlaceState, Visitor
from vouchers.models import SaleState

ROOM_PATH = re.compile(r"/vouchers/([1-9][0-9]{0,17})/room/")

AGAIN = "again=1"
"""The query that joins the line again, after a place has expired."""


def held_place_text(environ: Mapping[str, Any], *, sale_id: int) -> str:
    """Return the place that a request holds in its cookie, or nothing."""
    return cookie_of(environ, f"place-{sale_id}")


def visitor_in(environ: Mapping[str, Any], *, sale_id: int, user_id: int) -> Visitor:
    """Return the account that sends a request as a visitor of the waiting room."""
    note_life()
    held = held_place_text(environ, sale_id=sale_id)
    again = environ.get("QUERY_STRING", "") == AGAIN
    return visitor_of(sale_id=sale_id, user_id=user_id, held=held, again=again)


def held_place_in(
    environ: Mapping[str, Any], *, sale_id: int, session_key: str
) -> HeldPlace | None:
    """Return the place in a request's cookie if it was given to this session."""
    text = held_place_text(environ, sale_id=sale_id)
    held = read_held_place(text, sale_id=sale_id) if text else None
    return held if held and held.session == digest_of(session_key) else None


def answer_buyer(buyer: BuyerInSale, snapshot: Snapshot, *, session_key: str) -> Answer:
    """Answer a visitor by what the ledger said, and give them a signed place."""
    status, place = buyer.status, buyer.place
    sale_id, user_id, now_ms = status.sale_id, status.user_id, snapshot.now_ms
    if place is None or buyer.is_over:
        view = LineView(sale_id, Turn.IN, None, 0, 0, POLL_MS[0])
    else:
        view = view_of_place(place, sale_id=sale_id, user_id=user_id, now_ms=now_ms)
    answer = room_answer(view, snapshot)
    if place is None or place.state is PlaceState.NONE:
        return answer
    text = sign_place(place, sale_id=sale_id, user_id=user_id, session_key=session_key)
    return answer._replace(cookie=place_cookie(text, sale_id=sale_id))


def room_answer(view: LineView, snapshot: Snapshot) -> Answer:
    """Return a place in line, and the state of its sale; before the start also when that is."""
    content, state = line_json(view), snapshot.state
    content |= {"state": state.value, "remaining": snapshot.remaining}
    content["server_time_ms"] = snapshot.now_ms
    if state is SaleState.SCHEDULED:
        content["begins_at_ms"] = snapshot.terms.begins_at_ms
    return owner_answer(content)


def place_cookie(text: str, *, sale_id: int) -> str:
    """Return the header that sets the cookie with a signed place, until the browser is closed."""
    secure = "; Secure" if _is_secure() else ""
    return f"place-{sale_id}={text}; HttpOnly; Path=/; SameSite=Lax{secure}"


_is_secure = kept(lambda: bool(settings.SESSION_COOKIE_SECURE))
