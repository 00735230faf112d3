"""Orders in the admin: search, filters, cancellations, refunds, retries and balances."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from redis import Redis

from backoffice.admin import orders as order_admin
from backoffice.admin import sales as admin
from backoffice.board.snapshot import SaleSum
from backoffice.bulk_jobs import end_order, start_job, take_turn
from orders.fulfilment import reconcile as reconciling
from orders.fulfilment.worker import fulfil_sale
from orders.lifecycle.redemption import GUESSES, written_code
from orders.lifecycle.transitions import SYSTEM, Actor, Change, note
from orders.models import OrderJob, OrderStatus, Payment, VoucherOrder
from tests.support.inspection import (
    assert_conserved,
    broker_length,
    ledger_contents,
    live_ids,
    pending_ids,
    redis_commands,
    rows,
)
from tests.support.orders import make_buyer, make_buyers, make_order, make_sale, reserved
from tests.support.payments import (
    history,
    make_payment,
    make_unpaid_order,
    pay,
    status_of,
    trade_state,
)
from tests.support.staff import said, staff_with
from tests.support.tiers import slow_after
from vouchers.admin import sale_list
from vouchers.catalogue.history import history_text
from vouchers.catalogue.staff_texts import NO_ANSWER
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.sale_state import snapshot
from vouchers.models import Merchant, SeckillVoucher, Voucher

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("in_shanghai")]

LIST = "/admin/orders/voucherorder/"
SALES = "/admin/vouchers/seckillvoucher/"


@pytest.fixture
def boss() -> Client:
    """The client of a superuser, to whom the same limits apply."""
    return staff_with(name="boss", is_owner=True)


@pytest.fixture
def helper() -> Client:
    """The client of a user who may only view sales and orders."""
    return staff_with("view_voucherorder", "view_seckillvoucher", name="helper")


@pytest.fixture
def on_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run on_commit callbacks at once, because the transaction of a test never commits."""
    monkeypatch.setattr(transaction, "on_commit", lambda call: call())


def found(boss: Client, **query: str | int) -> list[int]:
    response = boss.get(LIST, query)
    assert response.status_code == 200, response
    return sorted(order.pk for order in response.context["cl"].result_list)


def change_url(order: VoucherOrder, what: str = "change") -> str:
    return f"{LIST}{order.pk}/{what}/"


def test_order_without_buyer_is_listed_and_shown(boss: Client) -> None:
    order = make_order(make_sale(), None, status=OrderStatus.REFUSED, reason="inactive_buyer")
    assert found(boss) == [order.pk]
    assert boss.get(change_url(order)).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("may_see", [True, False])
def test_orders_lead_to_the_customer_for_those_who_may(helper: Client, may_see: bool) -> None:
    buyer = make_buyer()
    order = make_order(make_sale(), buyer)
    if may_see:
        grant("helper", "see_customers")
    for url in (LIST, change_url(order)):
        page = helper.get(url).text
        assert buyer.username in page
        assert (f'href="/admin/customers/{buyer.pk}/"' in page) is may_see
    if may_see:
        assert change_url(order) in helper.get(f"/admin/customers/{buyer.pk}/").text


@pytest.mark.slow
def test_order_search_by_exact_id(boss: Client) -> None:
    sale, (first, second) = make_sale(), make_buyers(2)
    order = make_order(sale, first, order_id=2**53 + 1)
    make_order(sale, second, order_id=2**53 + 2)
    assert found(boss, q=str(order.pk)) == [order.pk]
    assert found(boss, q=str(order.pk)[:-1]) == []


@pytest.mark.slow
def test_order_search_by_buyer(boss: Client) -> None:
    first, second = (make_order(make_sale(), make_buyer()) for _ in range(2))
    assert first.user
    assert second.user
    assert found(boss, q=first.user.username) == [first.pk]
    assert found(boss, q=f" {second.user.username.upper()} ") == [second.pk]


def search(client: Client, text: str, **limits: str) -> Any:
    return client.post(f"{LIST}find/", {"q": text, **limits}, follow=True)


def paid_order() -> VoucherOrder:
    order = pay(make_unpaid_order(make_sale())).order
    order.refresh_from_db()
    return order


def test_search_by_a_whole_code_leads_to_its_order(boss: Client) -> None:
    order = paid_order()
    answer = search(boss, written_code(order.code or "").lower())
    assert [url for url, _ in answer.redirect_chain] == [change_url(order)]


@pytest.mark.slow
def test_search_by_a_code_needs_the_right_to_redeem(helper: Client) -> None:
    order = paid_order()
    assert order.code
    refused = search(helper, order.code)
    assert refused.redirect_chain == [(f"{LIST}?", 302)], "an address is logged"
    assert "Only staff who may redeem" in refused.text
    grant("helper", "redeem_voucherorder")
    assert search(helper, order.code).redirect_chain[0][0] == change_url(order)


def answer_of(response: Any) -> list[int]:
    return sorted(it.pk for it in response.context["cl"].result_list)


@pytest.mark.slow
def test_codes_are_counted_as_guesses(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_admin, "GUESSES", GUESSES._replace(most=2, window_s=10**10))
    order = paid_order()
    assert order.code
    for _ in range(3):
        assert search(boss, order.code).redirect_chain[0][0] == change_url(order)
    for _ in range(2):
        assert answer_of(search(boss, "0" * 16)) == []
    refused = search(boss, order.code)
    assert said(refused) == ["error: Too many wrong codes. Try again later."]
    assert [url for url, _ in refused.redirect_chain] == [f"{LIST}?"]


