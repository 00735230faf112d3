"""Loading a sale for the front door, without a thread for each request that waits for it."""

import asyncio
from functools import partial

from django.db import DatabaseError

from seckill_site.front_door.threads import threads
from seckill_site.process_memory import Flights
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.rebuild import load_sale_exclusively
from vouchers.inventory.sale_state import check_not_removed

_loading = Flights[int, object]()
_looking = Flights[int, None]()


async def load_once(*, sale_id: int) -> None:
    """Load a sale in a thread; only one request of this process at a time does so.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises LedgerRemoved: its row answers.
    :raises LedgerUnavailable: another request loads it, or the sale cannot be loaded now.
    :raises Busy: too much waits for a thread.
    """
    look = partial(check_not_removed, sale_id=sale_id)
    load = partial(load_sale_exclusively, sale_id=sale_id)
    try:
        await asyncio.shield(_looking.join(sale_id, lambda: threads().query(look)))
        if _loading.running(sale_id):
            raise LedgerUnavailable(f"this process is loading sale {sale_id}")
        await asyncio.shield(_loading.join(sale_id, lambda: threads().query(load)))
    except DatabaseError as error:
        raise LedgerUnavailable(f"sale {sale_id} cannot be loaded: {error}") from error
