"""What the shop knows of a buyer: to be downloaded, and to be forgotten."""

from contextlib import suppress
from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.contrib.auth.models import User
from django.db.models import Model

from accounts.contacts import confirmed_contact
from accounts.deletion import anonymise
from accounts.invitations import invitations_of
from accounts.models import Agreement
from orders.draws.entries import withdraw
from orders.lifecycle.waiting_list import NotWaiting, leave
from orders.models import (
    DrawEntry,
    InvitationCode,
    Notice,
    OrderRefusal,
    RoomVisit,
    RuleRefusal,
    VoucherOrder,
    WaitingEntry,
)
from seckill_site.clocks.database import database_now
from seckill_site.clocks.machine import epoch_ms
from vouchers.inventory.draw_entries import NoEntry, read_entry
from vouchers.inventory.reservations import SaleEnded
from vouchers.models import Draw

_SALE = "seckill_voucher_id"
_BUYERS_ROWS: dict[str, tuple[type[Model], tuple[str, ...]]] = {
    "emails": (EmailAddress, ("email", "verified", "primary")),
    "agreements": (Agreement, ("version", "agreed_at")),
    "sessions": (UserSession, ("ip", "user_agent", "created_at", "last_seen_at")),
    "second_factors": (Authenticator, ("type", "created_at", "last_used_at")),
    "waiting_lists": (WaitingEntry, (_SALE, "joined_at", "quantity", "outcome")),
    "notices": (Notice, (_SALE, "kind", "asked_at", "told_at", "live")),
    "draws": (DrawEntry, (_SALE, "entered_at", "outcome")),
    "invitation_codes": (InvitationCode, (_SALE, "code", "entered_at")),
    "refusals": (RuleRefusal, (_SALE, "rule", "refused_at")),
    "refused_attempts": (OrderRefusal, (_SALE, "reason", "refused_at")),
    "waiting_rooms": (RoomVisit, (_SALE, "joined_at", "let_in_at")),
}
"""What a download has of a buyer's rows: the table and its columns."""


class IsStaff(Exception):
    """Staff cannot delete their own account: first somebody takes their rights away."""


def data_of(user: User) -> dict[str, Any]:
    """Return everything stored about a buyer, ready for JSON."""
    contact = confirmed_contact(user)
    orders = VoucherOrder.objects.filter(user=user).prefetch_related("events", "payments")
    orders = orders.select_related("seckill_voucher__voucher__merchant")
    return {
        "account": {
            "id": str(user.pk),
            "username": user.username,
            "name": user.first_name,
            "joined": user.date_joined,
            "last_login": user.last_login,
            "language": contact.language,
            "phone": contact.phone,
        },
        "orders": [_order(it) for it in orders],
        "staff_invitations": list(
            invitations_of(user).values("name", "email", "role__name", "invited_at", "accepted_at")
        ),
        **{
            name: list(model._default_manager.filter(user=user).values(*columns))
            for name, (model, columns) in _BUYERS_ROWS.items()
        },
    }


def _order(order: VoucherOrder) -> dict[str, Any]:
    return {
        "id": str(order.pk),
        "voucher": order.seckill_voucher.voucher.title,
        "status": order.status,
        "price_cents": order.price_cents,
        "code": order.code,
        "accepted_at": order.accepted_at,
        "changes": [
            {"at": it.at, "before": it.before, "after": it.after, "reason": it.text}
            for it in order.events.all()
        ],
        "payments": [
            {"reference": it.reference, "amount_cents": it.amount_cents, "status": it.status}
            for it in order.payments.all()
        ],
    }


def delete_account(user: User) -> None:
    """Leave all waiting lists and open draws, free unused codes, and close the account.

    Its orders, and its entries in closed draws, stay without a name.

    :raises IsStaff: the account is one of staff.
    :raises LedgerUnavailable: Redis did not respond; the same call again is safe.
    """
    if user.is_staff:
        raise IsStaff
    waits = WaitingEntry.objects.filter(user=user, live=True)
    for sale_id in waits.values_list("seckill_voucher_id", flat=True):
        with suppress(NotWaiting):  # somebody else took them out of line meanwhile
            leave(sale_id=sale_id, user_id=user.pk)
    _leave_draws(user)
    for model in (Notice, OrderRefusal, RuleRefusal):
        model.objects.filter(user=user).delete()
    unused = InvitationCode.objects.filter(user=user, uses=None)
    unused.update(user=None, entered_at=None)
    anonymise(user)


def _leave_draws(user: User) -> None:
    """Withdraw the entries in draws that take entries, also those that no row has yet."""
    now = database_now()
    draws = Draw.objects.filter(closed_at=None, seckill_voucher__begins_at__lte=now)
    for sale_id in draws.values_list("seckill_voucher_id", flat=True):
        entry = read_entry(sale_id=sale_id, user_id=user.pk)
        if entry:
            with suppress(NoEntry, SaleEnded):  # withdrawn, or closed, meanwhile
                withdraw(
                    sale_id=sale_id,
                    order_id=entry.order_id,
                    user_id=user.pk,
                    now_ms=epoch_ms(now),
                )
