"""A draw in a browser: enter, read the receipt, withdraw, and check the result on its page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from playwright.sync_api import Request, Route, expect

from orders.models import VoucherOrder
from tests.browser.conftest import IN_A_HURRY, Person, make_person, run_first
from tests.support.draws import draw_to_the_end, end, entered, entered_draw, listed, make_draw
from tests.support.inspection import live_ids
from tests.support.orders import make_buyers
from tests.support.patience import wait_for
from vouchers.models import Draw, SeckillVoucher

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.usefixtures("row_locks", "workers"),
]

LARGEST_PAGE_BYTES = 15_000
"""A draw's page with its scripts, as they go over the wire; without style sheet and record."""


def drawn() -> SeckillVoucher:
    sale, _ = entered_draw(make_buyers(5), stock=2)
    end(sale)
    draw_to_the_end(sale)
    return sale


def test_buyer_enters_withdraws_and_enters_again(person: Person) -> None:
    sale, buyer = make_draw(stock=5), make_person("dora")
    page = person(buyer)
    page.goto(f"/vouchers/{sale.pk}/")
    expect(page.locator("#buy-label")).to_have_text("Enter the draw")
    page.click("#buy")
    expect(page.locator("#heading")).to_have_text("You are in the draw")
    page.goto(f"/vouchers/{sale.pk}/")
    expect(page.locator("#buy-label")).to_have_text("You are in the draw")
    page.click("#order-link")
    page.click("details.confirm summary")
    page.click("details.confirm button")
    expect(page.locator("#heading")).to_have_text("Entry withdrawn")
    expect(page.locator("#text")).to_contain_text("withdrawn")
    page.click("#back")
    page.click("#buy")
    expect(page.locator("#heading")).to_have_text("You are in the draw")
    wait_for(lambda: len(listed(sale)) == 1, what="a row of the entry")


def test_open_receipt_shows_the_win_without_reload(person: Person) -> None:
    sale = make_draw(stock=5)
    page = person(make_person("edith"))
    run_first(page, IN_A_HURRY)
    page.goto(f"/vouchers/{sale.pk}/")
    page.click("#buy")
    expect(page.locator("#heading")).to_have_text("You are in the draw")
    end(sale)
    expect(page.locator("#heading")).to_have_text("It's yours!")
    wait_for(lambda: Draw.of(sale).finished_at is not None, what="a finished draw")
    assert len(live_ids(sale)) == 1


def test_pages_of_a_drawn_draw_show_the_own_result(person: Person) -> None:
    buyer, sale = make_person("fay"), make_draw(stock=1, draw_wait_s=3_600)
    entered(sale, [*make_buyers(3), buyer])
    end(sale)
    draw_to_the_end(sale)
    has_won = VoucherOrder.objects.filter(seckill_voucher=sale, user=buyer).exists()
    words = "You won." if has_won else "You are on the waiting list"
    owner, visitor = person(buyer), person()
    for path in ("", "draw/"):
        owner.goto(f"/vouchers/{sale.pk}/{path}")
        expect(owner.locator("#own-entry")).to_contain_text(words, use_inner_text=True)
        expect(owner.locator("#main")).to_contain_text("Drawn: 1 of 4 entries won.")
        visitor.goto(f"/vouchers/{sale.pk}/{path}", wait_until="networkidle")
        expect(visitor.locator("#own-entry")).to_be_hidden()
    owner.click("#own-entry")
    owner.wait_for_url("**/orders/*/")


def test_sale_page_counts_entries_live(person: Person) -> None:
    sale, page = make_draw(stock=2), person()
    page.goto(f"/vouchers/{sale.pk}/")
    expect(page.locator("#stock-words")).to_have_text("Vouchers to win: 2 · Entries: 0")
    entered(sale, make_buyers(3))
    expect(page.locator("#stock-words")).to_have_text("Vouchers to win: 2 · Entries: 3")


def test_draw_is_checked_in_the_browser(person: Person) -> None:
    sale = drawn()
    page, sizes = person(), dict[str, int]()

    def note(request: Request) -> None:
        if not request.url.endswith((".css", ".txt", ".svg")):
            sizes[request.url] = request.sizes()["responseBodySize"]  # a slow page asks again

    page.on("requestfinished", note)
    page.goto(f"/vouchers/{sale.pk}/draw/", wait_until="networkidle")
    assert sum(sizes.values()) <= LARGEST_PAGE_BYTES
    page.click("#check")
    expect(page.locator("#result")).to_contain_text("Correct")
    for order_id in listed(sale):
        page.fill("#entry", str(order_id))
        page.click("#find button")
        words = "and won" if order_id in live_ids(sale) else "did not win"
        expect(page.locator("#found")).to_contain_text(words)
    page.fill("#entry", "77")
    page.click("#find button")
    expect(page.locator("#found")).to_have_text("This number is not in the list.")


FORGERIES: list[tuple[Callable[[list[str]], list[str]], str]] = [
    (lambda lines: [*lines[:6], *reversed(lines[6:])], "the order does not follow"),
    (lambda lines: [*lines[:6], "77", *lines[7:]], "the list does not have this digest"),
    (lambda lines: lines[:-1], "the list does not have this digest"),
    (lambda lines: [*lines[:5], f"# seed: {'0' * 64}", *lines[6:]], "does not belong"),
    (lambda lines: ["what?"], "could not be loaded or read"),
]


def test_forged_record_is_found_out_in_the_browser(person: Person) -> None:
    sale, page = drawn(), person()

    def answer(forge: Callable[[list[str]], list[str]], route: Route) -> None:
        lines = route.fetch().text().splitlines()
        route.fulfill(body="\n".join(forge(lines)) + "\n", content_type="text/plain")

    for forge, words in FORGERIES:
        page.unroute_all()
        page.route("**/record.txt", partial(answer, forge))
        page.goto(f"/vouchers/{sale.pk}/draw/")
        page.click("#check")
        expect(page.locator("#result")).to_contain_text(words)


def test_page_of_an_open_draw_has_nothing_to_check(person: Person) -> None:
    sale = make_draw()
    page = person()
    page.goto(f"/vouchers/{sale.pk}/draw/")
    expect(page.locator("#main")).to_contain_text("Enter until")
    expect(page.locator("#check")).to_have_count(0)
