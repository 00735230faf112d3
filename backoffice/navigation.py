"""The navigation of the back office: one entry for each job, in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AnonymousUser, User
from django.http import HttpRequest
from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from seckill_site.sessions import DESK

AnyUser = User | AnonymousUser

REDEEM = "orders.redeem_voucherorder"
REHEARSE = "orders.add_rehearsal"
SEE_CUSTOMERS = "orders.see_customers"
SEE_SALES = "vouchers.view_seckillvoucher"


def _has_any(*permissions: str) -> Callable[[AnyUser], bool]:
    return lambda user: any(user.has_perm(it) for it in permissions)


@dataclass(frozen=True)
class Entry:
    """A job, the page where it starts, who may do it, and the tables behind it.

    ``models`` and ``pages`` (names of addresses) tell which entry a page belongs to; what no
    entry names belongs to the last one, System. ``tabs`` are further lists of the same job.
    """

    key: str
    label: Any
    page: str
    may_see: Callable[[AnyUser], bool]
    models: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    tabs: tuple[Entry, ...] = ()


def _list(
    label: Any,
    model: str,
    *permissions: str,
    key: str = "",
    pages: tuple[str, ...] = (),
    tabs: tuple[Entry, ...] = (),
) -> Entry:
    """Return a job that starts at the list of a model, or a tab with such a list."""
    app, name = model.split("_")
    may_see = _has_any(*permissions or [f"{app}.{act}_{name}" for act in ("view", "change")])
    models = (model, *(it.key for it in tabs))
    return Entry(key or model, label, f"admin:{model}_changelist", may_see, models, pages, tabs)


ENTRIES = (
    Entry("today", _("Today"), "admin:index", lambda user: True, pages=("index", "today")),
    _list(
        _("Sales"),
        "vouchers_seckillvoucher",
        key="sales",
        pages=("sale-",),
        tabs=(
            _list(_("Invitation codes"), "orders_invitationcode", "orders.issue_invitationcode"),
            _list(_("Rehearsals"), "orders_rehearsal", "orders.view_rehearsal", REHEARSE),
        ),
    ),
    _list(
        _("Orders"),
        "orders_voucherorder",
        key="orders",
        tabs=(
            _list(_("Payments"), "orders_payment"),
            _list(_("Payment differences"), "orders_settlementdifference"),
        ),
    ),
    Entry("redeem", _("Redeem"), "redeem", _has_any(REDEEM)),
    _list(
        _("Vouchers"),
        "vouchers_voucher",
        key="vouchers",
        tabs=(_list(_("Merchants"), "vouchers_merchant"),),
    ),
    Entry("reports", _("Reports"), "admin:reports", _has_any(SEE_SALES), pages=("reports",)),
    Entry(
        "customers", _("Customers"), "admin:customers", _has_any(SEE_CUSTOMERS), pages=("customer",)
    ),
    Entry(
        "staff",
        _("Staff"),
        "admin:staff",
        _has_any("auth.view_user", "auth.change_user"),
        models=("accounts_invitation", "auth_user", "auth_group"),
        pages=("staff", "activity"),
        tabs=(Entry("activity", _("Activity"), "admin:activity", lambda user: user.is_superuser),),
    ),
    Entry(
        "settings",
        _("Settings"),
        "admin:seckill_site_shopsettings_changelist",
        lambda user: user.is_superuser,
        models=("seckill_site_shopsettings",),
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
"""The entries in their order."""

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
    return _links(request, ENTRIES, current=section_of(request).page)


def tabs(request: HttpRequest) -> list[Link]:
    """Return the lists of the current entry that this user may see, on each of those lists."""
    section, match = section_of(request), request.resolver_match
    found = _links(request, (section, *section.tabs), current=match.view_name if match else "")
    return found if len(found) > 1 and any(it.is_current for it in found) else []


def _links(request: HttpRequest, entries: Iterable[Entry], *, current: str) -> list[Link]:
    return [
        Link(entry.key, entry.label, reverse(entry.page), entry.page == current)
        for entry in entries
        if entry.may_see(request.user)
    ]


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
