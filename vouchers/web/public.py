"""What the row of a sale says of it, for the front door: only one request of the process asks."""

import asyncio
from functools import partial

from seckill_site.front_door.threads import threads
from vouchers.catalogue.public_sales import KnownSale, learn_sale, recall_sale

_learning: dict[int, asyncio.Task[KnownSale]] = {}


async def known_sale(sale_id: int) -> KnownSale:
    """Return what is known of a sale.

    :raises DatabaseError: the database cannot tell.
    :raises Busy: too much waits for a thread.
    """
    known = recall_sale(sale_id=sale_id)
    if known is not None:
        return known
    task = _learning.get(sale_id)
    if task is None:
        work = partial(learn_sale, sale_id=sale_id)
        task = _learning[sale_id] = asyncio.ensure_future(threads().query(work))
        task.add_done_callback(lambda done: _learning.pop(sale_id, None) and done.exception())
    return await asyncio.shield(task)
