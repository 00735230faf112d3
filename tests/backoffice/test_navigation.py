"""The navigation of the back office: by job, in one order, for each role, in both languages."""

from __future__ import annotations

import re

import pytest
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.test import Client, RequestFactory
from django.urls import reverse

from backoffice.navigation import ENTRIES, desk_of, entry_of_model
from orders.roles import Role, make_roles
from seckill_site.sessions import DESK
from tests.support.browsers import HTML, browser_of

pytestmark = [pytest.mark.django_db, pytest.mark.quick]

ORDER = [
    "today",
    "sales",
    "orders",
    "redeem",
    "vouchers",
    "reports",
    "customers",
    "staff",
    "settings",
    "system",
]


def user_of(role: Role | None, **fields: bool) -> User:
    user = User.objects.create(username=str(role), is_staff=True, **fields)
    if role:
        make_roles()
        user.groups.add(Group.objects.get(name=role))
    return user


def client_of(user: User, language: str = "en") -> Client:
    return browser_of(user, headers={**HTML, "Accept-Language": language})


def shown(page: str) -> list[str]:
    """Return the texts of the navigation."""
    nav = re.search(r'<nav class="office-nav.*?</nav>', page, re.S)
    assert nav
    return re.findall(r">([^<>]*\S[^<>]*)</a>", nav[0])


def test_entries_stand_by_job_in_their_order() -> None:
    assert [entry.key for entry in ENTRIES] == ORDER


@pytest.mark.parametrize(
    ("language", "first", "last"), [("en", "Today", "System"), ("zh-hans", "今日", "系统")]
)
def test_navigation_is_translated(language: str, first: str, last: str) -> None:
    page = client_of(user_of(None, is_superuser=True), language).get("/admin/password_change/").text
    names = shown(page)
    assert (names[0], names[-1]) == (first, last)


@pytest.mark.parametrize(
    ("role", "last", "has_redeem"),
    [(Role.SHOP_STAFF, "Vouchers", True), (Role.READ_ONLY, "System", False)],
)
def test_role_sees_the_entries_it_may_open(role: Role, last: str, has_redeem: bool) -> None:
    names = shown(client_of(user_of(role)).get("/admin/password_change/").text)

    left = [it for it in names if it not in ("Reports", "Customers")]
    assert (left[-1], "Redeem" in left) == (last, has_redeem)
    assert "Staff" not in left


def test_locks_jobs_and_library_tables_are_under_system() -> None:
    entries = {
        model: entry_of_model(model._meta.app_label, model.__name__).key
        for model in admin.site._registry
    }
    others = {model._meta.label for model, key in entries.items() if key == "system"}
    ours = {"locks.Lock", "orders.OrderJob"}
    assert ours <= others
    assert {it.split(".")[0] for it in others - ours}.isdisjoint({"vouchers", "orders", "accounts"})


def test_app_list_stands_in_the_order_of_the_navigation() -> None:
    request = RequestFactory().get("/admin/")
    request.user = user_of(None, is_superuser=True)

    keys = [app["app_label"] for app in admin.site.get_app_list(request)]

    assert keys == [it for it in ORDER if it in keys]
    assert keys[0] == "sales"
    assert keys[-1] == "system"


@pytest.mark.parametrize(
    ("page", "current"),
    [
        ("admin:orders_payment_changelist", "Orders"),
        ("admin:orders_invitationcode_changelist", "Sales"),
        ("admin:auth_user_changelist", "Staff"),
        ("admin:accounts_invitation_add", "Staff"),
        ("admin:staff", "Staff"),
        ("admin:orders_orderjob_changelist", "System"),
        ("admin:vouchers_voucher_import", "Vouchers"),
        ("admin:sale-series", "Sales"),
    ],
)
def test_page_marks_its_entry(page: str, current: str) -> None:
    text = client_of(user_of(None, is_superuser=True)).get(reverse(page)).text

    nav = re.search(r'<nav class="office-nav".*?</nav>', text, re.S)
    assert nav
    assert re.findall(r'aria-current="true">([^<]+)</a>', nav[0]) == [current]


LISTS = {
    "admin:vouchers_seckillvoucher_changelist": ["Sales", "Invitation codes", "Rehearsals"],
    "admin:orders_settlementdifference_changelist": ["Orders", "Payments", "Payment differences"],
    "admin:vouchers_merchant_changelist": ["Vouchers", "Merchants"],
}


def tabs(page: str) -> tuple[list[str], list[str]]:
    """Return the tabs of a list, and the current one."""
    nav = re.search(r'<nav class="office-nav office-tabs".*?</nav>', page, re.S)
    links = nav[0] if nav else ""
    return shown(links), re.findall(r'aria-current="page">([^<]+)</a>', links)


@pytest.mark.parametrize("page", LISTS)
def test_lists_of_a_job_are_tabs(page: str) -> None:
    client = client_of(user_of(None, is_superuser=True))
    names, current = tabs(client.get(reverse(page)).text)
    assert names == LISTS[page]
    title = re.search(r"<h1>([^<]+)</h1>", client.get(reverse(page)).text)
    assert title
    assert current == [title[1].strip()]


def test_role_sees_the_tabs_it_may_open() -> None:
    client = client_of(user_of(Role.READ_ONLY))
    assert tabs(client.get("/admin/vouchers/seckillvoucher/").text)[0] == ["Sales", "Rehearsals"]


def test_page_that_is_no_list_has_no_tabs() -> None:
    client = client_of(user_of(None, is_superuser=True))
    for url in ("/admin/password_change/", "/admin/system/", reverse("admin:vouchers_voucher_add")):
        assert "office-tabs" not in client.get(url).text


# --- Where staff works ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "desk"),
    [
        (Role.CASHIER, "redeem"),
        (Role.SHOP_STAFF, "office"),
        (Role.OPERATOR, "office"),
        (Role.READ_ONLY, "office"),
        (None, "office"),
    ],
)
def test_session_of_staff_knows_the_desk(role: Role | None, desk: str) -> None:
    user = user_of(role)

    assert desk_of(user) == desk
    assert client_of(user).session[DESK] == desk


def test_session_of_a_buyer_has_no_desk() -> None:
    assert DESK not in client_of(User.objects.create(username="ann")).session


def test_role_given_later_shows_after_a_visit() -> None:
    user = user_of(Role.CASHIER)
    client = client_of(user)
    user.groups.set(Group.objects.filter(name=Role.OPERATOR))

    client.get("/admin/password_change/")
    client.get("/admin/")

    assert client.session[DESK] == "office"


@pytest.mark.parametrize(
    ("role", "text", "url"),
    [
        (Role.CASHIER, "Redeem", "/staff/redeem/"),
        (Role.OPERATOR, "Back office", "/admin/"),
    ],
)
def test_header_of_a_personal_page_leads_staff_to_work(role: Role, text: str, url: str) -> None:
    page = client_of(user_of(role)).get("/accounts/profile/").text

    assert f'<a href="{url}">{text}</a>' in page


def test_header_of_a_buyer_has_no_such_link() -> None:
    page = client_of(User.objects.create(username="ann")).get("/accounts/profile/").text

    assert "/admin/" not in page
    assert "/staff/" not in page
