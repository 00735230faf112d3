"""Customers: the accounts that buy, found by name, contact or order, and what each has done.

Each function costs a fixed number of statements, each by an index, whatever the number of accounts.
"""

import datetime as dt
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.db.models import Count, Max, Q, QuerySet

from accounts.contacts import Contact, confirmed_contact, confirmed_contacts
from accounts.models import Phone
from accounts.phones import as_phone
from backoffice.report.figures import EVER_PAID
from orders.models import (
    DrawEntry,
    Notice,
    OrderStatus,
    RoomVisit,
    RuleRefusal,
    VoucherOrder,
    WaitingEntry,
)
from seckill_site.web.url_converters import LARGEST_ID
from vouchers.models import SaleStage, SeckillVoucher

PER_PAGE = 50

MOST_ROWS = 100
"""The most rows of each kind on the page of a customer: the latest ones."""


@dataclass(frozen=True)
class Customer:
    """One line of the list: an account, where it was confirmed to be reached, and its orders."""

    user: User
    contact: Contact
    orders: int
    paid: int
    refunded: int
    last_order_at: dt.datetime | None

    @property
    def masked_contact(self) -> str:
        return mask(self.contact)


def newest_buyers(*, before: int | None = None) -> list[int]:
    """Return the newest accounts with orders; ``before`` is the last one of the page before."""
    orders = _real(VoucherOrder.objects.filter(user__isnull=False))
    if before is not None:
        orders = orders.filter(user__lt=before)
    ids = orders.order_by("-user").values_list("user", flat=True).distinct()
    return list(ids[:PER_PAGE])


def find_customers(text: str) -> list[int]:
    """Return the accounts whose name or contact starts with this, and the buyer of this order."""
    text = text.strip()
    if not text:
        return []
    ids = set(
        User.objects.filter(username__istartswith=text).values_list("pk", flat=True)[:PER_PAGE]
    )
    addresses = EmailAddress.objects.filter(email__istartswith=text)
    ids.update(addresses.values_list("user", flat=True)[:PER_PAGE])
    if (number := as_phone(text)).removeprefix("+").isdecimal():
        phones = Phone.objects.filter(number__startswith=number)
        ids.update(phones.values_list("pk", flat=True)[:PER_PAGE])
    number = "".join(text.split()).replace("-", "")
    if number.isdecimal() and number.isascii() and len(number) <= 19 and int(number) <= LARGEST_ID:
        orders = VoucherOrder.objects.filter(pk=int(number), user__isnull=False)
        ids.update(orders.values_list("user_id", flat=True))
    return sorted(ids, reverse=True)[:PER_PAGE]


def customers(user_ids: Collection[int]) -> list[Customer]:
    """Return these accounts, newest first."""
    users = User.objects.in_bulk(user_ids)
    contacts = confirmed_contacts(user_ids)
    paid, returned = Q(status__in=EVER_PAID), Q(status__in=_RETURNED)
    sums = _real(VoucherOrder.objects.filter(user__in=user_ids)).order_by().values("user")
    rows = sums.annotate(
        orders=Count("pk"),
        paid=Count("pk", filter=paid),
        refunded=Count("pk", filter=returned),
        last=Max("accepted_at"),
    ).values_list("user", "orders", "paid", "refunded", "last")
    counts = {pk: row for pk, *row in rows}
    return [
        Customer(users[pk], contacts[pk], *counts.get(pk, (0, 0, 0, None)))
        for pk in sorted(users, reverse=True)
    ]


_RETURNED = (OrderStatus.REFUNDING, OrderStatus.REFUNDED)


def _real(orders: QuerySet[VoucherOrder]) -> QuerySet[VoucherOrder]:
    """Leave out the orders of rehearsals; there are few such sales at a time."""
    rehearsals = SeckillVoucher.objects.filter(stage=SaleStage.REHEARSAL)
    return orders.exclude(seckill_voucher__in=list(rehearsals.values_list("pk", flat=True)))


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

    ``refused`` are orders that were accepted and then refused. Requests that were never accepted
    are only known where a rule of a sale refused them: others are counted without names.
    """

    user: User
    contact: Contact
    orders: Sequence[VoucherOrder]
    refused: Sequence[VoucherOrder]
    rules: Sequence[RuleRefusal]
    waits: Sequence[WaitingEntry]
    entries: Sequence[DrawEntry]
    visits: Sequence[RoomVisit]
    notices: Sequence[Notice]


def history_of(*, user_id: int) -> History:
    """Return what is stored about a customer.

    :raises User.DoesNotExist: there is no such account.
    """
    user = User.objects.get(pk=user_id)
    orders = VoucherOrder.objects.filter(user=user).select_related("seckill_voucher__voucher")
    taken = _real(orders.exclude(status=OrderStatus.REFUSED))
    refused = _real(orders.filter(status=OrderStatus.REFUSED))

    def latest(model: type, order: str) -> list[Any]:
        rows = model.objects.filter(user=user).select_related("seckill_voucher__voucher")  # type: ignore[attr-defined]
        return list(rows.order_by(order, "-pk")[:MOST_ROWS])

    return History(
        user=user,
        contact=confirmed_contact(user),
        orders=list(taken.order_by("-accepted_at", "-pk")[:MOST_ROWS]),
        refused=list(refused.order_by("-accepted_at", "-pk")[:MOST_ROWS]),
        rules=latest(RuleRefusal, "-refused_at"),
        waits=latest(WaitingEntry, "-joined_at"),
        entries=latest(DrawEntry, "-entered_at"),
        visits=latest(RoomVisit, "-joined_at"),
        notices=latest(Notice, "-asked_at"),
    )