def test_code_is_never_looked_for_by_an_address(boss: Client) -> None:
    order = paid_order()
    assert found(boss, q=order.code or "") == []
    assert 'method="post"' in boss.get(LIST).text.partition('id="changelist-search"')[2][:200]


@pytest.mark.slow
def test_search_by_a_contact_names_the_account_in_the_address(helper: Client) -> None:
    order = make_order(make_sale(), make_buyer())
    assert order.user
    EmailAddress.objects.create(user=order.user, email="ann@a.example", verified=True)
    unknown = search(helper, "ann@a.example")
    assert unknown.redirect_chain == [(f"{LIST}?q=", 302)]
    assert said(unknown) == ["warning: Nothing matches."]
    grant("helper", "see_customers")
    found_ = search(helper, "ann@a.example")
    assert found_.redirect_chain == [(f"{LIST}?q={order.user.username}", 302)]
    assert answer_of(found_) == [order.pk]


@pytest.mark.slow
def test_search_keeps_the_filters(boss: Client) -> None:
    order = make_order(make_sale(), make_buyer())
    assert answer_of(search(boss, str(order.pk), status__exact="unpaid")) == [order.pk]
    assert answer_of(search(boss, str(order.pk), status__exact="paid")) == []


@pytest.mark.slow
def test_orders_are_filtered_by_a_day_of_the_shop(boss: Client) -> None:
    """In Shanghai, where these tests are, a day starts at 16:00 UTC of the day before."""
    sale, orders, midnight = make_sale(), [], dt.datetime(2026, 11, 23, 16, tzinfo=dt.UTC)
    for buyer, hours in zip(make_buyers(4), (-1, 0, 23, 24), strict=True):
        orders.append(make_order(sale, buyer).pk)
        at = midnight + dt.timedelta(hours=hours)
        VoucherOrder.objects.filter(pk=orders[-1]).update(accepted_at=at)
    day = "2026-11-24"
    assert found(boss, day=day) == orders[1:3]
    assert found(boss, day=day, status__exact="paid") == []
    assert answer_of(search(boss, "", day=day, status__exact="unpaid")) == orders[1:3]
    assert answer_of(search(boss, str(orders[0]), day=day)) == []
    assert answer_of(search(boss, str(orders[1]), day="")) == [orders[1]]
    form = boss.get(LIST, {"day": day}).text.partition('id="changelist-search"')[2]
    assert f'name="day" value="{day}"' in form.partition("</form>")[0]


@pytest.mark.parametrize("day", slow_after(1, ["x", "2026-13-01", "9999-12-31", "0001-01-01"]))
def test_made_up_day_is_answered(boss: Client, day: str) -> None:
    assert boss.get(LIST, {"day": day}, follow=True).status_code == 200


@pytest.mark.parametrize(
    "text", slow_after(1, ["nobody", "9" * 40, "-1", "1.5", "٣", "%", "_", "'", "\0", "é🙂"])
)
def test_any_order_search_is_answered(boss: Client, text: str) -> None:
    make_order(make_sale(), make_buyer())
    assert len(found(boss, q=text)) <= 1


def test_only_a_search_or_filter_counts_its_results(boss: Client) -> None:
    order = make_order(make_sale(), make_buyer())
    assert "1 result" not in boss.get(LIST).text
    assert "1 result" in boss.get(LIST, {"q": str(order.pk)}).text
    assert "1 result" in boss.get(LIST, {"status__exact": "unpaid"}).text


def test_labels_of_cards_are_the_headings_of_the_order_page(boss: Client) -> None:
    """On a phone the headings are hidden, and each cell names its own."""
    page = boss.get(change_url(pay(make_unpaid_order(make_sale())).order)).text
    for section in ("events", "payments"):
        part = page.partition(f'id="{section}"')[2].partition("</section>")[0]
        headings = re.findall(r'<th scope="col">(.+?)</th>', part)
        rows = [re.findall(r'data-label="(.+?)"', row) for row in part.split("<tr>")[2:]]
        assert rows
        assert all(row == headings for row in rows)


@pytest.mark.slow
def test_orders_are_filtered_by_status_reason_and_sale(boss: Client) -> None:
    sale, other, buyers = make_sale(), make_sale(), make_buyers(4)
    paid = make_order(sale, buyers[0], status=OrderStatus.PAID)
    sold_out = make_order(sale, buyers[1], status=OrderStatus.REFUSED, reason="sold_out")
    failed = make_order(other, buyers[2], status=OrderStatus.REFUSED, reason="failed")
    assert found(boss, status__exact="paid") == [paid.pk]
    assert found(boss, status__exact="refused") == sorted([sold_out.pk, failed.pk])
    assert found(boss, reason__exact="failed") == [failed.pk]
    assert found(boss, seckill_voucher__id__exact=sale.pk) == sorted([paid.pk, sold_out.pk])
    assert found(boss, seckill_voucher__id__exact=sale.pk, status__exact="refused") == [sold_out.pk]


