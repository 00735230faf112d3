"""Helpers of the order tests: sales, buyers, reservations and concurrent calls."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from orders.fulfilment import batch
from orders.fulfilment.worker import fulfil_sale
from orders.models import LIVE_STATUSES, OrderStatus, VoucherOrder
from orders.placing.order_ids import EPOCH, SEQUENCE_BITS
from orders.placing.tokens import PurchaseToken, issue_tokens
from seckill_site.clocks.steps import Clocks
from tests.support import sales
from vouchers.inventory.reservations import PendingEntry, pending_entries
from vouchers.models import SeckillVoucher

PRICE_CENTS = 8_000

_numbers = itertools.count(1)


def make_sale(
    *, begins_in_s: int = -60, ends_in_s: int = 3_600, loaded: bool = True, **fields: Any
) -> SeckillVoucher:
    """Make a sale by its seconds from now, in Redis too unless told otherwise."""
    now = timezone.now()
    window = {"begins_at": begins_in_s, "ends_at": ends_in_s}
    make = sales.make_loaded_sale if loaded else sales.make_sale
    return make(
        voucher=sales.make_voucher(title=f"火锅 hotpot {next(_numbers)}"),
        **{name: now + dt.timedelta(seconds=seconds) for name, seconds in window.items()},
        **{"stock": 10, **fields},
    )


def make_buyers(count: int) -> list[User]:
    """Return new users without usable passwords."""
    names = [f"buyer-{next(_numbers)}" for _ in range(count)]
    User.objects.bulk_create([User(username=name, password="!") for name in names])
    return list(User.objects.filter(username__in=names).order_by("pk"))


def make_buyer() -> User:
    return make_buyers(1)[0]


def tokens_for(sale: SeckillVoucher, buyers: Sequence[User]) -> list[PurchaseToken]:
    return issue_tokens(sale=sale, user_ids=[buyer.pk for buyer in buyers])


def token_for(sale: SeckillVoucher, buyer: User) -> PurchaseToken:
    return tokens_for(sale, [buyer])[0]


def receipt_path(token: PurchaseToken) -> str:
    return f"/vouchers/{token.sale_id}/orders/{token.order_id}/"


def reserved(sale: SeckillVoucher, buyers: Sequence[User]) -> list[PurchaseToken]:
    """Reserve a unit for each buyer; they are pending now."""
    tokens = tokens_for(sale, buyers)
    for token in tokens:
        sales.reserve(sale_id=sale.pk, order_id=token.order_id, user_id=token.user_id)
    return tokens


def reserved_purchase(
    sale: SeckillVoucher, buyer: User, quantity: int, *, all_or_none: bool = False
) -> list[int]:
    """Reserve several units for a buyer in one press; return the order ids that are pending now."""
    token = token_for(sale, buyer)
    sales.reserve(
        sale_id=sale.pk,
        order_id=token.order_id,
        user_id=buyer.pk,
        quantity=quantity,
        all_or_none=all_or_none,
    )
    return [it.order_id for it in pending(sale) if it.purchase == token.order_id]


def written_orders(sale: SeckillVoucher, buyers: Sequence[User]) -> list[PurchaseToken]:
    """Reserve a unit for each buyer, and let a worker write their orders."""
    tokens = reserved(sale, buyers)
    fulfil_sale(sale_id=sale.pk)
    return tokens


def reserved_sale(
    buyers: Sequence[User], **terms: Any
) -> tuple[SeckillVoucher, list[PurchaseToken]]:
    """Return a sale in which each of these buyers has a pending unit, and their tokens."""
    sale = make_sale(**terms)
    return sale, reserved(sale, buyers)


def pending(sale: SeckillVoucher) -> list[PendingEntry]:
    return pending_entries(sale_id=sale.pk, skip=0, count=100_000)


def an_entry(sale: SeckillVoucher, user_id: int, *, order_id: int, unit: int = 1) -> PendingEntry:
    """Return an entry that need not be in the ledger."""
    return PendingEntry(order_id, user_id, unit, accepted_at_ms=1_790_000_000_123)


def make_order(
    sale: SeckillVoucher,
    user: User | None,
    *,
    order_id: int | None = None,
    status: OrderStatus = OrderStatus.UNPAID,
    reason: str = "",
    unit: int = 1,
) -> VoucherOrder:
    """Return a row as an earlier fulfilment would have left it; ``sold`` is the caller's."""
    return VoucherOrder.objects.create(
        id=order_id or id_minted(seconds_ago=60),
        user=user,
        seckill_voucher=sale,
        unit=unit,
        status=status,
        live=status in LIVE_STATUSES or None,
        reason=reason,
        price_cents=PRICE_CENTS,
        accepted_at=timezone.now(),
    )


def id_minted(*, seconds_ago: int) -> int:
    """Return an order id of its own that says it was minted then (negative: in the future)."""
    seconds = int((timezone.now() - EPOCH).total_seconds()) - seconds_ago
    return (seconds << SEQUENCE_BITS) | (4_000_000_000 + next(_numbers))


def at_once(*functions: Callable[[], Any]) -> list[Any]:
    """Run these in threads; return what each returned or raised, in order."""
    with ThreadPoolExecutor(len(functions)) as pool:
        futures = [pool.submit(_with_own_connection, function) for function in functions]
    return [future.exception() or future.result() for future in futures]


def _with_own_connection(function: Callable[[], Any]) -> Any:
    try:
        return function()
    finally:
        connections.close_all()


def race(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test whose threads have their own sessions, which wait for each other's row locks."""
    marks = pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("row_locks")
    for mark in (*marks, pytest.mark.concurrency):
        test = mark(test)
    return test


def poison(monkeypatch: pytest.MonkeyPatch, order_id: int, *, even_refused: bool = False) -> None:
    """Make this order's row raise when it is created live, or even when refused, like a bug."""
    make_row = batch._row

    def poisoned(sale: Any, entry: Any, known: Any, reason: Any) -> Any:
        if entry.order_id == order_id and (reason is None or even_refused):
            raise ZeroDivisionError("poison")
        return make_row(sale, entry, known, reason)

    monkeypatch.setattr(batch, "_row", poisoned)


def both_at(now: dt.datetime) -> Clocks:
    """Return the clocks of database and Redis, which agree."""
    return Clocks(now, now)


def ids(tokens: Sequence[PurchaseToken]) -> list[int]:
    return [token.order_id for token in tokens]


@contextmanager
def another_session() -> Iterator[BaseDatabaseWrapper]:
    """A second connection to the database, in a transaction of its own."""
    session = connections.create_connection("default")
    try:
        session.set_autocommit(False)
        yield session
        session.rollback()
    finally:
        session.close()


def hold_row(session: BaseDatabaseWrapper, sale: SeckillVoucher, *, how: str = "") -> None:
    """Lock the sale's row for this session; ``how`` may be ``NOWAIT``."""
    with session.cursor() as cursor:
        cursor.execute(
            f"SELECT id FROM vouchers_seckillvoucher WHERE id = %s FOR UPDATE {how}", [sale.pk]
        )
