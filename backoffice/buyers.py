"""Crowds of buyers for load tests and rehearsals."""

import secrets
from collections.abc import Iterable, Iterator

from django.contrib.auth import get_user_model
from django.contrib.auth.hashers import make_password

from orders.placing.tokens import PurchaseToken, issue_tokens
from vouchers.models import SeckillVoucher

_CHUNK = 500


def create_buyers(*, count: int, sale_id: int) -> Iterator[list[PurchaseToken]]:
    """Create ``count`` users who cannot sign in, and yield their purchase tokens chunk by chunk.

    :raises SeckillVoucher.DoesNotExist: there is no such sale; no user was created.
    :raises LedgerUnavailable: Redis did not respond.
    """
    sale = SeckillVoucher.objects.get(pk=sale_id)
    crowd = secrets.token_hex(4)
    for first in range(0, count, _CHUNK):
        names = [f"buyer-{crowd}-{n}" for n in range(first, min(first + _CHUNK, count))]
        make_users(names)
        # MySQL does not report the ids of a bulk insert.
        users = get_user_model().objects.filter(username__in=names).order_by("pk")
        yield issue_tokens(sale=sale, user_ids=list(users.values_list("pk", flat=True)))


def make_users(names: Iterable[str]) -> None:
    """Create users who cannot sign in and have no email address."""
    users = get_user_model().objects
    users.bulk_create([users.model(username=name, password=make_password(None)) for name in names])