@pytest.mark.slow
def test_filters_by_sale_and_merchant_list_none(boss: Client) -> None:
    merchant = Merchant.objects.create(name="Tea")
    sale, others = make_sale(), [make_sale() for _ in range(3)]
    Voucher.objects.filter(pk=sale.voucher_id).update(merchant=merchant)
    wanted = make_order(sale, make_buyer())
    for other in others:
        make_order(other, make_buyer())
    with CaptureQueriesContext(connection) as captured:
        assert len(found(boss)) == 4
    assert len(captured) < 15
    for path, pk in (
        ("seckill_voucher", sale.pk),
        ("seckill_voucher__voucher__merchant", merchant.pk),
    ):
        page = boss.get(LIST, {f"{path}__id__exact": pk})
        assert [it.pk for it in page.context["cl"].result_list] == [wanted.pk]
        assert boss.get(LIST, {f"{path}__id__exact": "x"}).status_code == 302


def test_fifty_orders_take_as_many_queries_as_two(boss: Client) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            found(boss)
        return len(captured)

    sales = [make_sale(loaded=False) for _ in range(2)]
    for sale, buyer in zip(sales, make_buyers(2), strict=True):
        make_order(sale, buyer)
    two = queries()
    for buyer in make_buyers(48):
        make_order(sales[0], buyer)
    assert queries() == two


# --- Retries -------------------------------------------------------------------------------------


def set_aside(sale: SeckillVoucher, buyer: User | None = None) -> VoucherOrder:
    buyer = buyer or make_buyer()
    return make_order(sale, buyer, status=OrderStatus.REFUSED, reason="failed")


def try_again(client: Client, *orders: VoucherOrder) -> Any:
    chosen = [order.pk for order in orders]
    return client.post(LIST, {"action": "try_again", "_selected_action": chosen})


def test_each_retried_order_is_reported(boss: Client) -> None:
    sale = make_sale()
    first, second, live = set_aside(sale), set_aside(sale), make_order(make_sale(), make_buyer())
    assert said(try_again(boss, live, second, first)) == [
        f"success: Order {first.pk} is now live and waiting for payment.",
        f"success: Order {second.pk} is now live and waiting for payment.",
        f"warning: Order {live.pk} was not retried: the order is not waiting for a retry.",
    ]
    assert live_ids(sale) == [first.pk, second.pk]
    assert_conserved(sale)
    noted = [(it.user.username, it.object_id, history_text(it)) for it in LogEntry.objects.all()]
    assert sorted(noted) == [("boss", str(it.pk), "Retried.") for it in (first, second)]


@pytest.mark.parametrize(
    ("reason", "words"),
    slow_after(
        2,
        [
            ("closed", "the buyer's account is closed"),
            ("sold out", "no vouchers are left"),
            ("pending", "it is still being processed; try again in a few seconds"),
            ("ordered", "the buyer already has order {other} for the same voucher"),
        ],
    ),
)
def test_refused_retry_is_reported_with_its_reason(boss: Client, reason: str, words: str) -> None:
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
    assert said(try_again(boss, order)) == [f"warning: Order {order.pk} was not retried: {text}."]
    assert (ledger_contents(), rows()) == before
    assert not LogEntry.objects.exists()


def test_set_aside_orders_have_a_filter(boss: Client) -> None:
    sale = make_sale()
    order = set_aside(sale)
    make_order(sale, make_buyer(), status=OrderStatus.REFUSED, reason="sold_out")
    make_order(sale, make_buyer())
    page = boss.get(LIST).text
    words = "the order could not be written"
    (link,) = re.findall(rf'<a href="([^"]+)">\s*{words}', page)
    assert sorted(row.pk for row in boss.get(LIST + unescape(link)).context["cl"].result_list) == [
        order.pk
    ]
    assert f'<span class="office-why">{words}</span>' in page


def test_set_aside_order_page_says_nothing_to_refund(boss: Client) -> None:
    sale = make_sale()
    assert "nothing to refund" in boss.get(change_url(set_aside(sale))).text
    assert "nothing to refund" not in boss.get(change_url(make_order(sale, make_buyer()))).text


# --- The page of an order -------------------------------------------------------------------------


AT = dt.datetime(2026, 11, 11, 4, 5, 6, 789_000, tzinfo=dt.UTC)


def grant(name: str, *codenames: str) -> None:
    user = User.objects.get(username=name)
    user.user_permissions.add(*Permission.objects.filter(codename__in=codenames))


def table(page: str, name: str) -> list[list[str]]:
    """Return the texts of a table's rows on the page of an order or a job."""
    (section,) = re.findall(rf'<section [^>]*id="{name}".*?</section>', page, re.DOTALL)
    lines = re.findall(r"<tr>(.*?)</tr>", section.split("</thead>")[1], re.DOTALL)
    return [
        [as_seen(it) for it in re.findall(r"<td[^>]*>(.*?)</td>", line, re.DOTALL)]
        for line in lines
    ]


def test_order_page_shows_history_to_the_second(boss: Client) -> None:
    order, buyer = make_order(make_sale(), make_buyer()), make_buyer()
    note(Change(OrderStatus.UNPAID, SYSTEM, AT), order_ids=[order.pk], before="")
    later, by = AT + dt.timedelta(seconds=1), Actor.buyer(buyer.pk)
    cancelled = Change(OrderStatus.CANCELLED, by, later, "<b>mistake</b>")
    note(cancelled, order_ids=[order.pk], before="unpaid")
    assert table(boss.get(change_url(order)).text, "events") == [
        ["2026-11-11 12:05:06 UTC+8", "–", "unpaid", "system", "–"],
        [
            "2026-11-11 12:05:07 UTC+8", "unpaid", "cancelled",
            f"buyer ({buyer.username})", "<b>mistake</b>",
        ],
    ]  # fmt: skip


