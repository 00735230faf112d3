"""A buyer's account: its data, its sessions, and its end."""

from __future__ import annotations

from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.usersessions.models import UserSession
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.test import Client

from accounts.models import Agreement, Invitation, Phone
from orders.draws.entries import store_entries
from orders.models import (
    CodeUse,
    DrawEntry,
    InvitationCode,
    Notice,
    OrderRefusal,
    RuleRefusal,
    VoucherOrder,
    WaitingEntry,
)
from tests.support.draws import draw_to_the_end, end, entered_draw, listed
from tests.support.html_forms import edit
from tests.support.orders import make_order, make_sale
from vouchers.catalogue.audience import CODE
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("cheap_passwords")]

PASSWORD = "lang genug 1234"
EMAIL, NUMBER = "ada@example.com", "+8613800000001"


@pytest.fixture
def ada() -> User:
    user = User.objects.create_user("ada", EMAIL, PASSWORD, first_name="Ada")
    EmailAddress.objects.create(user=user, email=EMAIL, verified=True, primary=True)
    Phone.objects.create(user=user, number=NUMBER)
    return user


def signed_in() -> Client:
    client = Client()
    client.post("/accounts/login/", {"username": "ada", "password": PASSWORD})
    return client


def is_signed_in(client: Client) -> bool:
    return client.get("/accounts/profile/").status_code == 200


def test_profile_shows_and_changes_the_name(ada: User) -> None:
    client = signed_in()

    assert client.post("/accounts/profile/", {"first_name": "Countess"}).status_code == 302
    page = client.get("/accounts/profile/").text

    assert "Countess" in page
    assert EMAIL in page
    assert NUMBER in page


@pytest.mark.slow
def test_data_has_everything_of_the_buyer_alone(ada: User) -> None:
    order = make_order(make_sale(stock=2), ada)
    other = make_order(make_sale(stock=2), User.objects.create_user("eve"))

    response = signed_in().get("/accounts/data/")

    assert response["Content-Disposition"].startswith("attachment")
    assert response["Cache-Control"] == "private, no-store"
    data: dict[str, Any] = response.json()
    assert data["account"]["username"] == "ada"
    assert data["account"]["phone"] == NUMBER
    assert [it["email"] for it in data["emails"]] == [EMAIL]
    assert [it["id"] for it in data["orders"]] == [str(order.pk)]
    assert len(data["sessions"]) == 1
    assert str(other.pk) not in response.text


@pytest.fixture
def traces(ada: User) -> SeckillVoucher:
    """A sale in which the buyer left traces beside orders, and an invitation to the staff."""
    sale, _ = entered_draw([ada])
    store_entries(sale_id=sale.pk)
    InvitationCode.objects.create(seckill_voucher=sale, code="UNUSED", user=ada)
    used = InvitationCode.objects.create(seckill_voucher=sale, code="USED22", user=ada)
    CodeUse.objects.create(code=used, order_id=7)
    RuleRefusal.objects.create(seckill_voucher=sale, user=ada, rule=CODE.name)
    OrderRefusal.objects.create(
        seckill_voucher=sale, user=ada, reason="sold_out", refused_at=ada.date_joined
    )
    Notice.objects.create(
        seckill_voucher=sale, user=ada, kind=Notice.Kind.START, asked_at=ada.date_joined
    )
    role = Group.objects.create(name="Anything")
    for name in (EMAIL.title(), "eve@example.com"):
        Invitation.objects.create(email=name, role=role)
    Agreement.objects.create(user=ada, version="of today")
    return sale


def test_data_has_every_trace_of_the_buyer(traces: SeckillVoucher) -> None:
    data: dict[str, Any] = signed_in().get("/accounts/data/").json()

    for name in ("draws", "refusals", "refused_attempts", "notices"):
        assert [it["seckill_voucher_id"] for it in data[name]] == [traces.pk]
    assert [it["version"] for it in data["agreements"]] == ["of today"]
    assert {it["code"] for it in data["invitation_codes"]} == {"UNUSED", "USED22"}
    assert [it["email"] for it in data["staff_invitations"]] == [EMAIL.title()]


@pytest.mark.parametrize("is_stored", [False, True])
def test_deletion_withdraws_from_open_draws(ada: User, is_stored: bool) -> None:
    sale, _ = entered_draw([ada])
    if is_stored:
        store_entries(sale_id=sale.pk)

    signed_in().post("/accounts/delete/", {"password": PASSWORD})

    assert DrawEntry.objects.get().outcome == "withdrawn"
    assert listed(sale) == []


def test_deletion_keeps_entries_of_a_closed_list(traces: SeckillVoucher) -> None:
    end(traces)
    draw_to_the_end(traces)

    signed_in().post("/accounts/delete/", {"password": PASSWORD})

    assert listed(traces) == [DrawEntry.objects.get(live=True).pk]


def test_deletion_forgets_refusals_notices_invitations_and_unused_codes(
    traces: SeckillVoucher,
) -> None:
    signed_in().post("/accounts/delete/", {"password": PASSWORD})

    assert not RuleRefusal.objects.exists()
    assert not OrderRefusal.objects.exists()
    assert not Notice.objects.exists()
    assert [it.email for it in Invitation.objects.all()] == ["eve@example.com"]
    free = InvitationCode.objects.filter(user=None)
    assert [(it.code, it.entered_at) for it in free] == [("UNUSED", None)]


