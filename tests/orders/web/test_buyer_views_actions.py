"""Pay, cancel, give back, wait: what their addresses answer to whom."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from orders.models import SandboxTrade, VoucherOrder
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.inspection import assert_conserved, assert_refused, everything
from tests.support.orders import make_buyer, make_sale, token_for, written_orders
from tests.support.tiers import slow_after
from vouchers.inventory.keys import LedgerKeys
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

HTML = {"Accept": "text/html"}
ACTIONS = ["pay", "cancel", "refund"]


@pytest.fixture
def sale() -> SeckillVoucher:
    return make_sale(stock=1)


@pytest.fixture
def order(sale: SeckillVoucher, buyer: User) -> VoucherOrder:
    (token,) = written_orders(sale, [buyer])
    return VoucherOrder.objects.get(pk=token.order_id)


def url(order: VoucherOrder, action: str) -> str:
    return f"/vouchers/{order.seckill_voucher_id}/orders/{order.pk}/{action}/"


def waiting_url(sale: SeckillVoucher) -> str:
    return f"/vouchers/{sale.pk}/waiting/"


# --- The owner's order ----------------------------------------------------------------------------


def test_pay_redirects_to_the_provider(shopper: Client, order: VoucherOrder) -> None:
    answer = shopper.post(url(order, "pay"))
    assert answer.status_code == 200
    assert answer.json()["order_id"] == str(order.pk)
    assert answer.json()["status"] == "unpaid"
    assert answer.json()["pay_url"].startswith("http://testserver/sandbox/")
    page = shopper.post(url(order, "pay"), headers=HTML)
    assert (page.status_code, page["Location"]) == (303, answer.json()["pay_url"])


def test_return_leads_to_a_receipt_that_may_be_reloaded(
    shopper: Client, order: VoucherOrder
) -> None:
    shopper.post(url(order, "pay"))
    receipt = url(order, "pay")[: -len("pay/")]
    assert SandboxTrade.objects.get().return_url == f"http://testserver{receipt}return/"
    answer = shopper.get(f"{receipt}return/", headers=HTML)
    assert (answer.status_code, answer["Location"]) == (303, receipt)
    known = shopper.get(receipt).json()
    assert (known["status"], known["payment"]) == ("unpaid", "confirming")
    assert known["poll_after_ms"] == 500


def test_return_of_another_buyer_changes_nothing(client: Client, order: VoucherOrder) -> None:
    before = everything()
    client.force_login(make_buyer())
    assert_refused(client.get(url(order, "return")), 404, "not_found")
    assert everything() == before


@pytest.mark.parametrize("host", ["localhost:25", "127.0.0.1"])
def test_addresses_of_a_payment_are_the_sites_own(
    shopper: Client, order: VoucherOrder, settings: Settings, host: str
) -> None:
    """Else a Host with another port would have the worker POST there."""
    settings.SECKILL_SITE_URL = "https://shop.example"
    answer = shopper.post(url(order, "pay"), headers={"Host": host})
    trade = SandboxTrade.objects.get()
    for address in (answer.json()["pay_url"], trade.notify_url, trade.return_url):
        assert address.startswith("https://shop.example/")


def test_without_a_provider_paying_is_unavailable(
    shopper: Client, order: VoucherOrder, settings: Settings
) -> None:
    settings.SECKILL_PAYMENT_PROVIDERS = []
    assert_refused(shopper.post(url(order, "pay")), 503, "unavailable")


def test_cancel_returns_the_receipt(shopper: Client, order: VoucherOrder) -> None:
    answer = shopper.post(url(order, "cancel"))
    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")
    assert_conserved(order.seckill_voucher)


def test_non_refundable_sale_refuses_refund(shopper: Client, order: VoucherOrder) -> None:
    VoucherOrder.objects.filter(pk=order.pk).update(status="paid")
    SeckillVoucher.objects.filter(pk=order.seckill_voucher_id).update(refundable=False)
    assert_refused(shopper.post(url(order, "refund")), 409, "not_refundable")


@pytest.mark.parametrize(
    ("action", "status"), slow_after(2, [("pay", "paid"), ("cancel", "paid"), ("refund", "unpaid")])
)
def test_wrong_state_is_refused_and_changes_nothing(
    shopper: Client, order: VoucherOrder, action: str, status: str
) -> None:
    VoucherOrder.objects.filter(pk=order.pk).update(status=status)
    before = everything()
    assert_refused(shopper.post(url(order, action)), 409, "wrong_state")
    assert everything() == before


@pytest.mark.parametrize("action", slow_after(1, ACTIONS))
def test_other_buyer_gets_404(client: Client, order: VoucherOrder, action: str) -> None:
    before = everything()
    assert_refused(client.post(url(order, action)), 401, "login_required")
    client.force_login(make_buyer())
    assert_refused(client.post(url(order, action)), 404, "not_found")
    other_sale = url(order, action).replace(f"/{order.seckill_voucher_id}/", "/999999/", 1)
    assert_refused(client.post(other_sale), 404, "not_found")
    assert everything() == before


@pytest.mark.parametrize("action", slow_after(1, ACTIONS))
def test_page_without_session_redirects_to_login(
    client: Client, order: VoucherOrder, action: str
) -> None:
    answer = client.post(url(order, action), headers=HTML)
    assert answer.status_code == 302
    receipt = url(order, action)[: -len(f"{action}/")]
    assert answer["Location"] == f"/accounts/login/?next={receipt}"


@pytest.mark.parametrize("action", slow_after(1, ACTIONS))
def test_only_post_changes_an_order(shopper: Client, order: VoucherOrder, action: str) -> None:
    answer = shopper.get(url(order, action))
    assert_refused(answer, 405, "invalid")
    assert answer["Allow"] == "POST"


@pytest.mark.slow
@pytest.mark.parametrize("action", ["pay", "cancel"])
def test_locked_order_returns_503(shopper: Client, order: VoucherOrder, action: str) -> None:
    key = LedgerKeys(order.seckill_voucher_id).user_lock(order.user_id or 0)
    ledger_connection().set(key, "a worker", px=60_000)
    answer = shopper.post(url(order, action))
    assert_refused(answer, 503, "unavailable")
    assert answer["Retry-After"]


def test_redis_down_returns_503(
    shopper: Client, order: VoucherOrder, lose_ledger: Callable[[], None]
) -> None:
    lose_ledger()
    assert_refused(shopper.post(url(order, "cancel")), 503, "unavailable")
    assert VoucherOrder.objects.get(pk=order.pk).status == "unpaid"


# --- The waiting list -----------------------------------------------------------------------------


@pytest.fixture
def waiter(client: Client, order: VoucherOrder) -> tuple[Client, User]:
    """Somebody who came too late: the only unit is sold."""
    user = make_buyer()
    client.force_login(user)
    return client, user


def test_buyer_joins_and_leaves_the_waiting_list(
    waiter: tuple[Client, User], sale: SeckillVoucher
) -> None:
    client, user = waiter
    token = token_for(sale, user)
    joined = client.post(waiting_url(sale), {"token": token.sign()})
    assert joined.status_code == 200
    assert joined.json() == {
        "order_id": str(token.order_id),
        "voucher_id": str(sale.pk),
        "waiting": True,
        "place": 1,
        "state": "first",
        "offered": False,
        "quantity": 1,
        "given": 0,
        "wants": "one",
        "status_url": f"/vouchers/{sale.pk}/orders/{token.order_id}/",
    }
    assert client.get(waiting_url(sale)).json() == joined.json()
    left = client.post(waiting_url(sale) + "leave/")
    assert (left.json()["waiting"], left.json()["offered"]) == (False, False)
    assert_refused(client.get(waiting_url(sale)), 404, "not_found")