def test_order_page_shows_payments(boss: Client) -> None:
    order = make_unpaid_order(make_sale())
    payment = pay(order)
    Payment.objects.filter(pk=payment.pk).update(
        created_at=AT, changed_at=AT, problem="99 cents arrived instead of 100"
    )
    assert table(boss.get(change_url(order)).text, "payments") == [
        [
            "2026-11-11 12:05:06 UTC+8", payment.reference, "sandbox", "¥80.00",
            "paid (paid the order)",
            "2026-11-11 12:05:06 UTC+8", "99 cents arrived instead of 100",
        ]
    ]  # fmt: skip


def test_empty_history_and_payments_have_a_message(boss: Client) -> None:
    page = boss.get(change_url(make_order(make_sale(), make_buyer()))).text
    assert "No changes recorded." in page
    assert "No payment attempts." in page


def test_order_page_query_count_ignores_history_length(boss: Client) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            boss.get(change_url(order))
        return len(captured)

    order = make_order(make_sale(), make_buyer())
    by = Actor.staff(make_buyer().pk)
    note(Change(OrderStatus.UNPAID, by, AT), order_ids=[order.pk], before="")
    few = queries()
    note(Change(OrderStatus.PAID, by, AT), order_ids=[order.pk] * 30, before="unpaid")
    assert queries() == few


def test_only_unpaid_order_shows_payment_deadline(boss: Client) -> None:
    sale = make_sale(loaded=False)
    for status in (OrderStatus.UNPAID, OrderStatus.PAID):
        make_order(sale, make_buyer(), status=status)
    VoucherOrder.objects.update(pay_by=AT)
    page = boss.get(LIST, {"o": "4"}).text  # by status, paid first
    cells = re.findall(r'<td [^>]*class="field-due">(.*?)</td>', page)
    assert [as_seen(it) for it in cells] == ["–", "2026-11-11 12:05:06 UTC+8"]


# --- One order is cancelled or refunded ----------------------------------------------------------


def end(client: Client, order: VoucherOrder, kind: str, reason: str = "the buyer called") -> Any:
    return client.post(change_url(order, kind), {"reason": reason})


def links(page: str) -> list[str]:
    return re.findall(r'href="/admin/orders/voucherorder/[0-9]+/(cancel|refund)/"', page)


@pytest.mark.parametrize("status", slow_after(1, OrderStatus.values))
def test_order_page_offers_possible_actions_only(boss: Client, status: str) -> None:
    reason = "failed" if status == "refused" else ""
    order = make_order(make_sale(), make_buyer(), status=OrderStatus(status), reason=reason)
    offered = {"unpaid": ["cancel"], "paid": ["refund"]}.get(status, [])
    assert links(boss.get(change_url(order)).text) == offered


def test_cancelling_confirms_and_needs_a_reason(boss: Client) -> None:
    sale = make_sale()
    order = make_unpaid_order(sale)
    before = rows()
    page = boss.get(change_url(order, "cancel")).text
    assert f"Order {order.pk} will be cancelled." in as_seen(page)
    assert "goes back on sale at once" in page
    assert rows() == before

    response = end(boss, order, "cancel")

    assert (response.status_code, response["Location"]) == (302, change_url(order))
    assert said(response) == [f"success: Order {order.pk} is now cancelled."]
    assert status_of(order) == "cancelled"
    assert_conserved(sale)
    event = order.events.get(after="cancelled")
    assert event.actor
    assert (event.actor_kind, event.actor.username, event.reason) == (
        "staff", "boss", "the buyer called",
    )  # fmt: skip
    (entry,) = LogEntry.objects.all()
    assert (entry.object_id, history_text(entry)) == (
        str(order.pk),
        "Cancelled. Reason: the buyer called",
    )


def test_refunding_shows_the_amount_and_asks_the_provider(boss: Client) -> None:
    sale = make_sale(refundable=False)  # that rule is for buyers
    order = make_unpaid_order(sale)
    payment = pay(order)
    page = as_seen(boss.get(change_url(order, "refund")).text)
    assert f"Order {order.pk} will be refunded. ¥80.00 is refunded" in page
    assert said(end(boss, order, "refund")) == [f"success: Order {order.pk} is now refunded."]
    assert trade_state(payment) == "refunded"
    assert history(order)[-2:] == ["refunding by staff", "refunded by system"]
    assert_conserved(sale)


@pytest.mark.parametrize("reason", slow_after(1, ["", "   ", "x" * 201]))
def test_missing_or_long_reason_changes_nothing(boss: Client, reason: str) -> None:
    order = make_unpaid_order(make_sale())
    before = ledger_contents(), rows()
    response = boss.post(change_url(order, "cancel"), {"reason": reason, "more": "1"})
    assert response.status_code == 200
    assert "errorlist" in response.text
    assert (ledger_contents(), rows()) == before


