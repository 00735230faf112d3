"""Activity: what staff did and saw, written before an answer leaves and changed by nobody."""

from __future__ import annotations

import datetime as dt
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import Group, User
from django.db import DatabaseError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from accounts.models import Invitation
from backoffice import activity
from backoffice.activity import PAGES
from backoffice.admin.activity import PER_PAGE
from orders.lifecycle.retention import delete_old_rows
from orders.models import VoucherOrder
from seckill_site.clocks.database import database_now
from seckill_site.models import Activity
from tests.support.api import make_endpoint, make_token
from tests.support.browsers import browser_of
from tests.support.html_forms import filled, save
from tests.support.orders import make_buyer, make_sale
from tests.support.payments import make_unpaid_order, owner_of, pay
from tests.support.staff import staff_with, words

pytestmark = pytest.mark.django_db

ROOT = Path(activity.__file__).parents[1]
PASSWORD = "correct horse battery"
REDEEM, CHECK = "/staff/redeem/", {"check": "1"}


def entries() -> list[tuple[str, str]]:
    """Return kind and what it is about of each entry, in order."""
    rows = Activity.objects.order_by("pk").exclude(kind="sign_in")
    return list(rows.values_list("kind", "about"))


@pytest.fixture
def voucher(db: None) -> VoucherOrder:
    order = make_unpaid_order(make_sale())
    pay(order)
    order.refresh_from_db()
    return order


@pytest.fixture
def owner(db: None) -> Client:
    return staff_with(name="owner", is_owner=True)


# --- Sign-ins -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("is_staff", [True, False], ids=["staff", "buyer"])
def test_sign_ins_of_staff_are_entries(is_staff: bool) -> None:
    user = User.objects.create_user("ada", password=PASSWORD, is_staff=is_staff)
    for password in ("wrong horse", PASSWORD):
        form = {"username": "ada", "password": password}
        Client(REMOTE_ADDR="203.0.113.7").post("/accounts/login/", form)
    rows = list(Activity.objects.order_by("pk").values_list("kind", "user_id", "address"))
    kinds = ("refused", "sign_in") if is_staff else ()
    assert rows == [(kind, user.pk, "203.0.113.7") for kind in kinds]


# --- Pages ----------------------------------------------------------------------------------------


def test_customer_export_and_code_leave_entries(owner: Client, voucher: VoucherOrder) -> None:
    buyer, sale = voucher.user, voucher.seckill_voucher
    assert buyer is not None
    owner.get(reverse("admin:customer", args=[buyer.pk]))
    owner.get(reverse("admin:customer-data", args=[buyer.pk]))
    owner.get(reverse("admin:orders_voucherorder_export"))
    owner.get(reverse("admin:sale-codes-csv", args=[sale.pk]))
    owner.get(reverse("admin:orders_voucherorder_change", args=[voucher.pk]))
    owner.post(REDEEM, {"code": voucher.code, **CHECK})
    owner.post(reverse("admin:orders_voucherorder_find"), {"q": voucher.code})
    code = ("code", f"order:{voucher.pk}")
    assert entries() == [
        ("customer", f"user:{buyer.pk}"),
        ("export", f"user:{buyer.pk}"),
        ("export", ""),
        ("export", f"sale:{sale.pk}"),
        *(code, code, code),
    ]


def test_program_that_looks_a_code_up_is_its_owner(voucher: VoucherOrder) -> None:
    token, text = make_token()
    body = {"code": voucher.code, "check": True}
    headers = {"Authorization": f"Bearer {text}"}
    Client().post("/api/v1/redeem/", body, content_type="application/json", headers=headers)
    (row,) = Activity.objects.all()
    assert (row.kind, row.user_id, row.about) == ("code", token.owner_id, f"order:{voucher.pk}")


@pytest.mark.slow
def test_rights_tokens_and_secrets_leave_entries(owner: Client) -> None:
    User.objects.create_user("ada", password=PASSWORD, is_staff=True)
    ada = User.objects.get(username="ada")
    page = reverse("admin:auth_user_change", args=[ada.pk])
    assert save(owner, page, filled(owner.get(page)), is_active=None).status_code == 302
    endpoint = make_endpoint("https://example.com/hook")
    action = {"action": "rotate", "_selected_action": endpoint.pk, "form_key": "k" * 22}
    owner.post(reverse("admin:api_webhookendpoint_changelist"), action)
    token, _ = make_token()
    action = {"action": "revoke", "_selected_action": token.pk}
    owner.post(reverse("admin:api_apitoken_changelist"), action)
    assert entries() == [
        ("rights", f"user:{ada.pk}"),
        ("webhook", f"webhook:{endpoint.pk}"),
        ("token", ""),
    ]


