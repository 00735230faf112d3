"""Sales, buyers and reservations for measurements.

As a program, for row g, it fills an empty shop to a size, with that shop's settings. Tables and
ledger then look as if the shop had filled them, except that its users have no rows of their own.

Usage: ``python -m bench.sale.data BUYERS SALES ORDERS REQUESTS FILE``, to write the requests
that the shop can answer to FILE, as JSON.
"""

import datetime as dt
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import (
    BACKEND_SESSION_KEY,
    HASH_SESSION_KEY,
    SESSION_KEY,
    get_user_model,
)
from django.contrib.sessions.backends.base import VALID_KEY_CHARS
from django.contrib.sessions.models import Session
from django.db import connection
from django.db.models import Model
from django.test import override_settings
from django.utils import timezone
from django.utils.crypto import get_random_string

from backoffice.buyers import create_buyers
from bench.sale.plan import Size
from orders.fulfilment.bulk_insert import ORDER_COLUMNS
from orders.models import OrderStatus, VoucherOrder
from orders.placing.places import sign_place
from orders.placing.tokens import PurchaseToken, issue_tokens
from seckill_site.clocks.machine import epoch_ms
from seckill_site.redis.ledger_connection import ledger_connection
from seckill_site.sessions import SessionStore
from vouchers.catalogue.sales import SaleTerms, VoucherDetails, create_voucher_on_sale
from vouchers.inventory.keys import LedgerKeys, send
from vouchers.inventory.reservations import finish_reservation, reserve_call
from vouchers.inventory.waiting_room import Line, Place, PlaceState, RoomTerms
from vouchers.models import RoomKind, SeckillVoucher

DETAILS = VoucherDetails(title="Benchmark", rules="", price_cents=100, face_value_cents=200)
MOST_UNITS = 1_000_000

STRANGERS_FROM = 1_000_000
"""Users from this id on have no row: requests that only use the ledger need none."""

OTHER_BUYERS_FROM = 100_000_000
FIRST_ORDER_ID = 1 << 32
CHUNK = 5_000


def open_sale(
    *, stock: int = MOST_UNITS, begins_in_s: int = -1, room_rate: int = 0, **rules: Any
) -> SeckillVoucher:
    """Make a loaded sale that is open for hours, at once or from a full second on.

    With ``room_rate``, everybody waits for the start in its waiting room. ``rules`` are further
    fields of its terms.
    """
    now = timezone.now().replace(microsecond=0)  # a sale starts at a full second
    begins_at, ends_at = now + dt.timedelta(seconds=begins_in_s), now + dt.timedelta(hours=4)
    terms = SaleTerms(stock=stock, begins_at=begins_at, ends_at=ends_at, **rules)
    if room_rate:
        terms = replace(terms, room=RoomKind.START, room_rate=room_rate)
    return create_voucher_on_sale(details=DETAILS, terms=terms)


def strangers(sale: SeckillVoucher, *, count: int) -> list[PurchaseToken]:
    """Return tokens of users who have no row."""
    user_ids = range(STRANGERS_FROM, STRANGERS_FROM + count)
    return issue_tokens(sale=sale, user_ids=user_ids)


def in_line(sale: SeckillVoucher, *, count: int) -> list[str]:
    """Give visitors without rows the first places in a sale's line; return their cookies."""
    terms = RoomTerms.from_sale(sale)
    assert terms is not None
    key = LedgerKeys(sale.pk).room
    ledger_connection().hset(key, mapping={"opened": terms.opened_ms, "tail": count})
    line = Line(terms, count, None)
    return [
        _cookie(sale, Place(line, n, sale.room_opened_ms, n, PlaceState.WAITING))
        for n in range(1, count + 1)
    ]


def _cookie(sale: SeckillVoucher, place: Place) -> str:
    session, user_id = get_random_string(32, VALID_KEY_CHARS), STRANGERS_FROM + place.given
    text = sign_place(place, sale_id=sale.pk, user_id=user_id, session_key=session)
    return f"{settings.SESSION_COOKIE_NAME}={session}; place-{sale.pk}={text}"


def users(*, count: int) -> list[int]:
    """Return users with rows, after making the missing ones."""
    rows = get_user_model().objects.order_by("pk")
    missing = count - rows.count()
    if missing > 0:
        for _ in create_buyers(count=missing, sale_id=open_sale(stock=1).pk):
            pass
    return list(rows.values_list("pk", flat=True)[:count])


