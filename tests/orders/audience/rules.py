"""Makers for tests of who may buy."""

from __future__ import annotations

import datetime as dt

from django.contrib.auth.models import Group, User
from django.utils import timezone

from orders.models import InvitationCode
from vouchers.models import SeckillVoucher


def give_code(sale: SeckillVoucher, buyer: User | None, code: str = "WELCOME1") -> InvitationCode:
    """Make a code that this buyer, or nobody, has entered."""
    return InvitationCode.objects.create(
        seckill_voucher=sale, code=code, user=buyer, entered_at=timezone.now() if buyer else None
    )


def make_old(buyer: User, *, hours: int) -> None:
    """Let an account be so old."""
    User.objects.filter(pk=buyer.pk).update(date_joined=timezone.now() - dt.timedelta(hours=hours))


def make_member(buyer: User, name: str = "members") -> Group:
    """Put an account into a group."""
    group, _ = Group.objects.get_or_create(name=name)
    group.user_set.add(buyer)
    return group
