"""A draw over HTTP: entering, the receipt, withdrawing, and the public page with its record."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from orders.draws.drawing import close_list, take_due_steps
from orders.draws.entries import store_entries
from orders.draws.record import DrawRecord, verify
from orders.draws.rules import commitment_of
from orders.fulfilment.worker import fulfil_sale
from orders.models import DrawEntry
from orders.placing.tokens import PurchaseToken, read_token
from seckill_site.clocks.ledger import ledger_now_ms
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.asgi import ask
from tests.support.draws import (
    draw_to_the_end,
    end,
    entered,
    entered_draw,
    in_redis,
    listed,
    make_draw,
)
from tests.support.inspection import assert_refused, live_ids
from tests.support.orders import make_buyer, make_buyers, make_sale, receipt_path, token_for
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.sale_state import snapshot
from vouchers.models import Draw, SaleStage, SeckillVoucher

pytestmark = pytest.mark.django_db

HTML = {"Accept": "text/html"}


def receipt_of(token: PurchaseToken) -> Any:
    """Return the receipt by the token and by the session: they agree."""
    owner = Client()
    owner.force_login(User.objects.get(pk=token.user_id))
    by_session = owner.get(receipt_path(token)).json()
    by_token = Client().get(receipt_path(token), headers={"Purchase-Token": token.sign()}).json()
    for name in ("status", "reason"):
        assert by_session[name] == by_token[name]
    return by_token


def place(token: PurchaseToken) -> Any:
    path = f"/vouchers/{token.sale_id}/orders/"
    return Client().post(path, {"token": token.sign()}, content_type="application/json")


# --- Entering -------------------------------------------------------------------------------------


def test_entry_is_answered_like_an_order(shopper: Client, buyer: User) -> None:
    sale, other = make_draw(), make_sale()
    mine = shopper.get(f"/me/?sale={sale.pk}").json()["sale"]
    token = read_token(mine["token"], sale_id=sale.pk, now_ms=ledger_now_ms())
    answer = place(token)
    assert answer.status_code == 202
    assert answer.json() == {
        **place(token_for(other, buyer)).json(),
        "order_id": str(token.order_id),
        "purchase": str(token.order_id),
        "status_url": receipt_path(token),
    }
    assert in_redis(sale) == [token.order_id]


def test_front_door_takes_entries(buyer: User) -> None:
    sale = make_draw()
    token = token_for(sale, buyer)
    path = f"/vouchers/{sale.pk}/orders/"
    assert ask("POST", path, {"token": token.sign()}).status == 202
    assert ask("POST", path, {"token": token.sign()}).status == 202
    second = ask("POST", path, {"token": token_for(sale, buyer).sign()})
    assert (second.status, json.loads(second.body)["order_id"]) == (409, str(token.order_id))
    found = ask("GET", receipt_path(token), HTTP_PURCHASE_TOKEN=token.sign())
    assert json.loads(found.body)["status"] == "entered"


def test_token_of_another_mode_is_refused(buyer: User) -> None:
    token = token_for(make_draw(), buyer)
    assert_refused(place(token._replace(enters=0)), status=403, code="bad_token")
    assert_refused(
        place(token_for(make_sale(), buyer)._replace(enters=1)), status=403, code="bad_token"
    )


def test_me_shows_the_entry(shopper: Client, buyer: User) -> None:
    sale, [token] = entered_draw([buyer])
    mine = shopper.get(f"/me/?sale={sale.pk}").json()["sale"]
    assert (mine["own_state"], mine["may_buy"]) == ("entered", False)
    assert (mine["order_id"], mine["status_url"]) == (str(token.order_id), receipt_path(token))


def test_me_shows_a_winner_the_order_and_who_waits_the_entry(client: Client) -> None:
    sale, buyers = make_draw(stock=1, draw_wait_s=3_600), make_buyers(3)
    tokens = entered(sale, buyers)
    end(sale)
    draw_to_the_end(sale)
    for buyer, token in zip(buyers, tokens, strict=True):
        client.force_login(buyer)
        mine = client.get(f"/me/?sale={sale.pk}").json()["sale"]
        assert mine["order_id"] == str(token.order_id)
        assert mine["own_state"] == ("yours" if token.order_id in live_ids(sale) else "entered")


def test_live_says_that_it_is_a_draw(client: Client) -> None:
    sale, _ = entered_draw(make_buyers(2), stock=3)
    found = client.get(f"/vouchers/{sale.pk}/live/").json()
    assert (found["state"], found["mode"], found["entries"]) == ("open", "draw", 2)
    assert "mode" not in client.get(f"/vouchers/{make_sale().pk}/live/").json()


def test_form_page_enters_without_a_script(shopper: Client) -> None:
    sale = make_draw()
    page = shopper.get(f"/vouchers/{sale.pk}/form/", headers={**HTML, "Accept-Language": "zh-hans"})
    assert "参加抽签" in page.text
    assert commitment_of(Draw.of(sale).seed) in page.text
    token = page.text.split('name="token" value="')[1].split('"')[0]
    answer = shopper.post(f"/vouchers/{sale.pk}/orders/", {"token": token}, headers=HTML)
    assert answer.status_code == 303
    page = shopper.get(answer["Location"], headers={**HTML, "Accept-Language": "zh-hans"})
    assert "已参加抽签" in page.text
    assert "撤回报名" in page.text


# --- The receipt ----------------------------------------------------------------------------------


def test_receipt_follows_a_draw() -> None:
    sale, tokens = entered_draw(make_buyers(2), stock=1)
    assert [receipt_of(it)["status"] for it in tokens] == ["entered", "entered"]
    store_entries(sale_id=sale.pk)
    end(sale)
    close_list(sale_id=sale.pk)
    assert [receipt_of(it)["status"] for it in tokens] == ["entered", "entered"]
    take_due_steps(sale_id=sale.pk)
    found = [receipt_of(it) for it in tokens]
    assert {(it["status"], it["reason"]) for it in found} == {
        ("queued", ""),
        ("refused", "not_drawn"),
    }
    fulfil_sale(sale_id=sale.pk)
    assert {receipt_of(it)["status"] for it in tokens} == {"unpaid", "refused"}


def test_receipt_of_one_who_waits_says_so() -> None:
    sale, tokens = entered_draw(make_buyers(2), stock=1, draw_wait_s=3_600)
    end(sale)
    draw_to_the_end(sale)
    assert {receipt_of(it)["status"] for it in tokens} == {"unpaid", "waiting"}


def test_receipt_is_polled_again_after_the_end() -> None:
    _, [token] = entered_draw([make_buyer()], ends_in_s=20)
    receipt = receipt_of(token)
    left_ms = receipt["entered_until_ms"] - receipt["server_time_ms"]
    assert left_ms < receipt["poll_after_ms"] <= left_ms + 7_000


def test_entry_lost_with_redis_is_told_so() -> None:
    sale, [token] = entered_draw([make_buyer()])
    store_entries(sale_id=sale.pk)
    DrawEntry.objects.all().delete()
    ledger_connection().unlink(*LedgerKeys(sale.pk).movable)
    headers = {"Purchase-Token": token.sign()}
    found = Client().get(receipt_path(token), headers=headers)
    assert found.status_code in (200, 404)  # 404: minted within the tolerance of a new ledger
    assert place(token).status_code == 202
    assert receipt_of(token)["status"] == "entered"


def test_receipt_is_for_its_owner_only(shopper: Client) -> None:
    sale, [token] = entered_draw([make_buyer()])
    store_entries(sale_id=sale.pk)
    assert_refused(shopper.get(receipt_path(token)), status=404, code="not_found")


# --- Withdrawing ----------------------------------------------------------------------------------


def test_buyer_withdraws_and_enters_again(shopper: Client, buyer: User) -> None:
    sale, [token] = entered_draw([buyer])
    answer = shopper.post(receipt_path(token) + "withdraw/")
    assert (answer.json()["status"], answer.json()["reason"]) == ("refused", "withdrawn")
    assert receipt_of(token)["reason"] == "withdrawn"
    assert place(token).status_code == 202  # any id ever accepted
    again = token_for(sale, buyer)
    assert place(again).status_code == 202
    assert in_redis(sale) == [again.order_id]


def test_withdrawing_needs_owner_and_open_entries(shopper: Client, buyer: User) -> None:
    sale, [mine, other] = entered_draw([buyer, make_buyer()])
    path = receipt_path(mine) + "withdraw/"
    assert_refused(Client().post(path), status=401, code="login_required")
    other_path = receipt_path(other) + "withdraw/"
    assert_refused(shopper.post(other_path), status=404, code="not_found")
    end(sale)
    assert_refused(shopper.post(path), status=409, code="ended")
    assert_refused(shopper.get(path), status=405, code="invalid")


def test_withdrawing_in_an_ordinary_sale_finds_nothing(shopper: Client) -> None:
    sale = make_sale()
    path = f"/vouchers/{sale.pk}/orders/77/withdraw/"
    assert_refused(shopper.post(path), status=404, code="not_found")
    assert snapshot(sale_id=sale.pk).epoch == 1  # its ledger is still the same
    assert_refused(shopper.post("/vouchers/999/orders/77/withdraw/"), status=404, code="not_found")


def test_my_orders_lists_entries(shopper: Client, buyer: User) -> None:
    sale, [token] = entered_draw([buyer])
    store_entries(sale_id=sale.pk)
    found = shopper.get("/orders/").json()["entries"]
    assert [(it["order_id"], it["status"]) for it in found] == [(str(token.order_id), "entered")]
    assert receipt_path(token) in shopper.get("/orders/", headers=HTML).text
    end(sale)
    draw_to_the_end(sale)
    content = shopper.get("/orders/").json()
    assert (content["entries"], len(content["orders"])) == ([], 1)


# --- What anybody may see -------------------------------------------------------------------------


def test_seed_is_shown_only_after_the_draw(client: Client) -> None:
    sale, _ = entered_draw(make_buyers(3))
    path, seed = f"/vouchers/{sale.pk}/draw/", Draw.of(sale).seed
    before = client.get(path).json()
    assert before["commitment"] == commitment_of(seed)
    assert (before["seed"], before["entries"], before["record_url"]) == ("", 3, None)
    end(sale)
    close_list(sale_id=sale.pk)
    closed = client.get(path).json()
    assert (closed["seed"], len(closed["digest"])) == ("", 64)
    assert f"# seed: {seed}" not in client.get(closed["record_url"]).text
    for page in (path, f"/vouchers/{sale.pk}/", f"/vouchers/{sale.pk}/form/"):
        assert seed not in client.get(page, headers=HTML).text
    draw_to_the_end(sale)
    assert client.get(path).json()["seed"] == seed
    assert seed in client.get(path, headers=HTML).text


def test_staff_do_not_see_the_seed(admin_client: Client) -> None:
    sale, _ = entered_draw(make_buyers(2))
    seed = Draw.of(sale).seed
    base = f"/admin/vouchers/seckillvoucher/{sale.pk}/"
    for page in ("change/", "board/", "history/", "report/"):
        answer = admin_client.get(base + page)
        assert answer.status_code == 200
        assert seed not in answer.text
    assert seed not in admin_client.get(base + "delete/").text  # refused: it has entries


def test_record_can_be_verified_and_has_no_names(client: Client) -> None:
    sale, buyers = make_draw(stock=2), make_buyers(5)
    entered(sale, buyers)
    path = f"/vouchers/{sale.pk}/draw/record.txt"
    assert_refused(client.get(path), status=404, code="not_found")
    end(sale)
    draw_to_the_end(sale)
    answer = client.get(path)
    assert answer["Content-Type"] == "text/plain; charset=us-ascii"
    record = DrawRecord.parse(answer.text)
    verify(record)
    assert sorted(record.winners) == live_ids(sale)
    assert sorted(record.entry_ids) == listed(sale)
    assert not any(buyer.username in answer.text for buyer in buyers)


def test_record_is_made_and_compressed_once(
    client: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    sale = make_draw(stock=2)
    entered(sale, make_buyers(50))
    end(sale)
    draw_to_the_end(sale)
    path = f"/vouchers/{sale.pk}/draw/record.txt"
    plain = client.get(path)

    with django_assert_num_queries(2):  # the sale and its draw
        small = client.get(path, headers={"Accept-Encoding": "br, gzip"})

    assert small["Content-Encoding"] == "gzip"
    assert gzip.decompress(small.content) == plain.content
    assert int(small["Content-Length"]) == len(small.content)
    assert "Accept-Encoding" in plain["Vary"]
    known = client.get(path, headers={"If-None-Match": small["ETag"]})
    assert (known.status_code, known.content, known["ETag"]) == (304, b"", plain["ETag"])


def test_record_is_another_once_it_is_drawn(client: Client) -> None:
    sale = make_draw(stock=2)
    entered(sale, make_buyers(5))
    end(sale)
    close_list(sale_id=sale.pk)
    path = f"/vouchers/{sale.pk}/draw/record.txt"
    closed = client.get(path)
    draw_to_the_end(sale)
    drawn = client.get(path, headers={"If-None-Match": closed["ETag"]})
    assert (closed.status_code, drawn.status_code) == (200, 200)
    assert sorted(closed.text.splitlines()[6:]) == sorted(drawn.text.splitlines()[6:])


def test_draw_page_is_the_same_for_everybody(shopper: Client, buyer: User) -> None:
    sale, _ = entered_draw([buyer])
    end(sale)
    draw_to_the_end(sale)
    path = f"/vouchers/{sale.pk}/draw/"
    page = shopper.get(path, headers=HTML)
    assert page.status_code == 200
    assert page.content == Client().get(path, headers=HTML).content
    assert buyer.username not in page.text
    assert not page.cookies


@pytest.mark.parametrize("page", ["draw/", "draw/record.txt"])
def test_other_sales_have_no_draw_page(client: Client, page: str) -> None:
    draft = make_draw(stage=SaleStage.DRAFT)
    for sale_id in (make_sale().pk, draft.pk, 999_999):
        answer = client.get(f"/vouchers/{sale_id}/{page}")
        assert_refused(answer, status=404, code="not_found")


def test_draw_page_is_shown_without_redis(client: Client, redis_gone: Any) -> None:
    sale = make_draw()
    with redis_gone():
        answer = client.get(f"/vouchers/{sale.pk}/draw/", headers=HTML)
    assert answer.status_code == 200
    assert SeckillVoucher.objects.get(pk=sale.pk).is_draw
