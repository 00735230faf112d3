"""Changing the price of a voucher, which may be on sale: only while no order is on its way.

Note [One price per order]
~~~~~~~~~~~~~~~~~~~~~~~~~~
An order's row gets the price of its voucher's row when it is written; its buyer agreed to the price
that the ledger had when it was accepted. So an edit holds the rows of all sales of the voucher,
closes them in Redis, and writes only if nothing is pending. If something is, the edit is rolled
back, because workers need the rows, and repeated once the queues are empty; until then the sales
stay closed. Loading them copies the price and opens them. If the process dies, reconcile does that.
"""

import datetime as dt
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from django.db import transaction
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.text import capfirst
from django.utils.translation import gettext

from seckill_site.failpoints import failpoint
from seckill_site.formatting import NO_VALUE, money
from seckill_site.web.text_files import read_texts
from vouchers.catalogue.listing import running_sales
from vouchers.catalogue.staff_texts import StaffRefusal
from vouchers.catalogue.unused import FallsDue, due_after_edit
from vouchers.inventory.rebuild import load_after_commit, load_sale
from vouchers.inventory.sale_state import LedgerTerms, Snapshot, snapshots, write_terms
from vouchers.lock_objects import lock_sales
from vouchers.models import ACTIVE_AFTER_END, Draw, SeckillVoucher, Voucher

T = TypeVar("T")

_TEXTS = read_texts(Path(__file__).with_name("price_texts.toml"))

REST_S = 5.0
"""The longest that an edit waits for orders on their way."""


class PriceIsSettled(StaffRefusal):
    """A draw keeps the price of its first entry until all is given."""

    message = _TEXTS["price_is_settled"]


class OrdersOnTheirWay(StaffRefusal):
    """Something is pending, or not known to be nothing; these sales have to be opened again."""

    message = _TEXTS["orders_on_their_way"]

    def __init__(self, sale_ids: Collection[int]) -> None:
        super().__init__()
        self.sale_ids = sale_ids


class AsksFirst(StaffRefusal):
    """Buyers of running sales would notice these changes: staff have to confirm them and say why.

    Each has a label and a text before and after; ``sales`` are all running ones of the voucher.
    ``due`` is what would be refunded, and how that is shown among the changes.
    """

    message: str | Promise = _TEXTS["asks_first"]

    def __init__(
        self,
        changes: list[tuple[str, str, str]],
        sales: list[SeckillVoucher],
        due: tuple[FallsDue, str] | None = None,
    ) -> None:
        super().__init__()
        self.changes, self.sales = changes, sales
        shown = repr((changes, [sale.pk for sale in sales], due and due[0].size))
        self.key = sha256(shown.encode()).hexdigest()
        """What a confirmation names, so that it is one of these changes and no others."""
        if due:
            self.message = _TEXTS["refunds_first"]
            refunds = (gettext("Refunds of unused vouchers"), NO_VALUE, due[1])
            self.changes = [*changes, refunds]


def ask_first(
    *,
    voucher: Voucher,
    price_cents: int,
    last_day: dt.date | None,
    now: dt.datetime,
    confirmed: str,
    why: str,
    sale: SeckillVoucher | None = None,
    limit: int = 0,
    refund_unused: bool | None = None,
) -> None:
    """Check that changes were ``confirmed`` by their key: of a price, a limit, or refunds.

    The first two are the voucher's and a sale's while it runs. The last come of an earlier last
    day, or of a sale's switch.

    :raises AsksFirst: they were not confirmed, or there is no reason.
    """
    sales = list(running_sales(voucher_ids=[voucher.pk], now=now))
    changes = []
    if sales and price_cents != voucher.price_cents:
        changes.append((gettext("Price"), money(voucher.price_cents), money(price_cents)))
    if sale in sales and limit != sale.limit:
        label = capfirst(gettext("limit per buyer"))
        changes.append((label, str(sale.limit), str(limit)))
    due = None
    if last_day and (it := due_after_edit(voucher, last_day, sale, refund_unused)):
        due = it, it.after(last_day, today=timezone.localdate(now))
        if voucher.valid_until != last_day:
            before = str(voucher.valid_until or NO_VALUE)
            changes.append((gettext("Valid until"), before, str(last_day)))
    question = AsksFirst(changes, sales, due)
    if question.changes and not (why and confirmed == question.key):
        raise question


