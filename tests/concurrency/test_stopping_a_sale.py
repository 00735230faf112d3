"""A sale that is stopped from its board while a crowd reserves: nobody gets in afterwards."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from seckill_site.clocks.machine import epoch_ms
from tests.concurrency.sales import make_sale
from tests.support.patience import wait_for
from tests.support.sales import reserve
from tests.support.tiers import slow_after
from vouchers.catalogue.live_changes import end_sale, pause_sale
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.reservations import ReservationRefused, pending_entries
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = [
    pytest.mark.concurrency,
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("row_locks"),
]

THREADS = 8


class Crowd:
    """Threads that reserve, each time as another buyer, until they are sent home."""

    def __init__(self, sale_id: int) -> None:
        self.sale_id = sale_id
        self.numbers = itertools.count(1)
        self.refusals = 0
        self.counting = threading.Lock()
        self.home = threading.Event()

    def ask(self) -> None:
        while not self.home.is_set():
            number = next(self.numbers)
            try:
                reserve(sale_id=self.sale_id, order_id=number, user_id=number)
            except LedgerUnavailable:
                pass  # it was late: the machine stood still
            except ReservationRefused:
                with self.counting:
                    self.refusals += 1


@contextmanager
def crowd_at(sale: SeckillVoucher) -> Iterator[Crowd]:
    crowd = Crowd(sale.pk)
    with ThreadPoolExecutor(THREADS) as pool:
        asking: list[Future[None]] = [pool.submit(crowd.ask) for _ in range(THREADS)]
        try:
            yield crowd
        finally:
            crowd.home.set()
    for one in asking:
        one.result()


@pytest.mark.parametrize("stop", slow_after(1, [
    lambda sale: pause_sale(sale_id=sale.pk),
    lambda sale: end_sale(sale_id=sale.pk, seen=sale.ends_at),
]), ids=["pause", "end"])  # fmt: skip
def test_nobody_is_accepted_after_a_sale_is_stopped(
    stop: Callable[[SeckillVoucher], SeckillVoucher],
) -> None:
    sale = make_sale(stock=1_000_000)
    with crowd_at(sale) as crowd:
        wait_for(lambda: snapshot(sale_id=sale.pk).taken > 200, what="a crowd")
        stopped = stop(sale)
        taken = snapshot(sale_id=sale.pk).taken
        refused = crowd.refusals
        wait_for(lambda: crowd.refusals > refused + 500, what="a crowd that is refused")

    entries = pending_entries(sale_id=sale.pk, skip=0, count=1_000_000)
    assert len(entries) == snapshot(sale_id=sale.pk).taken == taken
    assert max(entry.accepted_at_ms for entry in entries) < epoch_ms(stopped.ends_at)
