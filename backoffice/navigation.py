"""The navigation of the back office: one entry for each job, in one table."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext_lazy as _

from seckill_site.sessions import DESK

AnyUser = User | AnonymousUser

REDEEM = "orders.redeem_voucherorder"
SEE_CUSTOMERS = "orders.see_customers"


def _has_any(*permissions: str) -> Callable[[AnyUser], bool]:
    return lambda user: any(user.has_perm(it) for it in permissions)


@dataclass(frozen=True)
class Entry:
    """A job, the page where it starts, who may do it, and the tables behind it.

    ``models`` and ``pages`` (names of addresses) tell which entry a page belongs to; what no
    entry names belongs to the last one, System.
    """

    key: str
    label: Any
    page: str
    may_see: Callable[[AnyUser], bool]
    models: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()


ENTRIES = (
    Entry("today", _("Today"), "admin:index", lambda user: True, pages=("index", "today")),
    Entry(
        "sales",
        _("Sales"),
        "admin:vouchers_seckillvoucher_changelist",
        _has_any("vouchers.view_seckillvoucher", "vouchers.change_seckillvoucher"),
        models=("vouchers_seckillvoucher", "orders_rehearsal", "orders_invitationcode"),
        pages=("sale-",),
    ),
    Entry(
        "orders",
        _("Orders"),
        "admin:orders_voucherorder_changelist",
        _has_any("orders.view_voucherorder", "orders.change_voucherorder"),
        models=("orders_voucherorder", "orders_payment", "orders_settlementdifference"),
    ),
    Entry("redeem", _("Redeem"), "redeem", _has_any(REDEEM)),
    Entry(
        "vouchers",
        _("Vouchers"),
        "admin:vouchers_voucher_changelist",
        _has_any("vouchers.view_voucher", "vouchers.change_voucher"),
        models=("vouchers_voucher", "vouchers_merchant"),
    ),
    Entry(
        "reports",
        _("Reports"),
        "admin:reports",
        _has_any("vouchers.view_seckillvoucher"),
        pages=("reports",),
    ),
    Entry(
        "customers",
        _("Customers"),
        "admin:customers",
        _has_any(SEE_CUSTOMERS),
        pages=("customer",),
    ),
    Entry(
        "staff",
        _("Staff"),
        "admin:staff",
        _has_any("auth.view_user", "auth.change_user"),
        models=("accounts_invitation", "auth_user", "auth_group"),
        pages=("staff",),
    ),
    Entry(
        "system",
        _("System"),
        "admin:system",
        _has_any(
            "locks.view_lock",
            "orders.view_orderjob",
            "vouchers.run_seckillvoucher",
            "api.view_apitoken",
        ),
        pages=("system", "app_list"),
    ),
)
"""The entries in their order. One whose page does not exist in this installation is left out."""

SYSTEM = ENTRIES[-1]


@dataclass(frozen=True)
class Link:
    """An entry as a page shows it."""

    key: str
    label: Any
    url: str
    is_current: bool


def links(request: HttpRequest) -> list[Link]:
    """Return the entries that this user may see; the current page's is marked."""
    user, current = request.user, section_of(request)
    return [
        Link(entry.key, entry.label, url, entry is current)
        for entry in ENTRIES
        if entry.may_see(user) and (url := _url(entry))
    ]


def _url(entry: Entry) -> str:
    try:
        return reverse(entry.page)
    except NoReverseMatch:
        return ""


def section_of(request: HttpRequest) -> Entry:
    """Return the entry that the page of a request belongs to."""
    match = request.resolver_match
    name = (match.url_name if match else "") or ""
    for entry in ENTRIES:
        models = tuple(f"{it}_" for it in entry.models)
        if name.startswith((*models, *entry.pages)):
            return entry
    return SYSTEM


def entry_of_model(app_label: str, model_name: str) -> Entry:
    """Return the entry under which the pages of a model stand."""
    name = f"{app_label}_{model_name}".lower()
    return next((entry for entry in ENTRIES if name in entry.models), SYSTEM)


# --- Where staff works ----------------------------------------------------------------------------


def desk_of(user: AnyUser) -> str:
    """Return where a member of staff works: ``redeem`` if they may do nothing else."""
    may = [entry.key for entry in ENTRIES[1:] if entry.may_see(user)]
    return "redeem" if may == ["redeem"] else "office"


def remember_desk(request: HttpRequest, user: User, **kwargs: Any) -> None:
    """Note in a session of staff where they work (a receiver of signals).

    ``me/`` reads it from there, without SQL, for the header of pages that are the same for
    everybody. It decides nothing: each page checks permissions itself.
    """
    if not user.is_staff:
        return
    desk = desk_of(user)
    if request.session.get(DESK) != desk:
        request.session[DESK] = desk
