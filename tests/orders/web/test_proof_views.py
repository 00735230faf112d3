"""The chain over HTTP: its page, the list and its parts, the receipt, the sale's page, the mail."""

from __future__ import annotations

import gzip
import re

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from orders.models import VoucherOrder
from orders.proof.chain_list import ChainList
from orders.proof.publishing import PART_SIZE
from tests.support.draws import end, make_draw
from tests.support.inspection import assert_refused
from tests.support.orders import make_buyers, make_sale, receipt_path, reserved, written_orders
from tests.support.tiers import slow_after
from vouchers.models import SaleStage, SeckillVoucher

pytestmark = pytest.mark.django_db

HTML = {"Accept": "text/html"}


def sold(buyers: list[User]) -> SeckillVoucher:
    sale = make_sale(stock=len(buyers))
    written_orders(sale, buyers)
    sale.refresh_from_db()
    return sale


def path_of(sale: SeckillVoucher, page: str = "") -> str:
    return f"/vouchers/{sale.pk}/chain/{page}"


# --- The page and the list ------------------------------------------------------------------------


def test_page_shows_the_head_while_the_sale_runs(client: Client) -> None:
    sale = sold(make_buyers(3))
    found = client.get(path_of(sale)).json()
    assert (found["head"], found["entries"], found["given_by_staff"]) == (sale.chain_head, 3, 0)
    assert found["list_url"] is None
    assert sale.chain_head in client.get(path_of(sale), headers=HTML).text
    for file in ("list.txt", "part-1.txt"):
        assert_refused(client.get(path_of(sale, file)), status=404, code="not_found")


def test_list_can_be_verified_and_has_no_names(client: Client) -> None:
    buyers = make_buyers(4)
    sale = sold(buyers)
    end(sale)
    url = client.get(path_of(sale)).json()["list_url"]
    answer = client.get(url)
    assert answer["Content-Type"] == "text/plain; charset=us-ascii"
    chain = ChainList.parse(answer.text)
    assert not list(chain.problems(old_heads=[sale.chain_head]))
    ids = VoucherOrder.objects.filter(seckill_voucher=sale).values_list("pk", flat=True)
    assert {int(it) for it in re.findall(r"^(\d+) \d+", answer.text, re.M)} == set(ids)
    assert not any(buyer.username in answer.text for buyer in buyers)


def test_list_is_made_and_compressed_once(
    client: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    sale = sold(make_buyers(30))
    end(sale)
    plain = client.get(path_of(sale, "list.txt"))

    with django_assert_num_queries(1):  # the sale
        small = client.get(path_of(sale, "list.txt"), headers={"Accept-Encoding": "br, gzip"})

    assert small["Content-Encoding"] == "gzip"
    assert gzip.decompress(small.content) == plain.content
    known = client.get(path_of(sale, "list.txt"), headers={"If-None-Match": small["ETag"]})
    assert (known.status_code, known.content, known["ETag"]) == (304, b"", plain["ETag"])


def test_list_is_another_once_the_chain_has_grown(client: Client) -> None:
    sale, late = make_sale(), make_buyers(2)
    written_orders(sale, late[:1])
    reserved(sale, late[1:])
    end(sale)
    first = client.get(path_of(sale, "list.txt"))
    written_orders(sale, [])
    second = client.get(path_of(sale, "list.txt"), headers={"If-None-Match": first["ETag"]})
    assert second.status_code == 200
    assert second.text.startswith(first.text.partition("# entries")[0])
    assert ChainList.parse(second.text).entries == 2


def test_part_of_a_list_is_small_and_verifies_alone(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orders.proof.publishing.PART_SIZE", 5)
    sale = make_sale(stock=12)
    for _ in range(4):
        written_orders(sale, make_buyers(3))
    end(sale)
    for number, positions in enumerate([(1, 6), (4, 12), (10, 12)], start=1):
        part = ChainList.parse(client.get(path_of(sale, f"part-{number}.txt")).text)
        assert not list(part.problems())
        assert (part.first, part.first + part.entries - 1) == positions
    assert_refused(client.get(path_of(sale, "part-4.txt")), status=404, code="not_found")


def test_largest_usual_part_is_below_100_kb() -> None:
    order, head = len("9" * 19 + " 1790000000123 refused\n"), len("= \n") + 64
    assert (3 * PART_SIZE - 2) * order + 4 * head < 100_000  # batches of 500 on both sides
    assert PART_SIZE * (order + head) < 100_000  # each order in a batch of its own


@pytest.mark.parametrize("page", slow_after(1, ["", "list.txt", "part-1.txt"]))
def test_other_sales_have_no_chain(client: Client, page: str) -> None:
    draft = make_sale(stage=SaleStage.DRAFT)
    for sale in (make_draw(), draft, SeckillVoucher(pk=999_999)):
        assert_refused(client.get(path_of(sale, page)), status=404, code="not_found")


def test_page_is_the_same_for_everybody(shopper: Client, buyer: User) -> None:
    sale = sold([buyer])
    page = shopper.get(path_of(sale), headers=HTML)
    assert page.content == Client().get(path_of(sale), headers=HTML).content
    assert buyer.username not in page.text


# --- What a buyer keeps ---------------------------------------------------------------------------


def test_receipt_shows_position_and_head_once_the_row_exists(shopper: Client, buyer: User) -> None:
    sale = make_sale()
    written_orders(sale, make_buyers(2))
    [token] = reserved(sale, [buyer])
    assert 'id="evidence"' not in shopper.get(receipt_path(token), headers=HTML).text
    written_orders(sale, make_buyers(1))  # with the pending one, in a batch
    written_orders(sale, make_buyers(1))
    page = shopper.get(receipt_path(token), headers=HTML).text
    order = VoucherOrder.objects.get(pk=token.order_id)
    links = sale.links.filter(last__gte=order.position or 0).order_by("number")
    assert f'data-position="{order.position}"' in page
    assert f'data-head="{links[0].head}"' in page
    assert "check-place" not in page  # the list is not published


def test_receipt_leads_to_its_part_after_the_end(shopper: Client, buyer: User) -> None:
    sale = make_sale()
    [token] = written_orders(sale, [buyer])
    end(sale)
    page = shopper.get(receipt_path(token), headers=HTML).text
    assert f'data-part-url="{path_of(sale, "part-1.txt")}"' in page
    assert "check-place" in page


def test_draw_shows_no_chain(client: Client) -> None:
    sale = make_draw()
    assert 'id="head"' not in client.get(f"/vouchers/{sale.pk}/", headers=HTML).text


def test_sale_page_shows_the_head(client: Client) -> None:
    sale = sold(make_buyers(2))
    for page in ("", "form/"):
        text = client.get(f"/vouchers/{sale.pk}/{page}", headers=HTML).text
        assert sale.chain_head in text
        assert path_of(sale) in text
