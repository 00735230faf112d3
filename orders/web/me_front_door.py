"""``me/`` and ``token/`` at the front door: without SQL for a session and a sale it knows."""

import asyncio
import re
from functools import partial
from time import monotonic
from typing import NamedTuple

from django.db import DatabaseError

from orders.audience.caps import capped_accounts, refresh_capped_accounts
from orders.placing.order_ids import mint_call
from orders.receipts.token_admission import (
    BuyerInSale,
    buyer_from_ledger,
    buyer_from_rows,
    judged,
    judged_already,
)
from orders.web.me_answers import UnknownQuery, me_answer, read_query, sale_json, token_json
from orders.web.order_answers import owner_answer
from orders.web.refusals import REFUSED, refusal_answer, refusal_of
from orders.web.room_answers import visitor_in
from seckill_site.clocks.ledger import ledger_now_ms
from seckill_site.front_door.buyers import buyer_of, session_key_of
from seckill_site.front_door.per_loop import PerLoop
from seckill_site.front_door.requests import Environ, request_language
from seckill_site.front_door.threads import threads
from seckill_site.process_memory import Flights
from seckill_site.web.request_rates import check_account
from seckill_site.web.responses import Answer, names_html
from vouchers.inventory.holdings import known_buyer_call
from vouchers.inventory.keys import ask
from vouchers.web.pace import count_me_request
from vouchers.web.public import known_sale

IDS_AT_ONCE = 64
"""How many order ids a process mints at once. Those that it does not use are never used."""

FEW_IDS = 16
"""With fewer left, a process mints more."""

IDS_LIFE_S = 10.0
"""How long minted ids are good for: an id says when it was minted."""

_TOKEN = re.compile(r"/vouchers/([1-9][0-9]{0,17})/token/")


class _Batch(NamedTuple):
    """Order ids that were minted together, the next one last."""

    until_s: float
    ids: list[int]


class _OrderIds(Flights[str, None]):
    """The order ids that an event loop has minted and not used yet.

    More are minted before the last one is used, so only the first request after a pause waits.
    """

    blocks = False

    def forget(self) -> None:
        super().forget()
        self._batches: list[_Batch] = []

    async def next(self) -> int:
        """Return an id that nobody else gets.

        :raises LedgerUnavailable: Redis did not respond.
        """
        while not self._count():
            await asyncio.shield(self.join("ids", self._mint))
        order_id = self._batches[0].ids.pop()
        if self._count() < FEW_IDS:
            self.join("ids", self._mint)
        return order_id

    def _count(self) -> int:
        """Drop the batches that are used up or too old, and return how many ids are left."""
        now = monotonic()
        self._batches = [it for it in self._batches if it.ids and now < it.until_s]
        return sum(len(it.ids) for it in self._batches)

    async def _mint(self) -> None:
        until_s = monotonic() + IDS_LIFE_S
        ids = await ask(mint_call(count=IDS_AT_ONCE, blocks=self.blocks))
        self._batches.append(_Batch(until_s, ids[::-1]))


class _Blocks(_OrderIds):
    """The same with a block each, for sales in which a token may take several units."""

    blocks = True


_order_ids, _blocks = PerLoop(_OrderIds), PerLoop(_Blocks)


async def _next_id(buyer: BuyerInSale) -> int:
    return await (_blocks() if buyer.takes_several else _order_ids()).next()


async def me(environ: Environ) -> Answer | None:
    """Answer ``me/``; None if Django has to answer."""
    if environ["PATH_INFO"] != "/me/" or environ["REQUEST_METHOD"] != "GET":
        return None
    try:
        sale_id = read_query(environ["QUERY_STRING"])
        buyer, sale = None, None
        if key := session_key_of(environ):
            buyer = await buyer_of(key)
            if buyer is None:
                return None
            check_account(environ, buyer.user_id)
            if sale_id is not None:
                buyer_in_sale = await _judged(await find_buyer(environ, sale_id, buyer.user_id))
                order_id = await _next_id(buyer_in_sale) if buyer_in_sale.may_have_token else None
                sale = sale_json(buyer_in_sale, order_id=order_id)
    except (UnknownQuery, DatabaseError):
        return None
    except REFUSED as error:
        return _refused(error, environ)
    count_me_request()
    return me_answer(buyer, now_ms=ledger_now_ms(may_wait=False), sale=sale)


async def token(environ: Environ) -> Answer | None:
    """Issue a purchase token to a buyer whose session is known; None if Django has to answer."""
    match = _TOKEN.fullmatch(environ["PATH_INFO"])
    if match is None or environ["REQUEST_METHOD"] != "GET" or names_html(environ):
        return None
    key = session_key_of(environ)
    if not key:
        return None
    try:
        buyer = await buyer_of(key)
        if buyer is None:
            return None
        check_account(environ, buyer.user_id)
        buyer_in_sale = await _judged(await find_buyer(environ, int(match[1]), buyer.user_id))
        buyer_in_sale.check_admitted()
        issued = buyer_in_sale.token(await _next_id(buyer_in_sale))
    except DatabaseError:
        return None
    except REFUSED as error:
        return _refused(error, environ)
    return owner_answer(token_json(issued))


async def find_buyer(environ: Environ, sale_id: int, user_id: int) -> BuyerInSale:
    """Return a buyer of a public sale, as ``find_buyer_in_sale`` does in a thread."""
    ids = {"sale_id": sale_id, "user_id": user_id}
    visitor = visitor_in(environ, **ids)
    sale = await known_sale(sale_id)
    sale.check_public()
    known = await ask(known_buyer_call(**ids, visitor=visitor))
    buyer = buyer_from_ledger(**ids, known=known)
    if buyer is None:
        read_rows = partial(buyer_from_rows, **ids, visitor=visitor, known=known)
        buyer = await threads().query(read_rows)
    return buyer.of_sale(sale)


async def _judged(buyer: BuyerInSale) -> BuyerInSale:
    """Return the same buyer with the verdict of the rules, as ``judged`` does in a thread."""
    if capped_accounts.claim():  # beside this request, which goes by the last count
        refreshing = asyncio.ensure_future(threads().query(refresh_capped_accounts))
        refreshing.add_done_callback(lambda done: done.cancelled() or done.exception())
    known = judged_already(buyer)
    return known if known is not None else await threads().query(partial(judged, buyer))


def _refused(error: Exception, environ: Environ) -> Answer:
    return refusal_answer(refusal_of(error), language=request_language(environ))
