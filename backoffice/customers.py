"""Customers: the accounts that buy, found by name, contact or order, and what each has done.

Each function costs a fixed number of statements, each by an index, whatever the number of accounts.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Container, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.db.models import Count, Max, OuterRef, Q, QuerySet
from django.utils.functional import Promise

from accounts.contacts import Contact, confirmed_contact, confirmed_contacts
from accounts.models import Phone
from accounts.phones import as_phone
from backoffice.board.texts import attempt_labels
from backoffice.revenue import EVER_PAID, REFUNDED_STATUSES
from orders.draws.standing import standings
from orders.models import (
    DrawEntry,
    Notice,
    OrderRefusal,
    OrderStatus,
    Payment,
    RoomVisit,
    RuleRefusal,
    VoucherOrder,
    WaitingEntry,
)
from seckill_site.web.url_converters import LARGEST_ID
from vouchers.inventory.draw_entries import read_entry
from vouchers.inventory.holdings import read_holdings
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.models import SaleStage, SeckillVoucher

PER_PAGE = 50

MOST_ORDERS = 10_000
"""The most orders that a search finds by their buyer."""

MOST_ROWS = 100
"""The most rows of each kind on the page of a customer: the latest ones."""


def newest_buyers(*, before: int | None = None) -> list[int]:
    """Return the newest accounts with orders; ``before`` is the last one of the page before."""
    orders = without_rehearsals(VoucherOrder.objects.filter(user=OuterRef("pk")))
    # Asked of one account after the other: MariaDB would begin with all orders without this limit.
    buyers = User.objects.alias(order=orders.order_by("-pk").values("pk")[:1])
    buyers = buyers.filter(order__isnull=False)
    if before is not None:
        buyers = buyers.filter(pk__lt=before)
    return list(buyers.order_by("-pk").values_list("pk", flat=True)[:PER_PAGE])


def find_customers(text: str) -> list[int]:
    """Return the accounts whose name or contact starts with this, and the buyer of this order."""
    text = text.strip()
    if not text:
        return []
    ids = _accounts(text, "istartswith", by_contact=True)
    orders = VoucherOrder.objects.filter(pk=typed_id(text), user__isnull=False)
    ids.update(orders.values_list("user_id", flat=True))
    return sorted(ids, reverse=True)[:PER_PAGE]


def find_orders(text: str, *, by_contact: bool) -> set[int]:
    """Return the orders with this number, payment number or buyer, exactly: the newest of many.

    ``by_contact``: also of a buyer with this email address or phone number.
    """
    ids, text = {typed_id(text)}, text.strip()
    for name in ("reference", "charge__reference", "provider_reference"):  # each has its index
        paid = Payment.objects.filter(**{name: text})
        ids.update(paid.values_list("order_id", flat=True)[:PER_PAGE])
    users = _accounts(text, "iexact", by_contact=by_contact)
    theirs = VoucherOrder.objects.filter(user__in=users).order_by("-pk")
    ids.update(theirs.values_list("pk", flat=True)[:MOST_ORDERS])
    return ids


def is_contact(text: str) -> bool:
    """Return whether a text may be an email address or a phone number, or its start."""
    return "@" in text or _is_number(text)


def _is_number(text: str) -> bool:
    return as_phone(text).removeprefix("+").isdecimal()


def name_in_address(text: str, *, by_contact: bool) -> str:
    """Return what a search for this may have in its address, which is logged; empty: it finds none.

    A contact is replaced by the name of its only account.
    """
    names = User.objects.filter(pk__in=_accounts(text.strip(), "iexact", by_contact=by_contact))
    found = names.values_list("username", flat=True)[:2]
    return found[0] if len(found) == 1 else text if found or "@" not in text else ""


def _accounts(text: str, lookup: str, *, by_contact: bool) -> set[int]:
    named = User.objects.filter(**{f"username__{lookup}": text})
    ids = set(named.values_list("pk", flat=True)[:PER_PAGE])
    if by_contact:
        addresses = EmailAddress.objects.filter(**{f"email__{lookup}": text})
        ids.update(addresses.values_list("user", flat=True)[:PER_PAGE])
        if _is_number(text):
            phones = Phone.objects.filter(**{f"number__{lookup}": as_phone(text)})
            ids.update(phones.values_list("pk", flat=True)[:PER_PAGE])
    return ids


def typed_id(text: str) -> int:
    """Return the number of a row that was typed, or 0 if it is not one."""
    number = "".join(text.split()).replace("-", "")
    is_one = number.isdecimal() and number.isascii() and len(number) <= 19
    return int(number) if is_one and int(number) <= LARGEST_ID else 0


def customers(user_ids: Collection[int]) -> list[Any]:
    """Return these accounts, newest first, each with a masked contact and what it has ordered."""
    contacts = confirmed_contacts(user_ids)
    real = ~Q(voucher_orders__seckill_voucher__in=_rehearsals())

    def number(**condition: Any) -> Count:
        return Count("voucher_orders", filter=real & Q(**condition))

    users = User.objects.filter(pk__in=user_ids).annotate(
        orders=number(),
        paid=number(voucher_orders__status__in=EVER_PAID),
        refunded=number(voucher_orders__status__in=REFUNDED_STATUSES),
        last_order_at=Max("voucher_orders__accepted_at", filter=real),
    )
    found: list[Any] = list(users.order_by("-pk"))
    for user in found:
        user.contact = mask(contacts[user.pk])
    return found


def without_rehearsals(orders: QuerySet[VoucherOrder]) -> QuerySet[VoucherOrder]:
    """Leave out the orders of rehearsals."""
    return orders.exclude(seckill_voucher__in=_rehearsals())


def _rehearsals() -> list[int]:
    """Return the sales of rehearsals; there are few at a time."""
    sales = SeckillVoucher.objects.filter(stage=SaleStage.REHEARSAL)
    return list(sales.values_list("pk", flat=True))


def mask(contact: Contact) -> str:
    """Return a masked contact that shows just enough to tell two apart."""
    parts = []
    if contact.email:
        name, _, host = contact.email.rpartition("@")
        parts.append(f"{name[:1]}***@{host}")
    if contact.phone:
        parts.append(f"{contact.phone[:-8]}****{contact.phone[-4:]}")
    return " · ".join(parts)


# --- One customer ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class History:
    """What a customer has done, the latest first, and what of it was refused.

    ``unwritten`` is what no row has yet: sales, ids, and places of orders in the queue, which
    entries in draws do not have; None while Redis does not respond. ``refused`` are orders that
    were accepted before. ``requests`` come with their reasons in words, ``entries`` with their
    standing.
    """

    user: User
    contact: Contact
    orders: Sequence[VoucherOrder]
    unwritten: Sequence[tuple[SeckillVoucher, int, int | None]] | None
    refused: Sequence[VoucherOrder]
    rules: Sequence[RuleRefusal]
    requests: Sequence[tuple[OrderRefusal, str | Promise]]
    waits: Sequence[WaitingEntry]
    entries: Sequence[tuple[DrawEntry, str | Promise]]
    visits: Sequence[RoomVisit]
    notices: Sequence[Notice]


def history_of(*, user_id: int, now: dt.datetime) -> History:
    """Return what is stored about a customer, and what of it the ledger alone has.

    :raises User.DoesNotExist: there is no such account.
    """
    user = User.objects.get(pk=user_id)
    orders = VoucherOrder.objects.filter(user=user).select_related("seckill_voucher__voucher")
    taken = without_rehearsals(orders.exclude(status=OrderStatus.REFUSED))
    refused = without_rehearsals(orders.filter(status=OrderStatus.REFUSED))

    def latest(model: type, order: str, also: str = "seckill_voucher__voucher") -> list[Any]:
        rows = model.objects.filter(user=user).select_related("seckill_voucher__voucher", also)  # type: ignore[attr-defined]
        return list(rows.order_by(order, "-pk")[:MOST_ROWS])

    entries = latest(DrawEntry, "-entered_at", also="seckill_voucher__draw")
    held = [it for it in entries if it.live and hasattr(it.seckill_voucher, "draw")]
    standing = {it.order_id: it.label for it in standings(held)}
    requests = latest(OrderRefusal, "-refused_at")
    return History(
        user=user,
        contact=confirmed_contact(user),
        orders=list(taken.order_by("-accepted_at", "-pk")[:MOST_ROWS]),
        unwritten=_unwritten(user_id, now, known={it.pk for it in entries}),
        refused=list(refused.order_by("-accepted_at", "-pk")[:MOST_ROWS]),
        rules=latest(RuleRefusal, "-refused_at"),
        requests=[
            (it, attempt_labels(it.seckill_voucher).get(it.reason, it.reason)) for it in requests
        ],
        waits=latest(WaitingEntry, "-joined_at"),
        entries=[(it, standing.get(it.pk, it.get_outcome_display())) for it in entries],
        visits=latest(RoomVisit, "-joined_at"),
        notices=latest(Notice, "-asked_at"),
    )


def _unwritten(
    user_id: int, now: dt.datetime, known: Container[int]
) -> list[tuple[SeckillVoucher, int, int | None]] | None:
    """Return what the ledgers of active sales hold for a buyer beside rows and ``known`` entries.

    None if Redis does not respond.
    """
    active = SeckillVoucher.objects.filter(SeckillVoucher.still_active(now), begins_at__lte=now)
    sales, found = list(active.select_related("voucher")), list[Any]()
    with suppress(LedgerUnavailable):
        held = read_holdings(sale_ids=[sale.pk for sale in sales], user_id=user_id)
        for sale, holdings in zip(sales, held, strict=True):
            queued = [it for it in holdings.units if it.queue_position]
            found += [(sale, it.order_id, it.queue_position) for it in queued]
            entry = read_entry(sale_id=sale.pk, user_id=user_id) if sale.is_draw else None
            if entry and entry.order_id not in known:
                found.append((sale, entry.order_id, None))
        return found
    return None
