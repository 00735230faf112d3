"""The table of buyer rules: who may buy in a sale, and whom a cap on every account refuses.

The form of a sale, ``manage.py create_sale``, the pages and the refusals follow from this table. A
new rule takes a column in ``vouchers/models.py``, a field and an entry here, its sentences in
``vouchers/templatetags/buyer_texts.toml``, and a check under its name in
``orders/audience/checks.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

from vouchers.models import MAX_ACCOUNT_AGE_H, SeckillVoucher


@dataclass(frozen=True, kw_only=True)
class Audience:
    """The buyer rules of a sale, by column; a buyer has to pass all of them."""

    needs_contact: bool = False
    account_age_h: int = 0
    group_id: int | None = None
    needs_code: bool = False
    first_order_only: bool = False


EVERYBODY = Audience()


@dataclass(frozen=True, kw_only=True)
class BuyerRule:
    """A rule that may refuse a buyer; ``name`` is in answers and in stored refusals.

    ``label`` tells staff why, and ``message`` programs. What buyers read of it is in
    ``vouchers/templatetags/buyer_texts.toml``.
    """

    name: str
    label: str | Promise
    message: str


@dataclass(frozen=True, kw_only=True)
class SaleRule(BuyerRule):
    """A rule in the column ``field`` of a sale, which applies unless that is empty, 0 or False.

    ``option`` is its option of ``create_sale``, and ``bounds`` are the least and the largest number
    of a rule that has one.
    """

    field: str
    option: str
    bounds: tuple[int, int] | None = None

    @property
    def form_field(self) -> str:
        return SeckillVoucher._meta.get_field(self.field).name

    def value(self, of: Audience | SeckillVoucher) -> Any:
        """Return the rule's value in a sale."""
        return getattr(of, self.field)


GROUP = SaleRule(
    name="group",
    field="group_id",
    label=_("not in the group"),
    message=gettext_noop("This sale is for members; your account isn't one."),
    option="--group",
)
ACCOUNT_AGE = SaleRule(
    name="account_age",
    field="account_age_h",
    bounds=(0, MAX_ACCOUNT_AGE_H),
    label=_("account too new"),
    message=gettext_noop("Your account is too new for this sale."),
    option="--account-age-hours",
)
FIRST_ORDER = SaleRule(
    name="first_order",
    field="first_order_only",
    label=_("not the first order"),
    message=gettext_noop("This sale is only for a first order, and you already have one."),
    option="--first-order-only",
)
CONTACT = SaleRule(
    name="contact",
    field="needs_contact",
    label=_("no verified contact"),
    message=gettext_noop(
        "This sale is only for accounts with a verified email address or phone number."
    ),
    option="--needs-contact",
)
CODE = SaleRule(
    name="code",
    field="needs_code",
    label=_("no invitation code"),
    message=gettext_noop("This sale takes an invitation code. Enter yours first."),
    option="--needs-code",
)

SALE_RULES = (GROUP, ACCOUNT_AGE, FIRST_ORDER, CONTACT, CODE)
"""The rules of a sale in the order of their checks; last come those that a buyer can satisfy."""

UNPAID_ORDERS = BuyerRule(
    name="unpaid_orders",
    label=_("too many unpaid orders"),
    message=gettext_noop(
        "You have %(number)s or more unpaid orders. Pay or cancel some before you buy another."
    ),
)
CANCELLATIONS = BuyerRule(  # no page of a sale offers what it refuses
    name="cancellations",
    label=_("too many cancellations"),
    message=gettext_noop(
        "You have cancelled too many orders within an hour. This one ends by itself if you do "
        "not pay for it."
    ),
)

RULES: dict[str, BuyerRule] = {it.name: it for it in (*SALE_RULES, UNPAID_ORDERS, CANCELLATIONS)}
"""All rules by name: those of a sale, then the caps on every account."""


def audience_of(sale: SeckillVoucher) -> Audience:
    """Return the rules in the row of a sale."""
    return Audience(**{it.field: it.value(sale) for it in SALE_RULES})
