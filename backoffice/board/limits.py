"""Addresses and accounts at a limit now: of a sale's orders, or of requests to the site."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from django.contrib.auth.models import User
from django.utils.translation import gettext

from seckill_site.formatting import grouped
from seckill_site.web.request_rates import Limit, Limited, limited_now
from seckill_site.web.text_files import read_texts
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.order_limits import LimitKind, limited_subjects

SHOWN = 20
"""The most that are shown, of the sale's orders and of the site's requests each."""

_SITE_LIMITS = read_texts(Path(__file__).with_name("texts.toml"))["site_limits"]


@dataclass(frozen=True)
class LimitedRow:
    """An address or account that is limited, and by which limit; ``of_sale`` or ``of_site``."""

    subject: str
    limit: str
    of_sale: str = ""
    of_site: Limited | None = None

    @property
    def key(self) -> str:
        return self.of_sale or (self.of_site.member if self.of_site else "")


def read_limited(*, sale_id: int) -> list[LimitedRow]:
    """Return who is limited now in this sale, and on the site; nobody if Redis does not respond."""
    try:
        orders = limited_subjects(sale_id=sale_id, most=SHOWN)
    except LedgerUnavailable:
        orders = []
    requests = limited_now(most=SHOWN)
    ids = [it.name for it in orders if it.kind is LimitKind.ACCOUNT]
    names = _names([*ids, *(it.subject for it in requests if it.limit is Limit.ACCOUNT)])
    rows = []
    for order in orders:
        words = {"count": grouped(order.refused)}
        text = gettext("orders of this sale, %(count)s refused") % words
        shown = names.get(order.name, order.name) if order.kind is LimitKind.ACCOUNT else order.name
        rows.append(LimitedRow(shown, text, of_sale=order.subject))
    for request in requests:
        is_account = request.limit is Limit.ACCOUNT
        shown = names.get(request.subject, request.subject) if is_account else request.subject
        rows.append(LimitedRow(shown, str(_SITE_LIMITS[request.limit]), of_site=request))
    return rows


def _names(ids: Sequence[str]) -> dict[str, str]:
    numbers = [it for it in ids if it.isdecimal()]
    if not numbers:
        return {}
    users = User.objects.filter(pk__in=numbers).values_list("pk", "username")
    return {str(pk): name for pk, name in users}