@pytest.mark.parametrize("method", slow_after(1, ["get", "post"]))
@pytest.mark.parametrize(("kind", "status"), [("cancel", "paid"), ("refund", "used")])
def test_order_in_another_state_is_not_changed(
    boss: Client, method: str, kind: str, status: str
) -> None:
    order = make_order(make_sale(), make_buyer(), status=OrderStatus(status))
    before = rows()
    response = getattr(boss, method)(change_url(order, kind), {"reason": "why not"})
    text = f"warning: Order {order.pk} was not changed: it is {status}."
    assert (said(response), response["Location"]) == ([text], change_url(order))
    assert rows() == before


def test_order_paid_meanwhile_is_not_cancelled(
    boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = make_unpaid_order(make_sale())

    def paid_meanwhile(**kwargs: Any) -> None:
        pay(order)
        end_order(**kwargs)

    monkeypatch.setattr(order_admin, "end_order", paid_meanwhile)
    response = end(boss, order, "cancel")
    assert said(response) == [f"warning: Order {order.pk} was not changed: it is paid."]
    assert not LogEntry.objects.exists()


def test_busy_buyer_is_a_message(
    boss: Client, ledger: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orders.lifecycle.cancellation.USER_LOCK_WAIT_MS", 50)
    order = make_unpaid_order(make_sale())
    assert order.user_id
    key = LedgerKeys(order.seckill_voucher_id).user_lock(order.user_id)
    ledger.set(key, "a worker", px=60_000)
    text = "someone else is changing this buyer's orders right now"
    assert said(end(boss, order, "cancel")) == [
        f"warning: Order {order.pk} was not changed: {text}."
    ]


@pytest.mark.parametrize("order_id", slow_after(1, ["404", "0", "-1", "9" * 30, "x"]))
def test_ending_a_missing_order_is_not_found(boss: Client, order_id: str) -> None:
    response = boss.post(f"{LIST}{order_id}/cancel/", {"reason": "why"})
    assert response.status_code in (302, 404)


def test_ending_orders_needs_view_permission(helper: Client) -> None:
    user = User.objects.get(username="helper")
    user.user_permissions.set(Permission.objects.filter(codename="end_voucherorder"))
    assert end(helper, make_unpaid_order(make_sale()), "cancel").status_code == 403


# --- Bulk jobs -----------------------------------------------------------------------------------


def choose(client: Client, *orders: VoucherOrder, kind: str = "cancel", **more: str) -> Any:
    data = {"action": f"{kind}_selected", "_selected_action": [it.pk for it in orders], **more}
    return client.post(f"{LIST}?status__exact=unpaid" if more else LIST, data)


def hidden(page: str) -> dict[str, str]:
    """Return what the confirmation page sends along."""
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page)
    return {name: value for name, value in found if name != "csrfmiddlewaretoken"}


def confirm(
    client: Client, page: str, kind: str = "cancel", reason: str = "sold by mistake"
) -> Any:
    return client.post(f"{LIST}{kind}/", {**hidden(page), "reason": reason})


@pytest.mark.usefixtures("on_commit")
def test_selected_orders_are_confirmed_and_become_a_job(boss: Client) -> None:
    sale = make_sale()
    first, second, third = (make_unpaid_order(sale) for _ in range(3))
    pay(third)
    before = rows()
    page = choose(boss, first, second, third).text
    assert "2 unpaid orders of the 3 selected will be cancelled." in as_seen(page)
    assert "These selected orders will not change: 1 paid" in as_seen(page)
    assert (rows(), OrderJob.objects.count(), broker_length()) == (before, 0, 0)

    response = confirm(boss, page)

    job = OrderJob.objects.get()
    assert response["Location"] == f"{JOBS}{job.pk}/change/"
    assert (job.kind, job.why, job.total, job.status) == ("cancel", "sold by mistake", 3, "running")
    assert job.actor
    assert job.actor.username == "boss"
    assert broker_length() == 1
    assert rows() == before, "the request itself changes no order"
    while take_turn(job_id=job.pk, now=timezone.now()):
        pass
    assert {status_of(it) for it in (first, second)} == {"cancelled"}
    assert_conserved(sale)


def test_bulk_refund_shows_the_total_amount(boss: Client) -> None:
    sale = make_sale(loaded=False)
    orders = [make_order(sale, it, status=OrderStatus.PAID) for it in make_buyers(3)]
    page = as_seen(choose(boss, *orders, kind="refund").text)
    assert "3 paid orders of the 3 selected will be refunded. ¥240.00 is refunded" in page
    assert "These selected orders will not change" not in page


@pytest.mark.slow
def test_selecting_a_thousand_orders_takes_few_statements(boss: Client) -> None:
    sale = make_sale(loaded=False)
    orders = [make_order(sale, buyer) for buyer in make_buyers(1)]
    more = [it.pk for it in make_buyers(999)]
    VoucherOrder.objects.bulk_create(
        VoucherOrder(
            id=orders[0].pk + 1 + number, user_id=user_id, seckill_voucher=sale, unit=1,
            status="unpaid", price_cents=1, accepted_at=orders[0].accepted_at,
        )
        for number, user_id in enumerate(more)
    )  # fmt: skip
    other = make_order(sale, make_buyer(), status=OrderStatus.PAID)
    boss.get(LIST)
    with CaptureQueriesContext(connection) as chosen:
        page = choose(boss, orders[0], select_across="1").text
    assert "1000 unpaid orders of the 1000 selected will be cancelled." in as_seen(page)
    assert hidden(page).keys() == {"form_key", "order_ids"}, "a thousand fields would be refused"
    with CaptureQueriesContext(connection) as confirmed:
        assert confirm(boss, page).status_code == 302
    # The list itself, the ids, the sums; then the job and its key; session and user each time.
    assert len(chosen) <= 10
    assert len(confirmed) <= 12
    job = OrderJob.objects.get()
    assert (job.total, len(job.order_ids), other.pk in job.order_ids) == (1000, 1000, False)


def test_bulk_job_ignores_later_orders(boss: Client) -> None:
    sale = make_sale(loaded=False)
    first = make_order(sale, make_buyer())
    page = choose(boss, first, select_across="1").text
    make_order(sale, make_buyer())
    confirm(boss, page)
    assert OrderJob.objects.get().order_ids == [first.pk]


def test_job_needs_a_reason(boss: Client) -> None:
    orders = [make_order(make_sale(loaded=False), make_buyer()) for _ in range(2)]
    page = choose(boss, *orders).text
    again = confirm(boss, page, reason=" ")
    assert again.status_code == 200
    assert "errorlist" in again.text
    assert hidden(again.text) == hidden(page)
    assert not OrderJob.objects.exists()


@pytest.mark.parametrize(
    "ids", slow_after(1, ["", "x", "1,,2", "1;2", "-1", "9" * 19, "1," * 30_000 + "1"])
)
def test_forged_order_ids_are_refused(boss: Client, ids: str) -> None:
    data = {"order_ids": ids, "reason": "why"}
    assert boss.post(f"{LIST}cancel/", data).status_code == 400
    assert not OrderJob.objects.exists()


def test_job_size_is_limited(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order_admin, "MAX_ORDERS", 2)
    orders = [make_order(make_sale(loaded=False), make_buyer()) for _ in range(3)]
    response = choose(boss, *orders)
    assert said(response) == [
        "error: At most 2 orders can be changed at once. Narrow down the list."
    ]


def test_empty_selection_is_a_message(boss: Client) -> None:
    order = make_order(make_sale(loaded=False), make_buyer(), status=OrderStatus.PAID)
    response = choose(boss, order, select_across="1")
    assert said(response) == ["error: These orders are no longer in the list."]


def test_opening_the_confirmation_address_redirects_to_the_list(boss: Client) -> None:
    assert boss.get(f"{LIST}cancel/")["Location"] == LIST


# --- The page of a job ---------------------------------------------------------------------------


JOBS = "/admin/orders/orderjob/"


def a_job(ids: list[int], *, worked: bool = True) -> OrderJob:
    actor = User.objects.get_or_create(username="boss")[0]
    job = start_job(
        kind=OrderJob.Kind.CANCEL, order_ids=ids, by=Actor.staff(actor.pk), why="by mistake"
    )
    while worked and take_turn(job_id=job.pk, now=timezone.now()):
        pass
    return job


def page_of_job(client: Client, job: OrderJob, **query: int) -> str:
    response = client.get(f"{JOBS}{job.pk}/change/", query)
    assert response.status_code == 200
    return str(response.text)


def test_running_job_shows_progress_and_reloads(boss: Client) -> None:
    page = page_of_job(boss, a_job(list(range(1, 41)), worked=False))
    assert '<meta http-equiv="refresh" content="2">' in page
    assert '<progress max="40" value="0" aria-hidden="true"></progress> 0 of 40' in page
    assert "None so far." in page


def test_finished_job_page_names_author_and_reason(boss: Client) -> None:
    sale = make_sale()
    order = make_unpaid_order(sale)
    page = page_of_job(boss, a_job([order.pk]))
    assert "http-equiv" not in page
    seen = as_seen(page)
    for words in ("1 of 1", "boss", "by mistake", "done", "Every order was changed."):
        assert words in seen


def test_job_page_lists_refused_orders_with_reasons(boss: Client) -> None:
    sale = make_sale()
    used = make_order(sale, make_buyer(), status=OrderStatus.USED)
    page = page_of_job(boss, a_job([404, used.pk]))
    assert table(page, "not-changed") == [
        ["404", "the order does not exist"],
        [str(used.pk), "it is used"],
    ]
    assert f'href="{change_url(used)}"' in page
    assert "1 × it is used" in as_seen(page)


@pytest.mark.slow
def test_job_refusals_are_paginated(boss: Client) -> None:
    job = a_job(list(range(1, 251)))
    page = page_of_job(boss, job)
    assert "250 × the order does not exist" in as_seen(page)
    assert len(table(page, "not-changed")) == 100
    assert len(table(page_of_job(boss, job, page=3), "not-changed")) == 50
    assert table(page_of_job(boss, job, page=99), "not-changed")[-1][0] == "250"


def test_jobs_are_listed_without_their_ids(boss: Client) -> None:
    a_job([1, 2, 3])
    with CaptureQueriesContext(connection) as queries:
        page = boss.get(JOBS).text
    assert "3 of 3" in page
    assert not [it["sql"] for it in queries if "order_ids" in it["sql"]]


def test_job_without_orders_is_shown(boss: Client) -> None:
    assert '<progress max="1" value="1"' in page_of_job(boss, a_job([]))


def test_jobs_need_end_or_view_permission(helper: Client) -> None:
    job = a_job([1])
    for codename in ("view_orderjob", "end_voucherorder"):
        assert helper.get(f"{JOBS}{job.pk}/change/").status_code == 403
        grant("helper", codename)
        assert helper.get(f"{JOBS}{job.pk}/change/").status_code == 200
        assert helper.get(JOBS).status_code == 200
        User.objects.get(username="helper").user_permissions.clear()


# --- Payments ------------------------------------------------------------------------------------


PAYMENTS = "/admin/orders/payment/"


def payments_found(client: Client, **query: str) -> list[str]:
    response = client.get(PAYMENTS, query)
    assert response.status_code == 200, response
    return sorted(it.reference for it in response.context["cl"].result_list)


@pytest.mark.slow
def test_payments_with_a_problem_are_found_by_one_filter(boss: Client) -> None:
    fine, wrong = (make_payment(make_unpaid_order(make_sale())) for _ in range(2))
    Payment.objects.filter(pk=wrong.pk).update(problem="99 cents arrived instead of 100")
    assert payments_found(boss, problem="yes") == [wrong.reference]
    assert payments_found(boss, problem="no") == [fine.reference]
    assert len(payments_found(boss)) == 2
    page = boss.get(PAYMENTS, {"problem": "yes"}).text
    assert "99 cents arrived instead of 100" in page
    assert f'href="{change_url(wrong.order)}"' in page


def test_payments_are_filtered_by_status(boss: Client) -> None:
    open_one, paid_one = (
        make_payment(make_unpaid_order(make_sale())),
        pay(make_unpaid_order(make_sale())),
    )
    assert payments_found(boss, status__exact="open") == [open_one.reference]
    assert payments_found(boss, status__exact="paid") == [paid_one.reference]


@pytest.mark.parametrize(
    "text", slow_after(1, ["nobody", "9" * 40, "-1", "1.5", "٣", "%", "'", "\0", "é🙂"])
)
def test_any_payment_search_is_answered(boss: Client, text: str) -> None:
    make_payment(make_unpaid_order(make_sale()))
    assert len(payments_found(boss, q=text)) <= 1


def test_payment_search_by_reference_and_order(boss: Client) -> None:
    payment, _ = (make_payment(make_unpaid_order(make_sale())) for _ in range(2))
    for text in (payment.reference, str(payment.order_id)):
        assert payments_found(boss, q=text) == [payment.reference]
    page = as_seen(boss.get(f"{PAYMENTS}{payment.pk}/change/").text)
    assert f"{payment.order_id}" in page
    assert "¥80.00" in page


def test_payments_need_view_permission(helper: Client) -> None:
    payment = make_payment(make_unpaid_order(make_sale()))
    assert helper.get(PAYMENTS).status_code == 403
    # Without the permission the order's page names the payment but has no link.
    page = helper.get(change_url(payment.order)).text
    assert payment.reference in page
    assert PAYMENTS not in page
    grant("helper", "view_payment")
    assert helper.get(PAYMENTS).status_code == 200
    assert PAYMENTS in helper.get(change_url(payment.order)).text


# --- The sum of a sale ---------------------------------------------------------------------------


def sale_with(*, ordered: int = 0, waiting: int = 0, stock: int = 100) -> SeckillVoucher:
    """Return a sale with these numbers of orders and pending entries."""
    sale = make_sale(stock=stock)
    reserved(sale, make_buyers(ordered))
    fulfil_sale(sale_id=sale.pk)
    reserved(sale, make_buyers(waiting))
    return sale


def page_of(sale: SeckillVoucher) -> str:
    return f"{SALES}{sale.pk}/change/"


def as_seen(markup: str) -> str:
    """Return the text as a screen reader has it, with the alternative texts of images."""
    with_words = re.sub(r'<img [^>]*alt="([^"]*)"[^>]*>', r"\1", markup)
    return " ".join(unescape(re.sub(r"<[^>]+>", "", with_words)).split())


def listed_sums(client: Client) -> list[str]:
    cells = re.findall(r'<td [^>]*class="field-sum">(.*?)</td>', client.get(SALES).text, re.DOTALL)
    return [as_seen(cell) for cell in cells]


def sum_of(client: Client, sale: SeckillVoucher) -> str:
    """Return the balance of the only sale, which must be the same in list and page."""
    text = client.get(page_of(sale)).text
    (cell,) = re.findall(r'field-sum.*?<div class="readonly">(.*?)</div>', text, re.DOTALL)
    assert listed_sums(client) == [as_seen(cell)]
    return as_seen(cell)


def test_matching_sum_says_so_and_is_shown_on_demand(boss: Client) -> None:
    sale = sale_with(ordered=3, waiting=2)
    set_aside(sale)  # ended orders do not count
    make_order(sale, make_buyer(), status=OrderStatus.CANCELLED)
    assert sum_of(boss, sale) == "Adds up 100 = 95 + 2 + 3"
    assert '<summary><span class="pill pill--good">Adds up</span></summary>' in boss.get(SALES).text


def test_missing_units_are_marked_as_a_difference(boss: Client, ledger: Redis) -> None:
    sale = sale_with(ordered=3, waiting=2)
    ledger.zpopmin(LedgerKeys(sale.pk).pending)
    assert sum_of(boss, sale) == "Difference +1 100 ≠ 95 + 1 + 3"
    assert "pill--bad" in boss.get(SALES).text


@pytest.mark.parametrize("where", slow_after(1, ["list", "page"]))
def test_orders_written_between_reads_are_in_flight(
    boss: Client, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    sale = sale_with(ordered=3, waiting=2)
    module = sale_list if where == "list" else admin
    look = module.cards

    def then_fulfil(**kwargs: Any) -> Any:
        seen = look(**kwargs)
        fulfil_sale(sale_id=sale.pk)
        return seen

    monkeypatch.setattr(module, "cards", then_fulfil)
    url = SALES if where == "list" else page_of(sale)
    text = boss.get(url).text
    assert "100 = 95 + 2 + 5 − 2" in text
    assert "pill--bad" not in text.split('id="result_list"' if where == "list" else "field-sum")[1]


@pytest.mark.parametrize(
    ("live", "difference", "in_flight"),
    [(3, 0, False), (4, -1, True), (5, -2, True), (6, -3, False), (2, 1, False)],
)
def test_at_most_pending_units_are_in_flight(live: int, difference: int, in_flight: bool) -> None:
    found = SaleSum(total=10, left=5, pending=2, live=live)
    assert (found.difference, found.in_flight) == (difference, in_flight)


def test_unloaded_sale_has_no_sum(boss: Client) -> None:
    assert sum_of(boss, make_sale(loaded=False)) == "– (not ready yet)"


def test_sale_pages_work_without_redis_and_sum(
    boss: Client, lose_ledger: Callable[[], None]
) -> None:
    sale = sale_with(ordered=1)
    lose_ledger()
    assert sum_of(boss, sale) == "– (not ready yet)"


def test_sale_page_explains_its_sum(boss: Client) -> None:
    assert "total = left + queued + orders" in boss.get(page_of(make_sale())).text
    assert "field-sum" not in boss.get(f"{SALES}add/").text


@pytest.mark.slow
def test_sum_query_count_ignores_number_of_sales(boss: Client) -> None:
    def cost(more: int) -> tuple[int, int]:
        for _ in range(more):
            sale_with(ordered=1, waiting=1)
        boss.get(SALES)
        with CaptureQueriesContext(connection) as queries, redis_commands() as commands:
            assert set(listed_sums(boss)) == {"Adds up 100 = 98 + 1 + 1"}
        return len(queries), len(commands.ledger)

    (queries, commands), (queries_30, commands_30) = cost(3), cost(27)
    assert queries == queries_30
    # All in one pipeline, as in ``tests/vouchers/admin/test_sale.py``: a call for each sale.
    assert (commands, commands_30) == (3, 30)


def test_sale_page_reads_redis_once(boss: Client) -> None:
    sale = sale_with(ordered=1)
    boss.get(page_of(sale))
    with redis_commands() as commands:
        boss.get(page_of(sale))
    # For all figures. A sale with orders is not deleted, whatever Redis says.
    assert len(commands.ledger) == 1


# --- Reconciling by hand -------------------------------------------------------------------------


def reconcile(client: Client, *sales: SeckillVoucher) -> Any:
    chosen = [sale.pk for sale in sales]
    return client.post(SALES, {"action": "reconcile", "_selected_action": chosen})


def test_each_reconciled_sale_is_reported(boss: Client, ledger: Redis) -> None:
    good, bad, lost = sale_with(ordered=1), sale_with(waiting=3), make_sale(loaded=False)
    ledger.zpopmin(LedgerKeys(bad.pk).pending, 2)
    assert sorted(said(reconcile(boss, good, bad, lost))) == sorted(
        [
            f"success: {good}: adds up.",
            f"warning: {bad}: was off by 2 and has been repaired.",
            f"success: {lost}: was not ready. It is ready now and adds up.",
        ]
    )
    assert len(pending_ids(bad)) == 3
    assert snapshot(sale_id=lost.pk).remaining == lost.stock
    assert said(reconcile(boss, bad))[-1] == f"success: {bad}: adds up."


def test_actions_without_redis_are_a_message(boss: Client, lose_ledger: Callable[[], None]) -> None:
    sale = make_sale()
    refused, unpaid = set_aside(sale), make_unpaid_order(sale)
    before = rows()
    lose_ledger()
    for response in (reconcile(boss, sale), try_again(boss, refused), end(boss, unpaid, "cancel")):
        assert said(response)[-1] == f"error: {NO_ANSWER}"
    assert rows() == before


def test_remaining_difference_is_reported(
    boss: Client, ledger: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = sale_with(waiting=3)
    ledger.zpopmin(LedgerKeys(sale.pk).pending, 2)
    monkeypatch.setattr(reconciling, "make_pending", lambda **kwargs: None)
    assert said(reconcile(boss, sale)) == [f"error: {sale}: still off by 2."]


def test_deleted_sale_does_not_stop_reconciling_others(
    boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, sale = make_sale(begins_in_s=-30), make_sale()
    compare = reconciling.reconcile

    def deleted(**kwargs: Any) -> Any:
        SeckillVoucher.objects.filter(pk=gone.pk).delete()
        return compare(**kwargs)

    monkeypatch.setattr(admin, "reconcile", deleted)
    assert said(reconcile(boss, gone, sale)) == [f"success: {sale}: adds up."]