@pytest.mark.parametrize("path", ["profile/", "data/", "delete/", "sessions/"])
def test_visitor_is_sent_to_sign_in(client: Client, path: str) -> None:
    response = client.get(f"/accounts/{path}")

    assert response["Location"] == f"/accounts/login/?next=/accounts/{path}"


@pytest.mark.django_db(transaction=True)  # the cache drops them after the commit
def test_sessions_are_listed_and_ended_everywhere(ada: User) -> None:
    one, two = signed_in(), signed_in()
    assert one.get("/accounts/sessions/").context["session_count"] == 2

    one.post("/accounts/sessions/everywhere/")

    assert not is_signed_in(one)
    assert not is_signed_in(two)
    assert not UserSession.objects.exists()


@pytest.mark.django_db(transaction=True)  # the cache drops them after the commit
def test_other_sessions_are_ended(ada: User) -> None:
    one, two = signed_in(), signed_in()

    one.post("/accounts/sessions/")

    assert is_signed_in(one)
    assert not is_signed_in(two)


def test_deletion_keeps_the_orders_without_a_name(ada: User) -> None:
    order = make_order(make_sale(stock=2), ada)
    client, other = signed_in(), signed_in()

    response = client.post("/accounts/delete/", {"password": PASSWORD})

    assert response.status_code == 302
    row = VoucherOrder.objects.get(pk=order.pk)
    assert row.status == order.status
    assert row.user is not None
    assert row.user.username == f"deleted:{ada.pk}"
    left = User.objects.filter(pk=ada.pk).values().get()
    assert not left["is_active"]
    assert not {"ada", "Ada", EMAIL} & {str(it) for it in left.values()}
    assert not EmailAddress.objects.exists()
    assert not Phone.objects.exists()
    assert not is_signed_in(client)
    assert not is_signed_in(other)


def test_deleted_account_cannot_sign_in_and_its_name_is_free(ada: User) -> None:
    signed_in().post("/accounts/delete/", {"password": PASSWORD})

    assert not is_signed_in(signed_in())
    form = {"username": "ada", "password1": PASSWORD, "password2": PASSWORD}
    assert Client().post("/accounts/signup/", form).status_code == 302


def test_deletion_leaves_no_name_in_the_log(ada: User, shop: Client) -> None:
    role = Group.objects.get_or_create(name="Cashier")[0]
    new = {"name": "Ada", "role": role.name}
    for email in (EMAIL, EMAIL.upper(), "grace@example.com"):
        shop.post("/admin/accounts/invitation/add/", {**new, "email": email})
    gone = Invitation.objects.order_by("pk")[1]
    shop.post(f"/admin/accounts/invitation/{gone.pk}/delete/", {"post": "yes"})
    edit(shop, f"/admin/auth/user/{ada.pk}/change/", {"first_name": "A", "is_active": "on"})
    assert LogEntry.objects.filter(object_repr="ada").exists()

    signed_in().post("/accounts/delete/", {"password": PASSWORD})

    told = sorted(LogEntry.objects.values_list("object_repr", flat=True))
    assert told == [f"deleted:{ada.pk}"] * 4 + ["grace@example.com"]
    assert not LogEntry.objects.filter(change_message__icontains="ada").exists()


@pytest.mark.parametrize("sign", "-:")
def test_nobody_can_take_the_name_of_a_deleted_account(ada: User, sign: str) -> None:
    form = {"username": f"deleted{sign}{ada.pk}", "password1": PASSWORD, "password2": PASSWORD}
    Client().post("/accounts/signup/", form)

    response = signed_in().post("/accounts/delete/", {"password": PASSWORD})

    assert response.status_code == 302
    assert not User.objects.filter(username="ada").exists()


def test_deletion_leaves_waiting_lists(ada: User) -> None:
    sale = make_sale(stock=1)
    make_order(sale, User.objects.create_user("eve"))
    WaitingEntry.objects.create(
        seckill_voucher=sale, user=ada, order_id=7, joined_at=ada.date_joined
    )

    signed_in().post("/accounts/delete/", {"password": PASSWORD})

    assert not WaitingEntry.objects.filter(live=True).exists()


@pytest.mark.parametrize("form", [{}, {"password": "wrong"}, {"username": "ada"}])
def test_deletion_needs_the_password(ada: User, form: dict[str, str]) -> None:
    client = signed_in()

    assert client.post("/accounts/delete/", form).status_code == 200
    assert is_signed_in(client)


def test_staff_cannot_delete_their_account(ada: User) -> None:
    User.objects.update(is_staff=True)

    response = signed_in().post("/accounts/delete/", {"password": PASSWORD})

    assert response.status_code == 409
    assert User.objects.filter(username="ada").exists()


def test_account_whose_ledger_is_away_stays(ada: User, lose_ledger: Any) -> None:
    sale = make_sale(stock=1)
    WaitingEntry.objects.create(
        seckill_voucher=sale, user=ada, order_id=7, joined_at=ada.date_joined
    )
    client = signed_in()
    lose_ledger()

    assert client.post("/accounts/delete/", {"password": PASSWORD}).status_code == 503
    assert User.objects.filter(username="ada").exists()