def sign_in(*, user_ids: Sequence[int]) -> list[str]:
    """Give users sessions that the cache does not know yet; return the cookies."""
    store = SessionStore()
    sessions = [
        Session(
            session_key=get_random_string(32, VALID_KEY_CHARS),
            session_data=store.encode(
                {
                    SESSION_KEY: str(user.pk),
                    BACKEND_SESSION_KEY: settings.AUTHENTICATION_BACKENDS[-1],
                    HASH_SESSION_KEY: user.get_session_auth_hash(),
                }
            ),
            expire_date=store.get_expiry_date(),
        )
        for user in get_user_model().objects.filter(pk__in=user_ids).order_by("pk")
    ]
    Session.objects.bulk_create(sessions, batch_size=CHUNK)
    return [f"{settings.SESSION_COOKIE_NAME}={it.session_key}" for it in sessions]


def reserve_all(tokens: Sequence[PurchaseToken]) -> None:
    """Reserve a unit for each token, in this process and without a task."""
    with override_settings(SECKILL_BEHIND_MS=0):  # no worker runs meanwhile, however long it takes
        for token in tokens:
            order_id, user_id = token.order_id, token.user_id
            call = reserve_call(sale_id=token.sale_id, order_id=order_id, user_id=user_id)
            send(call.finished_by(finish_reservation))


def insert_statement(model: type[Model], columns: Sequence[str]) -> str:
    """Return the statement that inserts rows of a model with the bare driver."""
    names = ", ".join(f"`{column}`" for column in columns)
    marks = ", ".join(["%s"] * len(columns))
    return f"INSERT INTO {model._meta.db_table} ({names}) VALUES ({marks})"


def insert_orders(orders: Sequence[tuple[int, int, int, int]]) -> None:
    """Insert unpaid orders: order id, user, sale, unit."""
    at = connection.ops.adapt_datetimefield_value(timezone.now())
    rest = (OrderStatus.UNPAID.value, True, "", 100, at, None, at, at, None)
    statement = insert_statement(VoucherOrder, ORDER_COLUMNS)
    with connection.cursor() as cursor:
        for start in range(0, len(orders), CHUNK):
            rows = [(*order, *rest) for order in orders[start : start + CHUNK]]
            cursor.executemany(statement, rows)
        cursor.execute(f"ANALYZE TABLE {VoucherOrder._meta.db_table}")
        cursor.fetchall()


# --- A whole shop ---------------------------------------------------------------------------------


def fill(size: Size, *, requests: int) -> dict[str, Any]:
    """Make sales, their orders and the buyers of one sale; return the requests it can answer."""
    sales = [open_sale() for _ in range(size.sales)]
    user_ids = users(count=-(-size.orders // len(sales)))
    pairs = ((user_id, sale.pk) for user_id in user_ids for sale in sales)
    orders = [(FIRST_ORDER_ID + n, *of) for n, of in zip(range(size.orders), pairs, strict=False)]
    insert_orders([(*order, 1) for order in orders])
    crowded = sales[len(sales) // 2]
    # A sale has at most a million units, so the requests are from the last of a million buyers.
    _hold(crowded, count=min(size.buyers, MOST_UNITS - requests))
    every = max(1, len(orders) // requests)
    ends_at_ms = epoch_ms(crowded.ends_at)
    tokens = [
        PurchaseToken(*order, ends_at_ms, crowded.identity) for order in orders[::every][:requests]
    ]
    return {
        "sale_id": crowded.pk,
        "reserve": [token.sign() for token in strangers(crowded, count=requests)],
        "receipts": [(token.sale_id, token.order_id, token.sign()) for token in tokens],
    }


def _hold(sale: SeckillVoucher, *, count: int) -> None:
    """Put buyers into a ledger, as if their orders had been written."""
    key = LedgerKeys(sale.pk).buyers
    for start in range(0, count, CHUNK):
        numbers = range(start, min(start + CHUNK, count))
        held = {f"{OTHER_BUYERS_FROM + n}:1": FIRST_ORDER_ID + n for n in numbers}
        ledger_connection().hset(key, mapping=held)


if __name__ == "__main__":
    *numbers, target = sys.argv[1:]
    buyers, sales, orders, requests = map(int, numbers)
    filled = fill(Size(buyers, sales, orders), requests=requests)
    Path(target).write_text(json.dumps(filled))
