"""The check of each rule of a sale, by the rule's name: whether a buyer passes it."""

import datetime as dt
from collections.abc import Callable
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group

from accounts.contacts import confirmed_contacts
from orders.models import InvitationCode, VoucherOrder
from seckill_site.clocks.database import database_now
from seckill_site.clocks.machine import epoch_ms
from vouchers.catalogue.audience import ACCOUNT_AGE, CODE, CONTACT, FIRST_ORDER, GROUP

Check = Callable[[int, int, Any], int]
"""Called with the ids of sale and buyer, and with the rule's value in the sale; 0 if it refuses."""


def _is_member(sale_id: int, user_id: int, group_id: int) -> bool:
    return Group.objects.filter(pk=group_id, user=user_id).exists()


def _is_old(sale_id: int, user_id: int, hours: int) -> bool:
    since = database_now() - dt.timedelta(hours=hours)
    return get_user_model().objects.filter(pk=user_id, date_joined__lte=since).exists()


def old_from_ms(user_id: int, hours: int) -> int | None:
    """Return when an account is so old, in milliseconds since 1970; None without an account."""
    account = get_user_model().objects.filter(pk=user_id).only("date_joined").first()
    return epoch_ms(account.date_joined + dt.timedelta(hours=hours)) if account else None


def _has_no_order(sale_id: int, user_id: int, only: bool) -> bool:
    return not VoucherOrder.objects.filter(user=user_id, live=True).exists()


def _has_contact(sale_id: int, user_id: int, needed: bool) -> bool:
    contacts = confirmed_contacts([user_id])[user_id]
    return bool(contacts.email or contacts.phone)


def unused_codes(sale_id: int, user_id: int, needed: bool = True) -> int:
    """Return how many codes the buyer has entered that no order has used."""
    codes = InvitationCode.objects.filter(seckill_voucher=sale_id, user=user_id)
    return codes.filter(uses=None).count()


CHECKS: dict[str, Check] = {
    GROUP.name: _is_member,
    ACCOUNT_AGE.name: _is_old,
    FIRST_ORDER.name: _has_no_order,
    CONTACT.name: _has_contact,
    CODE.name: unused_codes,
}
