"""Whether a sale is public, for the front door: only one request of the process asks."""

import asyncio
from functools import partial

from seckill_site.front_door.threads import threads
from vouchers.catalogue.public_sales import learn_public, recall_public

_learning: dict[int, asyncio.Task[bool]] = {}


async def is_public(sale_id: int) -> bool:
    """Return whether a sale is public.

    :raises DatabaseError: the database cannot tell.
    :raises Busy: too much waits for a thread.
    """
    known = recall_public(sale_id=sale_id)
    if known is not None:
        return known
    task = _learning.get(sale_id)
    if task is None:
        work = partial(learn_public, sale_id=sale_id)
        task = _learning[sale_id] = asyncio.ensure_future(threads().query(work))
        task.add_done_callback(lambda done: _learning.pop(sale_id, None) and done.exception())
    return await asyncio.shield(task)
