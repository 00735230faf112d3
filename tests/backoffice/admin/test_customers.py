"""Customers in the admin: who may see them, the list, one customer, and a waiting list by name."""

from __future__ import annotations

import re

import pytest
from allauth.account.models import EmailAddress
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from pytest_django import Settings

from backoffice.admin import customers as module
from backoffice.customers import PER_PAGE
from orders.lifecycle.notifications import tell_buyers
from orders.lifecycle.redemption import written_code
from orders.models import OrderRefusal, OrderStatus, RuleRefusal, VoucherOrder, WaitingEntry
from tests.support.orders import make_buyer, make_buyers, make_order, make_sale, reserved
from tests.support.payments import make_unpaid_order, owner_of, pay
from tests.support.staff import said, staff_with, words
from tests.support.tiers import slow_after
from vouchers.catalogue.history import history_text
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

LIST = "/admin/customers/"
NOW = timezone.now()


@pytest.fixture
def operator(db: None) -> Client:
    return staff_with("see_customers", "view_voucherorder", "view_seckillvoucher")


def page_of(client: Client, url: str, **query: str | int) -> str:
    response = client.get(url, query)
    assert response.status_code == 200
    return response.content.decode()


def waiting(sale: SeckillVoucher, user: User, order_id: int, **fields: object) -> WaitingEntry:
    return WaitingEntry.objects.create(
        seckill_voucher=sale, user=user, order_id=order_id, joined_at=timezone.now(), **fields
    )


def away(*_: object, **__: object) -> None:
    raise LedgerUnavailable("away")


def waiting_url(sale: SeckillVoucher) -> str:
    return reverse("admin:sale-waiting", args=[sale.pk])


# --- The list -------------------------------------------------------------------------------------


def test_list_has_buyers_and_leads_to_them(operator: Client) -> None:
    buyer = make_buyer()
    make_order(make_sale(), buyer)
    page = page_of(operator, LIST)
    assert f"{LIST}{buyer.pk}/" in page
    assert buyer.username in page


def test_pages_follow_each_other_without_gaps(operator: Client) -> None:
    sale, buyers = make_sale(), make_buyers(PER_PAGE + 1)
    for buyer in buyers:
        make_order(sale, buyer)
    first = page_of(operator, LIST)
    second_oldest = buyers[1].pk
    assert f"before={second_oldest}" in first
    second = page_of(operator, LIST, before=second_oldest)
    assert buyers[0].username in second
    assert buyers[1].username not in second


@pytest.mark.parametrize("before", slow_after(1, ["x", "9" * 30, "²", "-1"]))
def test_made_up_page_is_answered(operator: Client, before: str) -> None:
    assert operator.get(LIST, {"before": before}).status_code == 200


def test_search_without_a_result_says_so(operator: Client) -> None:
    assert "No account has such a name" in page_of(operator, LIST, q="nobody")


def test_search_by_a_contact_leaves_no_trace_in_an_address(operator: Client) -> None:
    buyers = make_buyers(3)
    for buyer in buyers:
        make_order(make_sale(), buyer)
    for buyer, email in zip(
        buyers, ("ann@a.example", "bob@b.example", "bob@c.example"), strict=True
    ):
        EmailAddress.objects.create(user=buyer, email=email, verified=True)
    assert 'method="post"' in page_of(operator, LIST).partition("office__form")[2][:40]

    answer = operator.post(LIST, {"q": "ann@a.example"})
    assert answer["Location"] == f"{LIST}{buyers[0].pk}/"
    several = operator.post(LIST, {"q": "bob@"})
    assert several.status_code == 200
    assert buyers[1].username in several.text
    assert buyers[2].username in several.text
    assert operator.post(LIST, {"q": "buyer"})["Location"] == "?q=buyer", "a name may be in one"
    assert operator.post(LIST, {"q": ""})["Location"] == "?q="


# --- One customer ---------------------------------------------------------------------------------