def once_at_rest(change: Callable[[], T]) -> T:
    """Call ``change``, a transaction of its own, until nothing is pending in what it closes.

    :raises OrdersOnTheirWay: after ``REST_S``; nothing was changed.
    """
    until, closed = time.monotonic() + REST_S, set[int]()
    try:
        while True:
            try:
                return change()
            except OrdersOnTheirWay as error:
                closed.update(error.sale_ids)
                _rest(closed, until=until)
                if time.monotonic() >= until:
                    raise
    finally:
        load_after_commit(sale_ids=closed)


def _rest(sale_ids: Collection[int], *, until: float) -> None:
    """Load these sales and wait until nothing is pending."""
    while time.monotonic() < until:
        ledgers = snapshots(sale_ids=sale_ids)
        for sale_id in [pk for pk, ledger in ledgers.items() if ledger is None]:
            load_sale(sale_id=sale_id)
        if all(ledger and not ledger.pending for ledger in ledgers.values()):
            return
        time.sleep(0.05)


def lock_to_reprice(*, prices: Mapping[Any, int]) -> list[SeckillVoucher]:
    """Lock the sales of the vouchers that have other prices, before a voucher is locked.

    :raises PriceIsSettled: there is a draw that has entries.
    :raises LedgerUnavailable: Redis did not respond.
    """
    stored = Voucher.objects.filter(pk__in=prices).values_list("pk", "price_cents")
    sales = lock_sales(voucher_ids=[pk for pk, cents in stored if cents != prices[pk]])
    ledgers = snapshots(sale_ids=[sale.pk for sale in sales])
    if any(_is_settled(sale, ledgers[sale.pk]) for sale in sales):
        raise PriceIsSettled
    return sales


def close_to_reprice(*, voucher_ids: Collection[int], locked: Collection[SeckillVoucher]) -> None:
    """Close the sales of these vouchers until the commit of their new prices.

    The caller holds the sales, as ``lock_to_reprice`` returned them, and then the vouchers. All
    other refusals come first: a rollback does not open the sales.

    :raises OrdersOnTheirWay: something is pending, or a sale is not loaded.
    :raises LedgerUnavailable: Redis did not respond.
    """
    sales = {sale.pk: sale for sale in locked if sale.voucher_id in voucher_ids}
    active = [pk for pk, it in sales.items() if it.ends_at > it.locked_at - ACTIVE_AFTER_END]
    for sale_id, ledger in snapshots(sale_ids=active).items():
        if ledger:
            terms = replace(LedgerTerms.from_sale(sales[sale_id]), paused=True, price_cents=None)
            write_terms(sale_id=sale_id, terms=terms)
    failpoint("price.closed")
    closed = {pk: it for pk, it in snapshots(sale_ids=sales).items() if it or pk in active}
    is_busy = any(
        it is None or it.pending or _is_settled(sales[pk], it) for pk, it in closed.items()
    )
    others = SeckillVoucher.objects.filter(voucher__in=voucher_ids).exclude(pk__in=sales)
    if is_busy or others.exists():  # put on sale meanwhile
        raise OrdersOnTheirWay(closed)
    transaction.on_commit(partial(load_after_commit, sale_ids=active))


def _is_settled(sale: SeckillVoucher, ledger: Snapshot | None) -> bool:
    """Return whether somebody has entered this draw, which has not given everything yet."""
    if not sale.is_draw or (Draw.of(sale).finished_at and sale.gives_until <= sale.locked_at):
        return False
    return bool(ledger and ledger.entries) or sale.draw_entries.filter(live=True).exists()