def test_what_is_refused_or_shows_nothing_leaves_none(voucher: VoucherOrder) -> None:
    clerk = staff_with("redeem_voucherorder")
    clerk.post(REDEEM, {"code": "AAAA-AAAA-AAAA-AAAA", **CHECK})
    assert voucher.user
    assert clerk.get(reverse("admin:customer", args=[voucher.user.pk])).status_code == 403
    assert clerk.get(reverse("admin:orders_voucherorder_export")).status_code == 403
    browser_of(owner_of(voucher)).get("/orders/")
    assert entries() == []


def test_no_way_of_asking_avoids_the_entry(owner: Client, voucher: VoucherOrder) -> None:
    buyer, orders = voucher.user, reverse("admin:orders_voucherorder_changelist")
    assert buyer
    owner.post(reverse("admin:customer", args=[buyer.pk]))
    owner.post(reverse("admin:sale-codes-csv", args=[voucher.seckill_voucher_id]))
    chosen = {"_selected_action": voucher.pk, "form_key": "k" * 22}
    for actions, wanted in ((["export_selected", ""], 0), (["", "export_selected"], 1)):
        owner.post(orders, {"action": actions, "index": wanted, **chosen})
    owner.post(REDEEM, {"code": voucher.code})
    use = voucher.events.latest("pk")
    assert owner.post(reverse("undo-redemption", args=[use.pk])).status_code == 200
    kinds = [kind for kind, _ in entries()]
    assert kinds == ["customer", "export", "export", "export", "code", "code"]


def test_entry_is_about_a_row_of_its_own_page(owner: Client) -> None:
    role = Group.objects.create(name="Clerk")
    invitation = Invitation.objects.create(email="ada@example.com", role=role)
    url = reverse("admin:accounts_invitation_delete", args=[invitation.pk])
    assert owner.post(url, {"post": "yes"}).status_code == 302
    for unreadable in ("x", "9" * 99):
        owner.post(reverse("admin:auth_user_change", args=[unreadable]))
    assert entries() == [("rights", "")] * 3
    assert owner.get("/admin/activity/").status_code == 200


def test_every_page_of_the_table_exists() -> None:
    for page in PAGES:
        name = page.removeprefix("POST ").partition(" ")[0]
        assert any(_exists(name, number) for number in range(2)), f"{name} is no page"