def test_customer_page_shows_orders_and_refused_attempts(operator: Client) -> None:
    sale, buyer = make_sale(), make_buyer()
    order = make_order(sale, buyer, status=OrderStatus.PAID)
    refused = make_order(sale, buyer, status=OrderStatus.REFUSED, reason="sold_out", unit=2)
    RuleRefusal.objects.create(
        seckill_voucher=sale, rule="code", user=buyer, refused_at=timezone.now()
    )
    for reason in ("not_started", "price_changed"):
        OrderRefusal.objects.create(
            seckill_voucher=sale, reason=reason, user=buyer, refused_at=timezone.now()
        )
    waiting(sale, buyer, 77)
    page = page_of(operator, f"{LIST}{buyer.pk}/")
    for text in (
        str(order.pk), str(refused.pk), "no vouchers were left", "no invitation code", "first: ",
        "too early", "the price had changed",
    ):  # fmt: skip
        assert text in page


def test_unknown_customer_is_not_found(operator: Client) -> None:
    assert operator.get(f"{LIST}999999/").status_code == 404


def test_attempt_at_a_deleted_sale_hides_no_page(operator: Client) -> None:
    buyer = make_buyer()
    OrderRefusal.objects.create(
        seckill_voucher_id=4711, reason="sold_out", user=buyer, refused_at=timezone.now()
    )
    assert "Nothing is stored." in page_of(operator, f"{LIST}{buyer.pk}/")


def test_customer_page_shows_what_is_not_written_yet(operator: Client) -> None:
    buyer = make_buyer()
    [queued] = reserved(make_sale(), [buyer])
    page = page_of(operator, f"{LIST}{buyer.pk}/")
    assert str(queued.order_id) in page
    assert "order in the queue, place 1" in page


