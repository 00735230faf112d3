"""The rules of a sale about the accounts that may buy."""

from typing import NamedTuple

from vouchers.models import SeckillVoucher


class Audience(NamedTuple):
    """The rules of a sale; a buyer has to pass all of them."""

    needs_contact: bool = False
    account_age_h: int = 0
    group_id: int | None = None
    needs_code: bool = False
    first_order_only: bool = False


EVERYBODY = Audience()

AUDIENCE_TERMS = ("needs_contact", "account_age_h", "group", "needs_code", "first_order_only")
"""The terms of a sale that hold its rules."""


def audience_of(sale: SeckillVoucher) -> Audience:
    """Return the rules in the row of a sale."""
    return Audience(*(getattr(sale, name) for name in Audience._fields))
