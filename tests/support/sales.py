"""Makers of rows and ledgers; by default the sale is open and has units."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from orders.models import LIVE_STATUSES, OrderStatus, VoucherOrder, WaitingEntry
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.catalogue.sales import SaleTerms, edit_sale, terms_of
from vouchers.inventory.keys import STATE, LedgerKeys, send
from vouchers.inventory.rebuild import load_sale
from vouchers.inventory.reservations import (
    PendingEntry,
    Reservation,
    finish_reservation,
    pending_entries,
    reserve_call,
)
from vouchers.inventory.sale_state import parse_state
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import SeckillVoucher, Voucher

HOUR = dt.timedelta(hours=1)


def make_user(name: str, **fields: Any) -> User:
    """Make a buyer without a password, to save the hashing."""
    return User.objects.create_user(name, password=None, **fields)


def make_voucher(**fields: Any) -> Voucher:
    defaults = {"title": "Noodles", "price_cents": 8_000, "face_value_cents": 10_000}
    return Voucher.objects.create(**{**defaults, **fields})


def make_sale(**fields: Any) -> SeckillVoucher:
    """Make the row of a sale that is open now; its ledger is not loaded."""
    now = timezone.now()
    voucher = fields.pop("voucher", None) or make_voucher()
    defaults = {"stock": 5, "begins_at": now - HOUR, "ends_at": now + HOUR}
    return SeckillVoucher.objects.create(voucher=voucher, **{**defaults, **fields})


def make_loaded_sale(**fields: Any) -> SeckillVoucher:
    sale = make_sale(**fields)
    load_sale(sale_id=sale.pk)
    sale.refresh_from_db()
    return sale


def make_order(
    sale: SeckillVoucher, user: User | None, *, order_id: int, **fields: Any
) -> VoucherOrder:
    """Make an order's row; a live one counts as sold. The ledger is not changed."""
    status = fields.setdefault("status", OrderStatus.UNPAID)
    live = status in LIVE_STATUSES or None
    defaults = {"unit": 1, "price_cents": 8_000, "accepted_at": timezone.now(), "live": live}
    order = VoucherOrder.objects.create(
        id=order_id, user=user, seckill_voucher=sale, **{**defaults, **fields}
    )
    if live:
        SeckillVoucher.objects.filter(pk=sale.pk).update(sold=F("sold") + 1)
    return order


def make_waiting(sale: SeckillVoucher, user: User, *, order_id: int, **fields: Any) -> WaitingEntry:
    """Make the row of a waiting buyer. The ledger is not changed."""
    defaults: dict[str, Any] = {"joined_at": timezone.now()}
    return WaitingEntry.objects.create(
        seckill_voucher=sale, user=user, order_id=order_id, **{**defaults, **fields}
    )


def terms(**changes: Any) -> SaleTerms:
    now = timezone.now()
    defaults: dict[str, Any] = {"stock": 5, "begins_at": now - HOUR, "ends_at": now + HOUR}
    return SaleTerms(**{**defaults, **changes})


def change_stock(*, sale_id: int, stock: int) -> SeckillVoucher:
    """Edit the units offered, and leave the other terms as they are."""
    with transaction.atomic():
        sale = lock_seckill_voucher(sale_id=sale_id)
        return edit_sale(sale_id=sale_id, terms=replace(terms_of(sale), stock=stock))


def redis_now_ms() -> int:
    """Return the time of Redis in milliseconds since 1970."""
    seconds, micros = ledger_connection().time()
    return int(seconds) * 1000 + int(micros) // 1000


def past_ms(ms: int = 1_000) -> int:
    """Return a moment in the past, by the clock of Redis."""
    return redis_now_ms() - ms


def future_ms(ms: int = 60_000) -> int:
    """Return a moment in the future, by the clock of Redis."""
    return redis_now_ms() + ms


def open_ledger(sale_id: int, **changes: Any) -> LedgerKeys:
    """Write the ledger of an open sale without a row; ``changes`` are words of its state."""
    keys, client, now_ms = LedgerKeys(sale_id), ledger_connection(), redis_now_ms()
    words = {
        "epoch": 1,
        "total": 5,
        "begins_at_ms": now_ms - 60_000,
        "ends_at_ms": now_ms + 60_000,
        "limit": 1,
        "paused": 0,
        "rebuy": 1,
        "plain": 1,
        "loaded_at_ms": now_ms,
        "batch": 0,
        "identity": 0,
        "sold_out_at_ms": "",
        **changes,
    }
    client.hset(keys.buyers, STATE, _state_of(words))
    return keys


def change_state(sale_id: int, **changes: Any) -> None:
    """Change words of a loaded ledger's state, as no script does."""
    key, client = LedgerKeys(sale_id).buyers, ledger_connection()
    words = parse_state(client.hget(key, STATE))
    assert set(changes) <= set(words), "the state has no such word"
    client.hset(key, STATE, _state_of({**words, **changes}))


def lose_state(sale_id: int) -> None:
    """Take a loaded ledger its state, so that it is not loaded; buyers and pending entries stay."""
    assert ledger_connection().hdel(LedgerKeys(sale_id).buyers, STATE), "the ledger is not loaded"


def _state_of(words: dict[str, Any]) -> str:
    text = (
        "{epoch}:{identity} {total} {begins_at_ms} {ends_at_ms} {limit} {paused} {rebuy} {plain} "
        "{loaded_at_ms} {batch} {sold_out_at_ms}"
    ).format(**words)
    return f"{text} {words['mode_terms']}" if words.get("mode_terms") else text


def reserve(**order: Any) -> Reservation:
    """Reserve a unit by the call that the shop sends, and raise as it does."""
    return send(reserve_call(**order).finished_by(finish_reservation))


def reserve_entry(*, sale_id: int, order_id: int, user_id: int) -> PendingEntry:
    """Reserve a unit and return its pending entry."""
    reserve(sale_id=sale_id, order_id=order_id, user_id=user_id)
    return next(entry for entry in all_pending(sale_id=sale_id) if entry.order_id == order_id)


def all_pending(*, sale_id: int) -> list[PendingEntry]:
    """Return every pending entry, oldest first."""
    return pending_entries(sale_id=sale_id, skip=0, count=100_000)


def why_ended(*, sale_id: int, order_id: int) -> str | None:
    """Return ``<user>:<reason>`` of an order id that ended, or None."""
    found: str | None = ledger_connection().hget(LedgerKeys(sale_id).ended, str(order_id))
    return found