def test_customer_page_without_redis_says_so(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backoffice.customers.read_holdings", away)
    buyer = make_buyer()
    assert "Unknown: Redis is not responding." in page_of(operator, f"{LIST}{buyer.pk}/")


# --- What support does ----------------------------------------------------------------------------

ACTIONS = {"export_customer": "/data/", "delete_customer": "/delete/", "resend_voucher": "/send/"}


@pytest.fixture
def support(db: None) -> Client:
    return staff_with("see_customers", *ACTIONS, name="support")


def reachable(buyer: User) -> None:
    email = f"{buyer.username}@example.com"
    EmailAddress.objects.create(user=buyer, email=email, verified=True, primary=True)


@pytest.fixture
def paid() -> VoucherOrder:
    """A paid order of a buyer with an address, who has been told of it."""
    order = pay(make_unpaid_order(make_sale())).order
    reachable(owner_of(order))
    order.events.update(notified_at=timezone.now())
    return order


@pytest.mark.parametrize("permission", slow_after(1, ACTIONS))
def test_each_action_has_its_permission(paid: VoucherOrder, permission: str) -> None:
    clerk = staff_with("see_customers", *(it for it in ACTIONS if it != permission))
    page = page_of(clerk, f"{LIST}{paid.user_id}/")
    assert [it for it in ACTIONS if ACTIONS[it] + '"' in page] == [
        it for it in ACTIONS if it != permission
    ]
    path = f"orders/{paid.pk}" if permission == "resend_voucher" else f"{paid.user_id}"
    assert clerk.post(f"{LIST}{path}{ACTIONS[permission]}").status_code == 403


def test_export_has_what_its_owner_gets(support: Client, paid: VoucherOrder) -> None:
    file = support.get(f"{LIST}{paid.user_id}/data/")
    assert file["Content-Disposition"].startswith("attachment")
    assert file["Cache-Control"].startswith("private, no-store")
    assert [it["id"] for it in file.json()["orders"]] == [str(paid.pk)]


def test_deletion_says_what_goes_and_what_stays(support: Client, paid: VoucherOrder) -> None:
    text = words(page_of(support, f"{LIST}{paid.user_id}/delete/"))
    for part in (
        "1 paid voucher that was not used", "Refund it first",
        "1 order with its payments: the books have to be kept",
        "without them nobody could check the draw", "This cannot be undone.",
    ):  # fmt: skip
        assert part in text
    assert owner_of(paid).is_active


def test_deletion_leaves_orders_without_a_name(support: Client, paid: VoucherOrder) -> None:
    user = owner_of(paid)
    OrderRefusal.objects.create(
        seckill_voucher=paid.seckill_voucher, reason="sold_out", user=user, refused_at=NOW
    )
    done = support.post(f"{LIST}{user.pk}/delete/", {"any": "field"}, follow=True)
    assert "The personal data is deleted." in done.text
    user.refresh_from_db()
    assert (user.username, user.is_active) == (f"deleted:{user.pk}", False)
    assert not OrderRefusal.objects.exists()
    assert [it.pk for it in user.voucher_orders.all()] == [paid.pk]
    [row] = LogEntry.objects.filter(object_id=str(user.pk))
    assert (row.object_repr, history_text(row)) == (user.username, "Personal data deleted")
    assert "/delete/" not in done.text
    assert "/data/" not in done.text


def test_deletion_without_redis_deletes_nothing(
    support: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "delete_account", away)
    buyer = make_buyer()
    done = support.post(f"{LIST}{buyer.pk}/delete/", {"any": "field"}, follow=True)
    assert said(done)[0].startswith("error")
    buyer.refresh_from_db()
    assert buyer.is_active


@pytest.mark.parametrize("what", slow_after(1, ["data", "delete"]))
def test_data_of_staff_is_their_own(support: Client, what: str) -> None:
    colleague = User.objects.create(username="colleague", is_staff=True)
    assert support.get(f"{LIST}{colleague.pk}/{what}/").status_code == 404
    assert f"/{what}/" not in page_of(support, f"{LIST}{colleague.pk}/")


def test_voucher_is_sent_again_with_its_code(support: Client, paid: VoucherOrder) -> None:
    tell_buyers(now=NOW)
    assert mail.outbox == []
    page = page_of(support, f"{LIST}{paid.user_id}/")
    key = re.search(r'name="form_key" value="([^"]+)"', page)
    assert key
    for _ in range(2):  # a double click
        support.post(f"{LIST}orders/{paid.pk}/send/", {"form_key": key[1]})
        tell_buyers(now=NOW)
    [sent] = mail.outbox
    paid.refresh_from_db()
    assert written_code(paid.code or "") in sent.body
    row = LogEntry.objects.filter(object_id=str(paid.pk)).first()
    assert row
    assert history_text(row) == "Voucher sent again"


@pytest.mark.parametrize("change", slow_after(1, ["used", "unverified"]))
def test_voucher_that_cannot_be_sent_is_not(
    support: Client, paid: VoucherOrder, change: str
) -> None:
    if change == "used":
        VoucherOrder.objects.filter(pk=paid.pk).update(status=OrderStatus.USED)
    else:
        EmailAddress.objects.update(verified=False)
    assert "Send voucher again" not in page_of(support, f"{LIST}{paid.user_id}/")
    answer = support.post(f"{LIST}orders/{paid.pk}/send/", follow=True)
    assert "Not sent" in answer.text
    tell_buyers(now=NOW)
    assert mail.outbox == []


def test_voucher_is_not_sent_without_a_mail_server(
    support: Client, paid: VoucherOrder, settings: Settings
) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    answer = support.post(f"{LIST}orders/{paid.pk}/send/", follow=True)
    assert "the shop has no mail server" in answer.text
    assert not paid.events.filter(notified_at=None).exists()


# --- A waiting list -------------------------------------------------------------------------------


def test_waiting_list_names_its_buyers_in_order() -> None:
    sale, (first, second, gone) = make_sale(), make_buyers(3)
    for number, buyer in enumerate((first, second), start=1):
        waiting(sale, buyer, number)
    waiting(sale, gone, 3, live=None, outcome="left")
    client = staff_with("view_seckillvoucher", "view_waitingentry")
    now = page_of(client, waiting_url(sale))
    assert now.index(first.username) < now.index(second.username)
    assert gone.username not in now
    assert gone.username in client.get(f"{waiting_url(sale)}?all").content.decode()
    assert LIST not in now, "this user may not see customers"


@pytest.mark.parametrize("permission", ["view_seckillvoucher", "view_waitingentry"])
def test_waiting_list_needs_both_permissions(permission: str) -> None:
    assert staff_with(permission).get(waiting_url(make_sale())).status_code == 403


def test_report_leads_to_the_waiting_list() -> None:
    sale = make_sale()
    client = staff_with("view_seckillvoucher", "view_waitingentry")
    report = reverse("admin:sale-report", args=[sale.pk])
    assert waiting_url(sale) not in page_of(client, report)
    waiting(sale, make_buyer(), 1)
    assert waiting_url(sale) in page_of(client, report)
