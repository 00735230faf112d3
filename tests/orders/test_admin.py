"""Orders in the admin: found by id, buyer and voucher, filtered, and never typed."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import translation
from redis import Redis

from orders import admin, reconciling, retrying
from orders.admin import SaleSum
from orders.fulfillment import fulfill_sale
from orders.models import OrderStatus, VoucherOrder
from tests.orders.looking import (
    assert_conserved,
    ledger_contents,
    live_ids,
    pending_ids,
    redis_commands,
    rows,
)
from tests.orders.making import make_buyer, make_buyers, make_order, make_sale, reserved
from vouchers import admin as vouchers_admin
from vouchers.figures import snapshot
from vouchers.ledger import LedgerKeys
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

LIST = "/admin/orders/voucherorder/"
SALES = "/admin/vouchers/seckillvoucher/"


@pytest.fixture
def staff(client: Client) -> Client:
    """The client of a superuser: who may do everything may not do this either."""
    client.force_login(
        User.objects.create(username="boss", password="!", is_staff=True, is_superuser=True)
    )
    return client


@pytest.fixture
def boss(staff: Client) -> Client:
    """The same, reading English."""
    staff.defaults["HTTP_ACCEPT_LANGUAGE"] = "en"
    return staff


@pytest.fixture
def helper(client: Client) -> Client:
    """The client of somebody who may see sales and orders, and no more."""
    user = User.objects.create(username="helper", password="!", is_staff=True)
    allowed = ["view_voucherorder", "view_seckillvoucher"]
    user.user_permissions.set(Permission.objects.filter(codename__in=allowed))
    client.force_login(user)
    return client


def said(response: Any) -> list[str]:
    return [f"{it.level_tag}: {it}" for it in get_messages(response.wsgi_request)]


def found(staff: Client, **query: object) -> list[int]:
    response = staff.get(LIST, query)
    assert response.status_code == 200, response
    return sorted(order.pk for order in response.context["cl"].result_list)


def change_url(order: VoucherOrder, what: str = "change") -> str:
    return f"{LIST}{order.pk}/{what}/"


def test_orders_are_listed_with_buyer_and_state(staff: Client) -> None:
    sale, buyer = make_sale(), make_buyer()
    order = make_order(sale, buyer)
    page = staff.get(LIST).text
    assert str(order.pk) in page
    assert buyer.username in page
    assert sale.voucher.title in page


def test_an_order_without_a_buyer_is_listed_and_shown(staff: Client) -> None:
    order = make_order(make_sale(), None, status=OrderStatus.REFUSED, reason="inactive_buyer")
    assert found(staff) == [order.pk]
    assert staff.get(change_url(order)).status_code == 200


def test_an_order_is_found_by_its_id_and_by_nothing_near_it(staff: Client) -> None:
    sale, (first, second) = make_sale(), make_buyers(2)
    order = make_order(sale, first, order_id=2**53 + 1)
    make_order(sale, second, order_id=2**53 + 2)
    assert found(staff, q=str(order.pk)) == [order.pk]
    assert found(staff, q=str(order.pk)[:-1]) == []


def test_orders_are_found_by_the_buyers_name_and_by_the_vouchers_title(staff: Client) -> None:
    first, second = (make_order(make_sale(), make_buyer()) for _ in range(2))
    assert first.user
    assert found(staff, q=first.user.username) == [first.pk]
    assert found(staff, q=second.seckill_voucher.voucher.title.split(" ")[-1]) == [second.pk]


@pytest.mark.parametrize("text", ["nobody", "9" * 40, "-1", "1.5", "٣", "%", "_", "'", "\0", "é🙂"])
def test_a_search_for_anything_is_answered(staff: Client, text: str) -> None:
    make_order(make_sale(), make_buyer())
    assert len(found(staff, q=text)) <= 1


def test_orders_are_filtered_by_status_reason_and_sale(staff: Client) -> None:
    sale, other, buyers = make_sale(), make_sale(), make_buyers(4)
    paid = make_order(sale, buyers[0], status=OrderStatus.PAID)
    sold_out = make_order(sale, buyers[1], status=OrderStatus.REFUSED, reason="sold_out")
    failed = make_order(other, buyers[2], status=OrderStatus.REFUSED, reason="failed")
    assert found(staff, status__exact="paid") == [paid.pk]
    assert found(staff, status__exact="refused") == sorted([sold_out.pk, failed.pk])
    assert found(staff, reason__exact="failed") == [failed.pk]
    assert found(staff, seckill_voucher__id__exact=sale.pk) == sorted([paid.pk, sold_out.pk])
    assert found(staff, seckill_voucher__id__exact=sale.pk, status__exact="refused") == [
        sold_out.pk
    ]


def test_the_sale_filter_offers_only_sales_with_orders(staff: Client) -> None:
    sale, other, _ = make_sale(), make_sale(), make_sale()
    make_order(sale, make_buyer())
    make_order(other, make_buyer())
    (spec,) = (
        spec
        for spec in staff.get(LIST).context["cl"].filter_specs
        if getattr(spec, "field_path", "") == "seckill_voucher"
    )
    assert sorted(pk for pk, _ in spec.lookup_choices) == [sale.pk, other.pk]


def test_fifty_orders_take_as_many_queries_as_two(staff: Client) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            found(staff)
        return len(captured)

    sales = [make_sale(loaded=False) for _ in range(2)]
    for sale, buyer in zip(sales, make_buyers(2), strict=True):
        make_order(sale, buyer)
    two = queries()
    for buyer in make_buyers(48):
        make_order(sales[0], buyer)
    assert queries() == two


@pytest.mark.parametrize("method", ["get", "post"])
@pytest.mark.parametrize("what", ["add", "delete"])
def test_nobody_adds_or_deletes_an_order(staff: Client, method: str, what: str) -> None:
    order = make_order(make_sale(), make_buyer())
    before = rows()
    url = f"{LIST}add/" if what == "add" else change_url(order, "delete")
    response = getattr(staff, method)(url, {"post": "yes"})
    assert response.status_code == 403
    assert rows() == before


def test_an_order_can_be_looked_at_and_not_changed(staff: Client) -> None:
    order = make_order(make_sale(), make_buyer())
    before = rows()
    page = staff.get(change_url(order))
    assert page.status_code == 200
    assert str(order.pk) in page.text
    assert 'name="_save"' not in page.text
    fields: dict[str, Any] = {"status": "paid", "live": "", "unit": "7", "reason": "failed"}
    assert staff.post(change_url(order), fields).status_code == 403
    assert rows() == before


def test_there_is_no_action_that_deletes(staff: Client) -> None:
    order = make_order(make_sale(), make_buyer())
    before = rows()
    assert "delete_selected" not in staff.get(LIST).text
    staff.post(LIST, {"action": "delete_selected", "_selected_action": order.pk, "post": "yes"})
    assert rows() == before


def test_only_staff_with_the_permission_sees_orders(client: Client) -> None:
    order = make_order(make_sale(), make_buyer())
    helper = User.objects.create(username="helper", password="!", is_staff=True)
    for url in (LIST, change_url(order)):
        assert client.get(url).status_code == 302
    client.force_login(helper)
    assert client.get(LIST).status_code == 403
    helper.user_permissions.add(Permission.objects.get(codename="view_voucherorder"))
    assert client.get(LIST).status_code == 200


# --- Tried again ---------------------------------------------------------------------------------


def set_aside(sale: SeckillVoucher, buyer: User | None = None) -> VoucherOrder:
    buyer = buyer or make_buyer()
    return make_order(sale, buyer, status=OrderStatus.REFUSED, reason="failed")


def try_again(client: Client, *orders: VoucherOrder) -> Any:
    chosen = [order.pk for order in orders]
    return client.post(LIST, {"action": "try_again", "_selected_action": chosen})


def test_chosen_orders_are_tried_again_and_each_is_reported(boss: Client) -> None:
    sale = make_sale()
    first, second, live = set_aside(sale), set_aside(sale), make_order(make_sale(), make_buyer())
    assert said(try_again(boss, live, second, first)) == [
        f"success: Order {first.pk} is live now, to be paid by its buyer.",
        f"success: Order {second.pk} is live now, to be paid by its buyer.",
        f"warning: Order {live.pk} was not tried again: it is not an order that was set aside.",
    ]
    assert live_ids(sale) == [first.pk, second.pk]
    assert_conserved(sale)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("closed", "the buyer's account is closed"),
        ("sold out", "no unit is left"),
        ("pending", "it is still pending; try again in some seconds"),
        ("ordered", "the buyer has order {other} of that unit"),
    ],
)
def test_an_order_that_cannot_be_tried_again_is_reported_with_its_reason(
    boss: Client, reason: str, words: str
) -> None:
    sale, buyer = make_sale(stock=0 if reason == "sold out" else 2), make_buyer()
    order, other = set_aside(sale, buyer), ""
    if reason == "closed":
        User.objects.filter(pk=buyer.pk).update(is_active=False)
    if reason == "pending":
        waiting = reserved(sale, [buyer])[0].order_id
        VoucherOrder.objects.filter(pk=order.pk).update(id=waiting)
        order.pk = waiting
    if reason == "ordered":
        other = str(reserved(sale, [buyer])[0].order_id)
    before = ledger_contents(), rows()
    text = words.format(other=other)
    assert said(try_again(boss, order)) == [
        f"warning: Order {order.pk} was not tried again: {text}."
    ]
    assert (ledger_contents(), rows()) == before
    assert not LogEntry.objects.exists()


def test_who_tried_an_order_again_stands_in_its_history(boss: Client) -> None:
    order = set_aside(make_sale())
    try_again(boss, order)
    (entry,) = LogEntry.objects.all()
    assert (entry.user.username, entry.object_id) == ("boss", str(order.pk))
    assert entry.get_change_message() == "Tried again."


def test_who_may_only_look_cannot_try_again(helper: Client) -> None:
    order = set_aside(make_sale())
    before = rows()
    assert "try_again" not in helper.get(LIST).text
    try_again(helper, order)
    assert rows() == before


def test_who_may_change_orders_can_try_again_and_still_types_nothing(helper: Client) -> None:
    order = set_aside(make_sale())
    User.objects.get(username="helper").user_permissions.add(
        Permission.objects.get(codename="change_voucherorder")
    )
    assert 'name="_save"' not in helper.get(change_url(order)).text
    try_again(helper, order)
    assert live_ids(order.seckill_voucher) == [order.pk]


def test_without_redis_trying_again_is_a_message(
    boss: Client, lose_ledger: Callable[[], None]
) -> None:
    order = set_aside(make_sale())
    before = rows()
    lose_ledger()
    assert said(try_again(boss, order)) == [f"error: {admin.NO_ANSWER}"]
    assert rows() == before


def test_a_row_that_is_locked_for_too_long_is_a_message(
    boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(**kwargs: Any) -> None:
        raise OperationalError(1205, "Lock wait timeout exceeded")

    order = set_aside(make_sale())
    monkeypatch.setattr(retrying, "lock_seckill_voucher", locked)
    assert said(try_again(boss, order)) == [f"error: {admin.NO_ANSWER}"]


def test_one_click_finds_the_orders_that_were_set_aside(boss: Client) -> None:
    sale = make_sale()
    order = set_aside(sale)
    make_order(sale, make_buyer(), status=OrderStatus.REFUSED, reason="sold_out")
    make_order(sale, make_buyer())
    page = boss.get(LIST).text
    words = "the order could not be written and was set aside"
    (link,) = re.findall(rf'<a href="([^"]+)">\s*{words}', page)
    assert sorted(row.pk for row in boss.get(LIST + unescape(link)).context["cl"].result_list) == [
        order.pk
    ]
    assert f'<td class="field-reason">{words}</td>' in page


def test_the_page_of_an_order_set_aside_says_that_there_is_nothing_to_refund(boss: Client) -> None:
    sale = make_sale()
    assert "nothing to refund" in boss.get(change_url(set_aside(sale))).text
    assert "nothing to refund" not in boss.get(change_url(make_order(sale, make_buyer()))).text


# --- The sum of a sale ---------------------------------------------------------------------------


def sale_with(*, ordered: int = 0, waiting: int = 0, stock: int = 100) -> SeckillVoucher:
    """Return a sale with so many orders and so many pending entries."""
    sale = make_sale(stock=stock)
    reserved(sale, make_buyers(ordered))
    fulfill_sale(sale_id=sale.pk)
    reserved(sale, make_buyers(waiting))
    return sale


def page_of(sale: SeckillVoucher) -> str:
    return f"{SALES}{sale.pk}/change/"


def as_seen(markup: str) -> str:
    """Return what is read out: the text, and each image by its words."""
    with_words = re.sub(r'<img [^>]*alt="([^"]*)"[^>]*>', r"\1", markup)
    return " ".join(unescape(re.sub(r"<[^>]+>", "", with_words)).split())


def listed_sums(client: Client) -> list[str]:
    cells = re.findall(r'<td class="field-sum">(.*?)</td>', client.get(SALES).text, re.DOTALL)
    return [as_seen(cell) for cell in cells]


def sum_of(client: Client, sale: SeckillVoucher) -> str:
    """Return the sum of the only sale, which list and page have to say alike."""
    text = client.get(page_of(sale)).text
    (cell,) = re.findall(r'field-sum.*?<div class="readonly">(.*?)</div>', text, re.DOTALL)
    assert listed_sums(client) == [as_seen(cell)]
    return as_seen(cell)


def test_a_sale_that_adds_up_has_a_green_tick_that_says_so(boss: Client) -> None:
    sale = sale_with(ordered=3, waiting=2)
    assert sum_of(boss, sale) == "100 = 95 + 2 + 3 adds up"
    assert re.search(r'<img src="[^"]*icon-yes[^"]*" alt="adds up">', boss.get(SALES).text)


def test_orders_that_are_over_do_not_count(boss: Client) -> None:
    sale = sale_with(ordered=1)
    set_aside(sale)
    make_order(sale, make_buyer(), status=OrderStatus.CANCELLED)
    assert sum_of(boss, sale) == "100 = 99 + 0 + 1 adds up"


def test_units_that_are_nowhere_are_a_difference_in_red_and_in_words(
    boss: Client, ledger: Redis
) -> None:
    sale = sale_with(ordered=3, waiting=2)
    ledger.zpopmin(LedgerKeys(sale.pk).pending)
    assert sum_of(boss, sale) == "100 ≠ 95 + 1 + 3 difference +1"
    assert "icon-no" in boss.get(SALES).text


def test_more_units_in_two_places_than_are_pending_are_a_difference(
    boss: Client, ledger: Redis
) -> None:
    sale = sale_with(ordered=3, waiting=1)
    buyers = [f"{pk}:1" for pk in sale.orders.values_list("user_id", flat=True)]
    ledger.hdel(LedgerKeys(sale.pk).buyers, *buyers[:2])
    assert sum_of(boss, sale) == "100 ≠ 98 + 1 + 3 difference −2"


def test_a_total_in_redis_that_is_not_the_rows_is_a_difference(boss: Client, ledger: Redis) -> None:
    sale = sale_with(ordered=1)
    ledger.hset(LedgerKeys(sale.pk).sale, "total", 105)
    assert sum_of(boss, sale) == "100 ≠ 104 + 0 + 1 difference −5"


@pytest.mark.parametrize("where", ["list", "page"])
def test_orders_written_between_the_two_looks_are_in_flight_and_no_difference(
    boss: Client, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    sale = sale_with(ordered=3, waiting=2)
    module = vouchers_admin if where == "list" else admin
    look = module.cards

    def then_fulfil(**kwargs: Any) -> Any:
        seen = look(**kwargs)
        fulfill_sale(sale_id=sale.pk)
        return seen

    monkeypatch.setattr(module, "cards", then_fulfil)
    url = SALES if where == "list" else page_of(sale)
    text = boss.get(url).text
    assert "100 = 95 + 2 + 5 − 2 in flight" in text
    assert "icon-no" not in text.split('id="result_list"' if where == "list" else "field-sum")[1]


@pytest.mark.parametrize(
    ("live", "difference", "in_flight"),
    [(3, 0, False), (4, -1, True), (5, -2, True), (6, -3, False), (2, 1, False)],
)
def test_no_more_than_what_is_pending_is_in_flight(
    live: int, difference: int, in_flight: bool
) -> None:
    found = SaleSum(total=10, left=5, pending=2, live=live)
    assert (found.difference, found.in_flight) == (difference, in_flight)


def test_a_sale_that_is_not_loaded_has_no_sum_and_says_so(boss: Client) -> None:
    assert sum_of(boss, make_sale(loaded=False)) == "– (not loaded)"


def test_without_redis_there_is_no_sum_and_both_pages_stand(
    boss: Client, lose_ledger: Callable[[], None]
) -> None:
    sale = sale_with(ordered=1)
    lose_ledger()
    assert sum_of(boss, sale) == "– (not loaded)"


def test_the_page_explains_its_sum_and_the_page_of_a_new_sale_has_none(boss: Client) -> None:
    assert "total = left + pending + orders" in boss.get(page_of(make_sale())).text
    assert "field-sum" not in boss.get(f"{SALES}add/").text


def test_who_may_only_look_sees_the_sum(helper: Client) -> None:
    sale = make_sale(stock=7)
    with translation.override("en"):
        helper.defaults["HTTP_ACCEPT_LANGUAGE"] = "en"
        assert sum_of(helper, sale) == "7 = 7 + 0 + 0 adds up"


def test_thirty_sums_cost_as_much_as_three(boss: Client) -> None:
    def cost(more: int) -> tuple[int, int]:
        for _ in range(more):
            sale_with(ordered=1, waiting=1)
        boss.get(SALES)
        with CaptureQueriesContext(connection) as queries, redis_commands() as commands:
            assert set(listed_sums(boss)) == {"100 = 98 + 1 + 1 adds up"}
        return len(queries), len(commands.ledger)

    (queries, commands), (queries_30, commands_30) = cost(3), cost(27)
    assert queries == queries_30
    # All in one pipeline, as ``tests/vouchers/test_admin.py`` counts them: a call for each sale.
    assert (commands, commands_30) == (3, 30)


def test_the_page_of_a_sale_asks_redis_once_for_its_figures_of_one_moment(boss: Client) -> None:
    sale = sale_with(ordered=1)
    boss.get(page_of(sale))
    with redis_commands() as commands:
        boss.get(page_of(sale))
    # One for all figures, and one for whether the sale may be deleted.
    assert len(commands.ledger) == 2


# --- Reconciling by hand -------------------------------------------------------------------------


def reconcile(client: Client, *sales: SeckillVoucher) -> Any:
    chosen = [sale.pk for sale in sales]
    return client.post(SALES, {"action": "reconcile", "_selected_action": chosen})


def test_chosen_sales_are_reconciled_and_each_is_reported(boss: Client, ledger: Redis) -> None:
    good, bad, lost = sale_with(ordered=1), sale_with(waiting=3), make_sale(loaded=False)
    ledger.zpopmin(LedgerKeys(bad.pk).pending, 2)
    assert sorted(said(reconcile(boss, good, bad, lost))) == sorted(
        [
            f"success: {good}: fits.",
            f"warning: {bad}: was different by 2, is repaired.",
            f"success: {lost}: was not loaded, is loaded now and fits.",
        ]
    )
    assert len(pending_ids(bad)) == 3
    assert snapshot(sale_id=lost.pk).remaining == lost.stock
    assert said(reconcile(boss, bad))[-1] == f"success: {bad}: fits."


def test_a_difference_that_is_left_is_said(
    boss: Client, ledger: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = sale_with(waiting=3)
    ledger.zpopmin(LedgerKeys(sale.pk).pending, 2)
    monkeypatch.setattr(reconciling, "make_pending", lambda **kwargs: None)
    assert said(reconcile(boss, sale)) == [f"error: {sale}: still different by 2."]


def test_without_redis_reconciling_is_a_message(
    boss: Client, lose_ledger: Callable[[], None]
) -> None:
    sale = make_sale()
    lose_ledger()
    assert said(reconcile(boss, sale)) == [f"error: {admin.NO_ANSWER}"]


def test_a_sale_deleted_meanwhile_does_not_stop_the_others(
    boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, sale = make_sale(begins_in_s=-30), make_sale()
    compare = reconciling.reconcile

    def deleted(**kwargs: Any) -> Any:
        SeckillVoucher.objects.filter(pk=gone.pk).delete()
        return compare(**kwargs)

    monkeypatch.setattr(admin, "reconcile", deleted)
    assert said(reconcile(boss, gone, sale)) == [f"success: {sale}: fits."]


def test_who_may_only_look_cannot_reconcile(helper: Client, ledger: Redis) -> None:
    sale = sale_with(waiting=1)
    ledger.zpopmin(LedgerKeys(sale.pk).pending)
    before = ledger_contents()
    assert 'value="reconcile"' not in helper.get(SALES).text
    reconcile(helper, sale)
    assert ledger_contents() == before
