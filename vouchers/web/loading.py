"""Loading a sale for the front door, without a thread for each request that waits for it."""

from functools import partial

from django.db import DatabaseError

from seckill_site.front_door.threads import threads
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.rebuild import load_sale_exclusively

_loading: set[int] = set()


async def load_once(*, sale_id: int) -> None:
    """Load a sale in a thread; only one request of this process at a time does so.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises LedgerUnavailable: another request loads it, or the sale cannot be loaded now.
    :raises Busy: too much waits for a thread.
    """
    if sale_id in _loading:
        raise LedgerUnavailable(f"this process is loading sale {sale_id}")
    _loading.add(sale_id)
    try:
        await threads().query(partial(load_sale_exclusively, sale_id=sale_id))
    except DatabaseError as error:
        raise LedgerUnavailable(f"sale {sale_id} cannot be loaded: {error}") from error
    finally:
        _loading.discard(sale_id)
