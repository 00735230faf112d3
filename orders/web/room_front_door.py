"""``room/`` at the front door: a poll of a place in line takes no command of its own."""

from django.db import DatabaseError

from orders.receipts.place_in_line import view_of_held_place
from orders.web.me_front_door import find_buyer
from orders.web.refusals import REFUSED, refusal_answer, refusal_of
from orders.web.room_answers import AGAIN, ROOM_PATH, answer_buyer, held_place_in, room_answer
from seckill_site.front_door.buyers import buyer_of, session_key_of
from seckill_site.front_door.requests import Environ, request_language
from seckill_site.web.request_rates import check_account
from seckill_site.web.responses import Answer, names_html
from vouchers.web.front_door import recent_snapshot


async def room(environ: Environ) -> Answer | None:
    """Answer a program that asks for its place in line; None if Django has to answer."""
    match = ROOM_PATH.fullmatch(environ["PATH_INFO"])
    if match is None or environ["REQUEST_METHOD"] != "GET" or names_html(environ):
        return None
    sale_id, query = int(match[1]), environ["QUERY_STRING"]
    key = session_key_of(environ)
    if not key or query not in ("", AGAIN):
        return None
    try:
        held = held_place_in(environ, sale_id=sale_id, session_key=key)
        if held and not query:
            snapshot = await recent_snapshot(sale_id)
            # None if only the ledger can tell.
            if view := view_of_held_place(held, snapshot, sale_id=sale_id):
                return room_answer(view, snapshot)
        buyer = await buyer_of(key)
        if buyer is None:
            return None
        check_account(environ, buyer.user_id)
        buyer_in_sale = await find_buyer(environ, sale_id, buyer.user_id)  # of a public sale alone
        snapshot = await recent_snapshot(sale_id)
    except DatabaseError:
        return None
    except REFUSED as error:
        return refusal_answer(refusal_of(error), language=request_language(environ))
    return answer_buyer(buyer_in_sale, snapshot, session_key=key)
