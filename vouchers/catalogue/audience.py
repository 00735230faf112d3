"""The table of buyer rules: who may buy in a sale, and whom a cap on every account refuses.

The form of a sale, ``manage.py create_sale``, the pages and the refusals follow from this table. A
new rule takes a column in ``vouchers/models.py``, a field and an entry here, and a check under its
name in ``orders/audience/checks.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop

from vouchers.models import MAX_ACCOUNT_AGE_H, SeckillVoucher

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


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

    ``label`` tells staff why, ``told`` the buyer, and ``message`` programs; ``button`` names what
    the buyer can do about it, if anything.
    """

    name: str
    label: StrOrPromise
    button: StrOrPromise = ""
    told: StrOrPromise = ""
    message: str


@dataclass(frozen=True, kw_only=True)
class SaleRule(BuyerRule):
    """A rule in the column ``field`` of a sale, which applies unless that is empty, 0 or False.

    ``listed`` tells it to everybody, ``option`` is its option of ``create_sale``, and ``bounds``
    are the least and the largest number of a rule that has one.
    """

    field: str
    listed: StrOrPromise
    option: str
    option_help: str
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
    listed=_("Members only"),
    told=_("This sale is for members; your account isn't one."),
    message=gettext_noop("This sale is for members; your account isn't one."),
    option="--group",
    option_help="only accounts in the group of this name",
)
ACCOUNT_AGE = SaleRule(
    name="account_age",
    field="account_age_h",
    bounds=(0, MAX_ACCOUNT_AGE_H),
    label=_("account too new"),
    listed=_("Only for accounts that are at least {age} old"),
    button=_("Eligible from {time}"),
    told=_("Your account is too new for this sale."),
    message=gettext_noop("Your account is too new for this sale."),
    option="--account-age-hours",
    option_help="only accounts at least this old",
)
FIRST_ORDER = SaleRule(
    name="first_order",
    field="first_order_only",
    label=_("not the first order"),
    listed=_("Only for a first order: you have no other unpaid, paid or used order"),
    told=_("This sale is only for a first order, and you already have one."),
    message=gettext_noop("This sale is only for a first order, and you already have one."),
    option="--first-order-only",
    option_help="only buyers who hold no other order",
)
CONTACT = SaleRule(
    name="contact",
    field="needs_contact",
    label=_("no verified contact"),
    listed=_("Only with a verified email address or phone number"),
    button=_("Verify phone"),
    told=_("Verify your email or phone to buy here."),
    message=gettext_noop(
        "This sale is only for accounts with a verified email address or phone number."
    ),
    option="--needs-contact",
    option_help="only buyers with a confirmed contact",
)
CODE = SaleRule(
    name="code",
    field="needs_code",
    label=_("no invitation code"),
    listed=_("Only with an invitation code"),
    button=_("Enter code"),
    told=_("This sale takes an invitation code. Enter yours below."),
    message=gettext_noop("This sale takes an invitation code. Enter yours first."),
    option="--needs-code",
    option_help="each voucher takes an invitation code",
)

SALE_RULES = (GROUP, ACCOUNT_AGE, FIRST_ORDER, CONTACT, CODE)
"""The rules of a sale in the order of their checks; last come those that a buyer can satisfy."""

UNPAID_ORDERS = BuyerRule(
    name="unpaid_orders",
    label=_("too many unpaid orders"),
    button=_("Pay your order"),
    told=_("You have {number} or more unpaid orders. Pay or cancel some first."),
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