def _exists(name: str, number_of_ids: int) -> bool:
    try:
        return bool(reverse(name, args=[1] * number_of_ids))
    except Exception:  # NoReverseMatch of any kind
        return False


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_page_with_a_secret_fails_without_its_entry(
    guarded: bool, owner: Client, voucher: VoucherOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise DatabaseError("the disk is full")

    monkeypatch.setattr(Activity.objects, "create", fail)
    if not guarded:
        monkeypatch.setattr(activity, "record", lambda *_, **__: None)
    owner.raise_request_exception = False
    assert voucher.user
    assert voucher.code
    secrets = {
        reverse("admin:customer", args=[voucher.user.pk]): voucher.user.username,
        reverse("admin:orders_voucherorder_change", args=[voucher.pk]): voucher.code,
    }
    for url, secret in secrets.items():
        response = owner.get(url)
        assert (response.status_code >= 500) is guarded
        text = response.content.decode().replace("-", "")
        assert (secret.replace("-", "") in text) is not guarded


# --- The rows -------------------------------------------------------------------------------------


def make_entry(**fields: Any) -> Activity:
    entry = Activity(**{"kind": "customer", "user_id": 1, "about": "user:2", **fields})
    entry.save()
    return entry


def test_nothing_changes_or_deletes_an_entry() -> None:
    """No code of the shop names the table but what adds, shows and empties."""
    named = re.compile(r"\bActivity\.|import Activity\b|class Activity\b|name='Activity'")
    apps = ("accounts", "api", "backoffice", "orders", "seckill_site", "vouchers")
    paths = [path for app in apps for path in (ROOT / app).rglob("*.py")]
    naming = {path.name for path in paths if named.search(path.read_text("utf-8"))}
    assert naming == {"models.py", "0008_activity.py", "activity.py", "retention.py"}
    uses = [
        line.strip()
        for path in paths
        if path.name in ("activity.py", "models.py", "retention.py")
        for line in path.read_text("utf-8").splitlines()
        if "Activity.objects" in line
    ]
    assert sorted(use.partition("Activity.objects")[2] for use in uses) == [
        '.all(), LogEntry.objects.annotate(at=F("action_time"))',
        ".create(kind=kind, user_id=user_id, address=address, about=about)",
        '.filter(address__gt="", at__lt=told).update(address="")',
    ]


def test_deleting_an_account_leaves_its_entries() -> None:
    user = User.objects.create_user("ada", is_staff=True)
    make_entry(user_id=user.pk)
    user.delete()
    assert entries() == [("customer", "user:2")]


def test_addresses_are_emptied_after_ninety_days() -> None:
    now = database_now()
    for days in (200, 91, 89):
        make_entry(at=now - dt.timedelta(days=days), address="203.0.113.7")
    delete_old_rows(now=now)
    kept = list(Activity.objects.order_by("pk").values_list("address", flat=True))
    assert kept == ["", "", "203.0.113.7"]


# --- The list -------------------------------------------------------------------------------------


def log(user: User, **fields: Any) -> LogEntry:
    return LogEntry.objects.create(
        user=user, action_flag=CHANGE, object_repr="Noodles", object_id="1", **fields
    )


def test_list_is_for_owners() -> None:
    assert staff_with("view_user", "change_user").get("/admin/activity/").status_code == 403


def test_list_shows_both_by_time_with_names_of_now(owner: Client) -> None:
    me, buyer, now = User.objects.get(username="owner"), make_buyer(), database_now()
    make_entry(user_id=me.pk, about=f"user:{buyer.pk}", at=now - dt.timedelta(minutes=2))
    log(me, action_time=now - dt.timedelta(minutes=1), change_message="Priced")
    make_entry(user_id=987654, kind="sign_in", about="", at=now)
    User.objects.filter(pk=buyer.pk).update(username="renamed")
    text = words(owner.get("/admin/activity/").content.decode())
    places = [text.index(it) for it in ("Account 987654", "Priced", "renamed")]
    assert places == sorted(places)
    assert buyer.username not in text


def test_filters_by_person_kind_and_day(owner: Client) -> None:
    me, now = User.objects.get(username="owner"), database_now()
    make_entry(user_id=me.pk, kind="sign_in", about="order:111", at=now)
    make_entry(user_id=me.pk + 1, kind="sign_in", about="order:222", at=now)
    make_entry(user_id=me.pk, kind="code", about="order:333", at=now - dt.timedelta(days=3))
    log(me, change_message="Priced")

    def shown(**query: str) -> set[str]:
        text = words(owner.get("/admin/activity/", query).content.decode())
        return {it for it in ("111", "222", "333", "Priced") if f"Order {it}" in text or it in text}

    assert shown() == {"111", "222", "333", "Priced"}
    assert shown(who="owner") == {"111", "333", "Priced"}
    assert shown(who="nobody") == set()
    assert shown(kind="code") == {"333"}
    assert shown(kind="history") == {"Priced"}
    assert shown(day=f"{now - dt.timedelta(days=2):%Y-%m-%d}") == {"333"}
    assert shown(day="9999-99-99", before="x") == {"111", "222", "333", "Priced"}


def test_pages_lose_and_repeat_nothing(owner: Client) -> None:
    me, now = User.objects.get(username="owner"), database_now()
    for number in range(PER_PAGE):
        at = now - dt.timedelta(seconds=PER_PAGE - number)
        make_entry(user_id=me.pk, about=f"order:{1000 + number}", at=at - dt.timedelta(minutes=1))
        log(me, action_time=at, change_message=f"Change {2000 + number}")
    seen: list[str] = []
    url = "/admin/activity/?who=owner"
    while url:
        text = owner.get(url).content.decode()
        seen += re.findall(r"Order (1\d{3})|Change (2\d{3})", words(text))
        older = re.search(r'href="(\?[^"]*before=[^"]+)"', text)
        url = f"/admin/activity/{unescape(older[1])}" if older else ""
    assert len(seen) == len(set(seen)) == 2 * PER_PAGE


def test_list_takes_the_same_statements_for_many(owner: Client) -> None:
    me = User.objects.get(username="owner")

    def statements() -> int:
        with CaptureQueriesContext(
            connection,
        ) as queries:
            owner.get("/admin/activity/")
        return len(queries)

    make_entry(user_id=me.pk)
    log(me)
    before = statements()
    for _ in range(PER_PAGE):
        make_entry(user_id=make_buyer().pk)
        log(me)
    assert statements() == before <= 30
