"""What the row of a sale says of it, for the front door, with few queries.

Only one request of the process asks for a sale. Sales that it does not know, which anybody can make
up, share a query: one at a time, and at most one every ``GATHER_S``.
"""

import asyncio
from functools import partial

from seckill_site.front_door.per_loop import PerLoop
from seckill_site.front_door.threads import threads
from seckill_site.process_memory import Flights, ProcessMemory
from vouchers.catalogue.public_sales import (
    KnownSale,
    last_public,
    learn_sale,
    learn_sales,
    recall_sale,
)

GATHER_S = 0.05
"""Unknown sales that are asked for within this time share a query."""

_learning = Flights[int, KnownSale]()


async def known_sale(sale_id: int) -> KnownSale:
    """Return what is known of a sale.

    :raises DatabaseError: the database cannot tell.
    :raises Busy: too much waits for a thread.
    """
    known = recall_sale(sale_id=sale_id)
    if known is not None:
        return known
    if not last_public(sale_id=sale_id):
        return await _unknown_sales().learn(sale_id)
    learn = partial(learn_sale, sale_id=sale_id)
    return await asyncio.shield(_learning.join(sale_id, lambda: threads().query(learn)))


class _UnknownSales(ProcessMemory):
    """The sales that an event loop has to ask for: the first at once, later ones together."""

    def forget(self) -> None:
        self._ids: set[int] = set()
        self._next: asyncio.Task[dict[int, KnownSale]] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._due_at = 0.0

    async def learn(self, sale_id: int) -> KnownSale:
        self._ids.add(sale_id)
        if self._next is None:
            self._next = asyncio.ensure_future(self._learn_gathered())
            self._next.add_done_callback(lambda done: done.cancelled() or done.exception())
        return (await asyncio.shield(self._next))[sale_id]

    async def _learn_gathered(self) -> dict[int, KnownSale]:
        loop = asyncio.get_running_loop()
        async with self._one_at_a_time:
            await asyncio.sleep(self._due_at - loop.time())
            self._due_at = loop.time() + GATHER_S
            ids, self._ids, self._next = self._ids, set(), None
            return await threads().query(partial(learn_sales, sale_ids=ids))


_unknown_sales = PerLoop(_UnknownSales)
