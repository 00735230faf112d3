"""Readers who can be told, a channel that remembers what it was given, and requests."""

from __future__ import annotations

import datetime as dt
from typing import Any

from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.utils import timezone

from accounts.models import Phone, Reader
from orders.models import Notice
from tests.support.orders import make_buyer
from vouchers.models import SeckillVoucher


def make_reader(*, email: bool = True, phone: str = "", language: str = "en") -> User:
    """Make a buyer who confirmed these, and reads this language."""
    user = make_buyer()
    if email:
        address = f"{user.username}@example.com"
        EmailAddress.objects.create(user=user, email=address, verified=True, primary=True)
    if phone:
        Phone.objects.create(user=user, number=phone)
    Reader.objects.create(user=user, language=language)
    return user


def make_notice(
    sale: SeckillVoucher, user: User, kind: Notice.Kind = Notice.Kind.START, **fields: Any
) -> Notice:
    asked = {"asked_at": timezone.now(), **fields}
    return Notice.objects.create(seckill_voucher=sale, user=user, kind=kind, **asked)


def move_start(sale: SeckillVoucher, *, begins_in_s: int) -> None:
    """Move the start in the row alone, by which notices are sent."""
    begins_at = timezone.now() + dt.timedelta(seconds=begins_in_s)
    SeckillVoucher.objects.filter(pk=sale.pk).update(begins_at=begins_at)
