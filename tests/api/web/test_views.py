"""Sales, orders and redeeming over the API."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.core import mail
from django.utils import timezone

from api.web import views
from orders.lifecycle.notifications import tell_buyers
from orders.lifecycle.personal_data import data_of
from orders.lifecycle.redemption import GUESSES, undo, written_code
from orders.lifecycle.transitions import Actor
from orders.models import OrderEvent, OrderStatus, VoucherOrder
from seckill_site.clocks.machine import epoch_ms
from tests.fixtures.site import RedisGone
from tests.support.api import ask, make_member, make_token
from tests.support.inspection import rows
from tests.support.orders import make_buyer
from tests.support.orders import make_sale as make_open_sale
from tests.support.payments import make_unpaid_order, pay
from tests.support.sales import make_loaded_sale, make_order, make_sale
from tests.support.tiers import slow_after
from tests.support.wsgi import Answer
from vouchers.models import Merchant, SaleStage, Voucher

pytestmark = pytest.mark.django_db

FIRST_ID = 1 << 32
REDEEM = "/api/v1/redeem/"


@pytest.fixture
def token() -> str:
    return make_token()[1]


@pytest.fixture
def voucher() -> VoucherOrder:
    """A paid order with its code."""
    order = make_unpaid_order(make_open_sale())
    pay(order)
    order.refresh_from_db()
    assert order.code
    return order


def get(path: str, token: str, status: int = 200) -> Any:
    answer = ask("GET", f"/api/v1/{path}", token=token)
    assert answer.status == status, answer.body
    return answer.json


def use(voucher: VoucherOrder, token: str, *, key: str = "", **fields: Any) -> Answer:
    headers = {"HTTP_IDEMPOTENCY_KEY": key} if key else {}
    content = {"code": written_code(voucher.code or ""), **fields}
    return ask("POST", REDEEM, content, token=token, **headers)


# --- Sales ----------------------------------------------------------------------------------------


def test_sale_has_its_live_figures(token: str) -> None:
    sale = make_loaded_sale(stock=5)

    found = get(f"sales/{sale.pk}/", token)

    assert (found["voucher_id"], found["state"]) == (str(sale.pk), "open")
    assert (found["total"], found["remaining"], found["pending"]) == (5, 5, 0)
    assert get("sales/", token) == {"sales": [found], "next": None}


def test_sale_without_ledger_has_no_live_figures(token: str, redis_gone: RedisGone) -> None:
    sale = make_loaded_sale(stock=5)
    with redis_gone():
        found = get(f"sales/{sale.pk}/", token)
    assert (found["total"], found["remaining"], found["pending"]) == (5, None, None)


def test_drafts_are_listed_and_rehearsals_are_not(token: str) -> None:
    draft = make_sale(stage=SaleStage.DRAFT)
    rehearsal = make_sale(stage=SaleStage.REHEARSAL)

    assert [it["voucher_id"] for it in get("sales/", token)["sales"]] == [str(draft.pk)]
    assert get("sales/?stage=public", token)["sales"] == []
    assert get(f"sales/{rehearsal.pk}/", token, 404)["code"] == "not_found"


def test_pages_of_sales_meet_without_gap(token: str) -> None:
    ids = [str(make_sale().pk) for _ in range(5)]
    seen, after = [], ""
    while True:
        page = get(f"sales/?limit=2{after}", token)
        seen += [it["voucher_id"] for it in page["sales"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert seen == ids[::-1]


# --- Orders ---------------------------------------------------------------------------------------


def test_pages_of_orders_meet_while_others_arrive(token: str) -> None:
    sale = make_sale(stock=20)
    for number in range(4):
        make_order(sale, make_buyer(), order_id=FIRST_ID + number)

    first = get("orders/?limit=2", token)
    make_order(sale, make_buyer(), order_id=FIRST_ID + 9)
    second = get(f"orders/?limit=2&after={first['next']}", token)

    seen = [it["order_id"] for it in first["orders"] + second["orders"]]
    assert seen == [str(FIRST_ID + number) for number in (3, 2, 1, 0)]
    assert second["next"] is None


def test_orders_are_filtered_by_sale_status_and_time(token: str) -> None:
    sale, other = make_sale(), make_sale()
    now = timezone.now()
    long_ago = now - dt.timedelta(days=2)
    make_order(sale, make_buyer(), order_id=FIRST_ID, accepted_at=long_ago)
    make_order(sale, make_buyer(), order_id=FIRST_ID + 1, status=OrderStatus.PAID)
    make_order(other, make_buyer(), order_id=FIRST_ID + 2)

    def found(query: str) -> set[int]:
        return {int(it["order_id"]) - FIRST_ID for it in get(f"orders/?{query}", token)["orders"]}

    day_ago = epoch_ms(now - dt.timedelta(days=1))
    assert found(f"voucher_id={sale.pk}") == {0, 1}
    assert found("status=unpaid") == {0, 2}
    assert found(f"from_ms={day_ago}") == {1, 2}
    assert found(f"until_ms={day_ago}") == {0}
    assert found(f"voucher_id={sale.pk}&status=unpaid&from_ms={day_ago}") == set()


def test_order_shows_history_but_no_code(token: str, voucher: VoucherOrder) -> None:
    found = get(f"orders/{voucher.pk}/", token)

    assert (found["order_id"], found["status"]) == (str(voucher.pk), "paid")
    assert [it["status"] for it in found["history"]] == ["unpaid", "paid"]
    assert (voucher.code or "-") not in str(found)
    assert written_code(voucher.code or "") not in str(found)


def test_orders_of_rehearsals_are_hidden(token: str) -> None:
    sale = make_sale(stage=SaleStage.REHEARSAL)
    make_order(sale, make_buyer(), order_id=FIRST_ID)

    assert get("orders/", token)["orders"] == []
    assert get(f"orders/{FIRST_ID}/", token, 404)["code"] == "not_found"


@pytest.mark.parametrize(
    "query",
    slow_after(
        1,
        [
            *("limit=0", "limit=201", "limit=x", "limit=2&limit=3", "after=-1", "voucher_id="),
            *("after=99999999999999999999", "status=gone", "from_ms=1e5", "color=red"),
            "until_ms=9999999999999999999",
        ],
    ),
)
def test_unfit_query_is_refused(token: str, query: str) -> None:
    assert get(f"orders/?{query}", token, 400)["code"] == "invalid"


# --- Redeeming ------------------------------------------------------------------------------------


def test_code_is_redeemed_once_by_its_member(voucher: VoucherOrder) -> None:
    row, text = make_token()

    answer = use(voucher, text)

    assert (answer.status, answer.json["verdict"]) == (200, "redeemed")
    assert answer.json["order_id"] == str(voucher.pk)
    voucher.refresh_from_db()
    assert voucher.status == OrderStatus.USED
    event = OrderEvent.objects.filter(order=voucher).latest("pk")
    assert (event.after, event.actor_id) == ("used", row.owner_id)
    assert row.prefix in event.reason


@pytest.mark.parametrize("is_old", slow_after(1, [False, True]))
def test_key_and_token_are_not_for_the_buyer(voucher: VoucherOrder, is_old: bool) -> None:
    row, text = make_token()
    EmailAddress.objects.create(user=voucher.user, email="a@b.example", verified=True)
    OrderEvent.objects.update(notified_at=timezone.now())
    use(voucher, text, key="till-3-000815")
    event = OrderEvent.objects.filter(order=voucher).latest("pk")
    if is_old:  # a row of an earlier release
        event.reason, event.values = f"{event.reason} till-3-000815", None
        event.save()

    tell_buyers(now=timezone.now())
    assert voucher.user
    seen = [str(data_of(voucher.user)), str(mail.outbox[0].body), event.text]

    assert all(it not in text for text in seen for it in ("till-3-000815", row.prefix))
    assert use(voucher, text, key="till-3-000815").json["verdict"] == "repeated"
    assert use(voucher, text, key="till-3-000816").json["verdict"] == "used_before"


@pytest.mark.parametrize("keys", [("", ""), ("k1", "k1")])
def test_repeat_says_so_instead_of_failing(
    voucher: VoucherOrder, token: str, keys: tuple[str, str]
) -> None:
    first, second = (use(voucher, token, key=key) for key in keys)

    assert (first.json["verdict"], second.json["verdict"]) == ("redeemed", "repeated")
    assert second.status == 200
    assert second.json["used_at_ms"] == first.json["used_at_ms"]
    assert OrderEvent.objects.filter(order=voucher, after="used").count() == 1


def test_repeat_with_the_key_after_a_token_was_replaced(voucher: VoucherOrder) -> None:
    owner = make_member()
    old, new = (make_token(owner=owner)[1] for _ in range(2))

    assert use(voucher, old, key="k1").json["verdict"] == "redeemed"
    assert use(voucher, new, key="k1").json["verdict"] == "repeated"


@pytest.mark.parametrize("keys", [("k1", "k2"), ("", "k1")])
def test_second_use_with_another_key_is_refused(
    voucher: VoucherOrder, token: str, keys: tuple[str, str]
) -> None:
    """Two guests with copies of one voucher are two requests with two keys."""
    first, second = (use(voucher, token, key=key) for key in keys)

    assert first.status == 200
    assert (second.status, second.json["verdict"]) == (409, "used_before")


@pytest.mark.slow
def test_second_use_by_another_member_is_refused(voucher: VoucherOrder, token: str) -> None:
    use(voucher, token, key="k1")

    for key in ("", "k1"):
        answer = use(voucher, make_token()[1], key=key)
        assert (answer.status, answer.json["verdict"]) == (409, "used_before")


@pytest.mark.slow
def test_key_whose_use_was_undone_is_refused(voucher: VoucherOrder, token: str) -> None:
    use(voucher, token, key="k1")
    event = OrderEvent.objects.get(order=voucher, after="used")
    by = Actor.staff(event.actor_id)
    undo(event_id=event.pk, by=by, now=timezone.now())

    answer = use(voucher, token, key="k1")
    assert (answer.status, answer.json["verdict"]) == (409, "undone")
    assert answer.json["status"] == "paid"
    assert use(voucher, token, key="k2").json["verdict"] == "redeemed"
    history = get(f"orders/{voucher.pk}/", token)["history"]
    steps = [(it["before"], it["status"]) for it in history[-3:]]
    assert steps == [("paid", "used"), ("used", "paid"), ("paid", "used")]


@pytest.mark.parametrize("is_check", slow_after(1, [False, True]))
def test_bound_token_is_told_the_other_merchant_alone(
    voucher: VoucherOrder, is_check: bool
) -> None:
    ours, theirs = (Merchant.objects.create(name=it) for it in ("Ours", "Theirs"))
    Voucher.objects.filter(sales=voucher.seckill_voucher_id).update(merchant=theirs)
    before = rows()

    answer = use(voucher, make_token(merchants=[ours])[1], check=is_check)

    assert answer.status == 403
    assert "Theirs" in answer.json["message"]
    assert answer.json == {
        "code": "no_permission",
        "message": answer.json["message"],
        "verdict": "other_merchant",
        "merchant": "Theirs",
    }
    assert rows() == before
    assert use(voucher, make_token(merchants=[ours, theirs])[1]).json["verdict"] == "redeemed"


def test_check_changes_nothing(voucher: VoucherOrder, token: str) -> None:
    assert use(voucher, token, check=True).json["verdict"] == "valid"
    voucher.refresh_from_db()
    assert voucher.status == OrderStatus.PAID

    use(voucher, token)
    answer = use(voucher, token, check=True)
    assert (answer.status, answer.json["verdict"]) == (409, "used_before")


def test_refunded_voucher_is_not_valid(voucher: VoucherOrder, token: str) -> None:
    VoucherOrder.objects.filter(pk=voucher.pk).update(status=OrderStatus.REFUNDING)

    answer = use(voucher, token)

    assert (answer.status, answer.json["verdict"]) == (409, "not_valid")
    assert answer.json["code"] == "wrong_state"


def test_voucher_past_its_last_day_is_for_the_counter(voucher: VoucherOrder, token: str) -> None:
    details = Voucher.objects.filter(pk=voucher.seckill_voucher.voucher_id)
    details.update(valid_until=dt.date(2020, 1, 1))

    for is_check in (False, True):
        answer = use(voucher, token, check=is_check)
        assert (answer.status, answer.json["verdict"]) == (409, "expired")
    voucher.refresh_from_db()
    assert voucher.status == OrderStatus.PAID


@pytest.mark.slow
def test_wrong_codes_share_the_limit_of_the_counter(
    token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "GUESSES", GUESSES._replace(window_s=10**10))
    fields = {"code": "0000-0000-0000-0000"}
    for _ in range(GUESSES.most):
        assert ask("POST", REDEEM, fields, token=token).status == 404
    answer = ask("POST", REDEEM, fields, token=token)
    assert (answer.status, answer.json["code"]) == (429, "rate_limited")
    assert int(answer.headers["retry-after"]) > 0


@pytest.mark.parametrize(
    ("body", "status"),
    slow_after(
        2,
        [
            *((b"", 415), (b"[]", 400), (b"{", 400), (b"{}", 400), (b'{"code": 5}', 400)),
            *((b'{"code": ""}', 400), (b'{"code": "x", "check": 1}', 400)),
            (b'{"code":"' + b"x" * 9000, 413),
        ],
    ),
)
def test_unfit_body_is_refused(token: str, body: bytes, status: int) -> None:
    answer = ask("POST", REDEEM, token=token, body=body)
    assert (answer.status, answer.json["code"]) == (status, "invalid")


@pytest.mark.parametrize("key", slow_after(1, ["a b", "x" * 65, "é"]))
def test_unfit_key_is_refused(voucher: VoucherOrder, token: str, key: str) -> None:
    assert use(voucher, token, key=key).status == 400


def test_code_in_the_address_is_refused(token: str) -> None:
    answer = ask("POST", f"{REDEEM}?code=x", {"code": "x"}, token=token)
    assert answer.status == 400
