"""What the row of a sale says of it, for the front door: only one request of the process asks."""

import asyncio
from functools import partial

from seckill_site.front_door.threads import threads
from seckill_site.process_memory import Flights
from vouchers.catalogue.public_sales import KnownSale, learn_sale, recall_sale

_learning = Flights[int, KnownSale]()


async def known_sale(sale_id: int) -> KnownSale:
    """Return what is known of a sale.

    :raises DatabaseError: the database cannot tell.
    :raises Busy: too much waits for a thread.
    """
    known = recall_sale(sale_id=sale_id)
    if known is not None:
        return known
    learn = partial(learn_sale, sale_id=sale_id)
    return await asyncio.shield(_learning.join(sale_id, lambda: threads().query(learn)))
