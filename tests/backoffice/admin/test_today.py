"""Today, the home page: who sees what, where it leads, and without Redis."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from redis import Redis

from orders.models import OrderStatus, VoucherOrder
from orders.roles import Role, make_roles
from tests.support.browsers import HTML, browser_of
from tests.support.heartbeats import note_all
from tests.support.orders import make_buyer, make_order, make_sale
from tests.support.payments import make_unpaid_order, pay
from vouchers.inventory.keys import LedgerKeys
from vouchers.models import Voucher

pytestmark = pytest.mark.django_db

HOME = "/admin/"
DAY = 24 * 3600


def staff(role: Role | None = None, *permissions: str) -> Client:
    user = User.objects.create(username=f"{role}-{'-'.join(permissions)}", is_staff=True)
    if role:
        make_roles()
        user.groups.add(Group.objects.get(name=role))
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return browser_of(user, headers=HTML)


# --- Figures --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_running_sale_leads_to_board_and_pause() -> None:
    sale = make_sale(stock=10)

    page = staff(Role.OPERATOR).get(HOME).text

    assert str(sale.voucher) in page
    assert "of 10 left" in page
    assert f'href="{reverse("admin:sale-board", args=[sale.pk])}"' in page
    assert f'href="{reverse("admin:sale-board-pause", args=[sale.pk])}"' in page


@pytest.mark.parametrize("begins_in_s", [-60, DAY])
def test_titles_are_in_the_readers_language(begins_in_s: int) -> None:
    sale = make_sale(begins_in_s=begins_in_s, ends_in_s=2 * DAY)
    Voucher.objects.filter(pk=sale.voucher_id).update(title="牛肉面", title_en="Noodles")

    page = staff(Role.OPERATOR).get(HOME).text

    assert "Noodles" in page
    assert "牛肉面" not in page


def test_paused_sale_can_be_resumed() -> None:
    sale = make_sale(paused=True)

    page = staff(Role.OPERATOR).get(HOME).text

    assert reverse("admin:sale-board-resume", args=[sale.pk]) in page
    assert reverse("admin:sale-board-pause", args=[sale.pk]) not in page


def test_rate_is_drawn_as_a_small_chart(redis_databases: list[Redis]) -> None:
    sale = make_sale()
    second = int(timezone.now().timestamp()) - 5
    redis_databases[0].hset(LedgerKeys(sale.pk).tally, f"{second}:accepted", 40)

    page = staff(Role.OPERATOR).get(HOME).text

    assert '<path class="spark__accepted" d="M' in page
    assert "Orders accepted per second in the last two minutes: now 8.0, at most 8.0" in page


def test_next_sale_says_what_is_missing() -> None:
    sale = make_sale(begins_in_s=DAY, ends_in_s=2 * DAY, loaded=False)

    page = staff(Role.OPERATOR).get(HOME).text

    assert "Not ready yet" in page
    assert "Not rehearsed" in page
    assert reverse("admin:sale-rehearse", args=[sale.pk]) in page
    assert 'data-until="' in page


def test_money_of_the_day_is_shown() -> None:
    sale = make_sale()
    pay(make_unpaid_order(sale))
    make_unpaid_order(sale)

    page = staff(Role.OPERATOR).get(HOME).text

    assert '<span class="figure__value" data-length="1">2</span>' in page
    assert '<span class="figure__value" data-length="6">¥80.00</span>' in page
    assert "1 order paid" in page


def test_figures_lead_to_the_orders_they_count() -> None:
    sale, client = make_sale(), staff(Role.OPERATOR)
    for status in (OrderStatus.REFUNDING, OrderStatus.REFUNDED, OrderStatus.UNPAID):
        order = make_order(sale, make_buyer(), status=status)
    VoucherOrder.objects.update(accepted_at=timezone.now())
    VoucherOrder.objects.filter(pk=order.pk).update(accepted_at=timezone.now() - dt.timedelta(2))

    orders, _used, _paid, refunds, *_rest = re.findall(
        'class="figure" href="([^"]+)"', client.get(HOME).text
    )

    assert [client.get(it).context["cl"].result_count for it in (orders, refunds)] == [2, 2]


@pytest.mark.slow
def test_problem_leads_to_where_it_is_handled() -> None:
    make_order(make_sale(), make_buyer(), status=OrderStatus.REFUSED, reason="failed")
    client = staff(Role.OPERATOR)

    page = client.get(HOME).text

    assert "1 order could not be written" in page
    url = "/admin/orders/voucherorder/?status__exact=refused&reason__exact=failed"
    assert url.replace("&", "&amp;") in page
    assert "1 entry" in client.get(url).text


def test_quiet_shop_says_so() -> None:
    note_all()
    page = staff(None, "view_seckillvoucher", "view_voucherorder").get(HOME).text

    assert "Nothing needs your attention." in page
    assert "No sale is running." in page
    assert "No sale is planned." in page


def test_page_opens_without_redis(lose_ledger: Callable[[], None]) -> None:
    make_sale()
    client = staff(None, "view_seckillvoucher", "view_voucherorder")
    lose_ledger()

    response = client.get(HOME)

    assert response.status_code == 200
    assert "Redis is not responding, so nobody can buy right now." in response.text


def test_page_is_kept_by_no_cache() -> None:
    assert "private" in staff(Role.OPERATOR).get(HOME)["Cache-Control"]


# --- Who sees what --------------------------------------------------------------------------------

SALES, ORDERS = "Running sales", "Refunds"
NEW, REDEEM, IMPORT = ("/admin/vouchers/seckillvoucher/add/", "/staff/redeem/", "/voucher/import/")


@pytest.mark.parametrize(
    ("role", "sees", "not_"),
    [
        (Role.OPERATOR, {SALES, ORDERS, NEW, REDEEM, IMPORT}, set()),
        (Role.SHOP_STAFF, {SALES, ORDERS, NEW, REDEEM, IMPORT}, {"/board/pause/"}),
        (Role.READ_ONLY, {SALES, ORDERS}, {NEW, REDEEM, IMPORT, "/board/pause/"}),
        (None, {"You do not have a role yet"}, {SALES, ORDERS, NEW, REDEEM, IMPORT}),
    ],
)
def test_role_sees_its_blocks_and_buttons(
    role: Role | None, sees: set[str], not_: set[str]
) -> None:
    make_sale()

    page = staff(role).get(HOME).text

    assert {it for it in sees | not_ if it in page} == sees


def test_viewer_of_sales_alone_sees_no_money() -> None:
    pay(make_unpaid_order(make_sale()))

    page = staff(None, "view_seckillvoucher").get(HOME).text

    assert SALES in page
    assert "¥80.00" not in page


def test_cashier_lands_on_redeem() -> None:
    assert staff(Role.CASHIER).get(HOME)["Location"] == reverse("redeem")
