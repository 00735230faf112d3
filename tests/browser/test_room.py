"""The waiting room in a browser: from the purchase page into the line, and back to the button."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone
from playwright.sync_api import Page, Route, expect

from orders.placing.places import draw_of
from orders.receipts.place_in_line import LineView, view_of_place
from orders.web.serializers import line_json
from seckill_site.redis.ledger_connection import ledger_connection
from tests.browser.conftest import (
    IN_A_HURRY,
    PASSWORD,
    PATIENT_MS,
    PHONE,
    Faults,
    Person,
    begin_in,
    make_person,
    put_on_sale,
    run_first,
)
from tests.browser.window import join_line, miss_turns
from tests.fixtures.processes import on_both_ways
from tests.support.orders import make_buyer, make_buyers, reserved
from tests.support.patience import wait_for
from tests.support.proxy import FaultProxy, redis_server
from tests.support.stack import Stack, Web
from vouchers.catalogue.live_changes import change_room_rate
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.waiting_room import Line, Place, PlaceState, RoomTerms
from vouchers.models import RoomKind, SeckillVoucher

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.usefixtures("row_locks", "workers"),
]

SALE_KNOWN_MS = 1_500
"""A web process answers for a second from what it knows of a sale; and half a second more."""


def put_in_a_room(**terms: Any) -> SeckillVoucher:
    """Put a voucher on sale with a waiting room that lets one in per second."""
    return put_on_sale(**{"room": RoomKind.BUSY, "room_rate": 1, **terms})


def fill(sale: SeckillVoucher, *, people: int) -> None:
    """Let so many people come at once."""
    join_line(sale, *make_buyers(people))


def purchase_url(sale: SeckillVoucher) -> str:
    return f"/vouchers/{sale.pk}/"


def room_url(sale: SeckillVoucher) -> str:
    return f"/vouchers/{sale.pk}/room/"


def board_of(sale: SeckillVoucher) -> str:
    return f"/admin/vouchers/seckillvoucher/{sale.pk}/board/"


def expect_turn(page: Page, turn: str) -> None:
    expect(page.locator("#room")).to_have_attribute("data-turn", turn)


def number_on(page: Page) -> int:
    """Return the position that a page shows."""
    heading = page.locator("h1", has_text=re.compile(r"^You are number [\d,]+ in line$"))
    expect(heading).to_be_visible()
    return int(re.sub(r"\D", "", heading.inner_text()))


def expect_to_buy(page: Page, sale: SeckillVoucher) -> None:
    """Expect that a page is led to the sale by itself, and buy."""
    page.wait_for_url(f"**{purchase_url(sale)}")
    expect(page.locator("#buy-label")).to_have_text("Buy now")
    page.click("#buy")
    page.wait_for_url("**/orders/*/")
    expect(page.locator("#receipt")).to_have_attribute("data-status", "unpaid")


def let_in(sale: SeckillVoucher) -> None:
    """Let in at once whoever waits by now."""
    change_room_rate(sale_id=sale.pk, rate=100, seen=1)


def ask_now(page: Page) -> None:
    """Let a page ask as it does when its tab is looked at again."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


# --- The way through ------------------------------------------------------------------------------


@on_both_ways
def test_buyer_waits_in_line_and_then_buys(person: Person) -> None:
    sale = put_in_a_room()
    fill(sale, people=40)
    page = person(make_buyer(), **PHONE)
    run_first(page, IN_A_HURRY)

    page.goto(purchase_url(sale))

    page.wait_for_url(f"**{room_url(sale)}")
    assert 10 <= number_on(page) <= 40
    expect(page.locator("#wait")).to_have_text(re.compile(r"^About [1-4]0 s to go$"))
    expect(page.locator("#people")).to_have_text(re.compile(r"^People in line: \d+$"))
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    let_in(sale)
    expect_to_buy(page, sale)


def test_buyer_without_javascript_waits_in_line_and_then_buys(person: Person) -> None:
    sale = put_in_a_room()
    fill(sale, people=30)
    page = person(make_buyer(), java_script_enabled=False, **PHONE)

    page.goto(purchase_url(sale))
    page.get_by_role("link", name="Buy without JavaScript").click()

    assert 5 <= number_on(page) <= 30
    expect(page.locator(".wait")).to_have_text(re.compile(r"^About [1-3]0 s to go$"))
    expect(page.locator("main")).to_contain_text("This page reloads in")
    let_in(sale)
    button = page.get_by_role("button", name="Buy now")
    button.click()  # it is there once the page has reloaded itself
    expect(page.locator("#receipt")).to_have_attribute("data-status", "unpaid")


def test_room_leads_browser_without_javascript_to_its_form(person: Person) -> None:
    sale = put_in_a_room()
    fill(sale, people=60)
    page = person(make_buyer(), java_script_enabled=False)
    page.goto(room_url(sale))
    page.wait_for_url("**/form/")
    assert number_on(page) > 40


def test_visitor_is_told_to_sign_in_first(person: Person) -> None:
    make_person("ann in line", password=PASSWORD)
    sale = put_in_a_room()
    fill(sale, people=120)
    page = person()
    page.goto(room_url(sale))
    expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to join the line")
    expect(page.get_by_role("button", name="Join the line again")).to_be_hidden()

    page.get_by_role("link", name="Sign in").click()
    page.fill("[name=username]", "ann in line")
    page.fill("[name=password]", PASSWORD)
    page.click("main button[type=submit]")

    page.wait_for_url(f"**{room_url(sale)}")
    assert number_on(page) > 40


# --- Between two polls ---------------------------------------------------------------------------


def polls_of(page: Page) -> list[str]:
    """Return the list to which each poll of a page is added."""
    found: list[str] = []
    page.on("request", lambda it: found.append(it.url) if it.resource_type == "fetch" else None)
    return found


AGE_AND_NUMBER = """['updated', 'heading'].map(
  (id) => Number(/\\d+/.exec(document.getElementById(id).textContent)))"""
"""How many seconds old the last answer is, and the position that is shown."""


def test_place_moves_while_no_request_is_made(person: Person) -> None:
    sale = put_in_a_room(room_rate=5)
    fill(sale, people=400)
    page = person(make_buyer())
    polls = polls_of(page)
    page.goto(room_url(sale))
    number_on(page)
    expect(page.locator("#units")).to_have_text("Vouchers left: 5")
    bar = page.get_by_role("progressbar", name="Your way through the line")
    expect(bar).to_be_visible()

    before_s, before = page.evaluate(AGE_AND_NUMBER)
    wait_for(lambda: page.evaluate(AGE_AND_NUMBER)[0] >= before_s + 3, what="three seconds")
    after_s, after = page.evaluate(AGE_AND_NUMBER)

    assert abs(before - after - 5 * (after_s - before_s)) <= 10
    assert 0 < float(bar.evaluate("it => it.value")) < 0.5
    assert len(polls) == 1
    page.reload()
    number_on(page)
    assert float(bar.evaluate("it => it.value")) > 0, "it goes on from where the page was"


def test_page_moves_its_place_as_the_server_does(person: Person) -> None:
    """Never ahead of the next answer, and two places behind at most."""
    page, source = page_with_its_line(person)
    draw, cases = random.Random(42), []
    for rate in (1, 7, 50, 333, 2_000):
        for _ in range(100):
            terms = RoomTerms(1, rate, draw.choice([0, 5_000]), START_MS)
            now_ms = START_MS + draw.randint(-60_000, 60_000)
            number = terms.head(now_ms) + draw.randint(1, 100 * rate)
            before = view_at(terms, number, now_ms)
            passed_ms = draw.randint(0, before.poll_after_ms)
            after = view_at(terms, number, now_ms + passed_ms)
            line = {
                **line_json(before),
                "state": "open" if now_ms >= START_MS else "scheduled",
            }
            cases.append((line, passed_ms, after.position or 1))

    places = page.evaluate(
        """async ([source, cases]) => {
          const { placeAt } = await import(source);
          return cases.map(([line, passedMs]) => placeAt(line, passedMs));
        }""",
        [source, cases],
    )

    ahead = [place - true for place, (_, _, true) in zip(places, cases, strict=True)]
    assert set(ahead) <= {0, 1, 2}
    assert ahead.count(0) > len(ahead) * 0.8


START_MS = 10_000_000


def page_with_its_line(person: Person) -> tuple[Page, str]:
    """Return a page of a waiting room, and the address of its module of moving places."""
    page = person()
    page.goto(room_url(put_in_a_room()))
    source = page.evaluate(
        "performance.getEntriesByType('resource').find((it) => /line[.].*js$/.test(it.name)).name"
    )
    return page, source


JUMPS = [
    # the rate before; an answer's turn, rate and place, where 500 is shown; what is said
    ("waiting", 5, "waiting", 5, 510, ""),  # two seconds of the line: shown once it is passed
    ("waiting", 5, "waiting", 5, 511, "slower"),
    ("waiting", 5, "waiting", 5, 490, ""),
    ("waiting", 5, "waiting", 5, 489, "faster"),
    ("waiting", 5, "waiting", 0, 600, "slower"),  # paused meanwhile
    ("waiting", 5, "waiting", 0, 500, ""),
    ("waiting", 5, "waiting", 9, 500, "faster"),
    ("waiting", 9, "waiting", 5, 500, "slower"),
    ("drawn_later", 5, "waiting", 5, 77, "drawn"),
    ("asking", 0, "waiting", 5, 77, ""),
    ("expired", 0, "waiting", 5, 777, ""),
    ("waiting", 5, "in", 0, None, ""),
]


def test_no_answer_moves_the_place_without_a_word(person: Person) -> None:
    page, source = page_with_its_line(person)
    said = page.evaluate(
        """async ([source, jumps]) => {
          const { changeOf } = await import(source);
          return jumps.map(([before, was, turn, rate, position]) => changeOf({
            before: { turn: before, rate: was }, line: { turn, rate, position }, shown: 500,
          }));
        }""",
        [source, JUMPS],
    )
    assert said == [it[-1] for it in JUMPS]


def view_at(terms: RoomTerms, number: int, now_ms: int) -> LineView:
    place = Place(Line(terms, 10**8, None), number, 1, number, PlaceState.WAITING)
    return view_of_place(place, sale_id=1, user_id=1, now_ms=now_ms)


def test_changed_pace_is_said(person: Person) -> None:
    sale = put_in_a_room()
    fill(sale, people=400)
    page = person(make_buyer())
    page.goto(room_url(sale))
    number_on(page)
    for seen, rate, words in ((1, 5, "faster"), (5, 2, "more slowly")):
        change_room_rate(sale_id=sale.pk, rate=rate, seen=seen)
        page.wait_for_timeout(SALE_KNOWN_MS)
        ask_now(page)
        expect(page.locator("#note")).to_have_text(f"The line moves {words} than before.")
        expect(page.locator("#said")).to_contain_text(f"The line moves {words} than before.")


def test_title_says_whose_turn_it_is(person: Person) -> None:
    sale = put_in_a_room()
    fill(sale, people=60)
    page = person(make_buyer())
    run_first(page, IN_A_HURRY)
    page.goto(room_url(sale))
    number_on(page)
    expect(page).not_to_have_title(re.compile("your turn"))
    let_in(sale)
    page.wait_for_url(f"**{purchase_url(sale)}")
    expect(page).to_have_title(re.compile("^It is your turn · "))


# --- Before the start -----------------------------------------------------------------------------


def test_early_visitors_are_let_in_by_arrival(person: Person) -> None:
    sale = put_in_a_room(room=RoomKind.START, begins_in_s=300)
    ann, ben = make_buyers(2)
    join_line(sale, ann, *make_buyers(38), ben)
    first, last = person(ann), person(ben)
    for page, number in ((first, 1), (last, 40)):
        run_first(page, IN_A_HURRY)
        page.goto(room_url(sale))
        expect(page.locator("#sale-state")).to_have_text("The sale has not started yet.")
        assert number_on(page) == number

    begins_at = begin_in(sale, 2)
    ask_now(first)  # by itself it asks seldom before the start that it knows
    expect_to_buy(first, sale)
    assert timezone.now() >= begins_at
    expect(last).to_have_url(re.compile(r"/room/$"))
    let_in(sale)
    expect_to_buy(last, sale)


def test_page_draws_once_when_it_goes_to_the_room(person: Person) -> None:
    """Drawn anew with each answer, most of a crowd would go at the last moment."""
    sale, page = put_in_a_room(room=RoomKind.START, begins_in_s=120), person(make_buyer())
    run_first(page, "Math.random = () => 0")  # it goes at the start
    page.goto(purchase_url(sale))
    expect(page.locator("#sign-out")).to_be_visible()
    page.evaluate("Math.random = () => 1")  # it would go ten minutes before

    with page.expect_response("**/me/**"):
        ask_now(page)

    page.wait_for_timeout(300)
    assert page.url.endswith(purchase_url(sale))


def test_words_change_at_the_start_and_the_place_follows(person: Person) -> None:
    """By the server's clock, before an answer says so."""
    sale = put_in_a_room(room=RoomKind.START, begins_in_s=300, room_shuffled=True)
    join_line(sale, *make_buyers(200))
    late = max(make_buyers(20), key=lambda it: draw_of(sale_id=sale.pk, user_id=it.pk))
    page = person(late)
    begins_at = begin_in(sale, 15)
    page.goto(room_url(sale))
    expect_turn(page, "drawn_later")
    held: list[Route] = []
    page.route("**/room/", lambda route: held.append(route))

    heading = page.locator("#heading")
    expect(heading).to_have_text("The sale has started", timeout=PATIENT_MS)
    assert timezone.now() >= begins_at
    expect(page.locator("#text")).to_contain_text("Places are being drawn.")
    expect(page.locator("#said")).to_contain_text("The sale has started")
    ask_now(page)
    while not held:
        page.wait_for_timeout(20)
    held.pop().continue_()

    assert number_on(page) > 50
    expect(page.locator("#note")).to_have_text("The places have been drawn.")


def test_early_visitors_are_drawn_at_the_start(person: Person) -> None:
    sale = put_in_a_room(room=RoomKind.START, begins_in_s=300, room_shuffled=True)
    join_line(sale, *make_buyers(5))
    pages = [person(buyer) for buyer in make_buyers(2)]
    for page in pages:
        run_first(page, IN_A_HURRY)
        page.goto(room_url(sale))
        expect_turn(page, "drawn_later")
        expect(page.locator("#heading")).to_have_text("You are in the waiting room")
        expect(page.locator("#text")).to_contain_text("at random")
        expect(page.locator("#wait")).to_be_hidden()

    begins_at = begin_in(sale, 2)
    for page in pages:
        ask_now(page)
    for page in pages:
        expect_to_buy(page, sale)
    assert timezone.now() >= begins_at


# --- A place belongs to its account ---------------------------------------------------------------


def test_place_is_kept_for_the_account_and_nobody_else(person: Person, web: Web) -> None:
    sale = put_in_a_room()
    fill(sale, people=120)
    ann, ben = make_buyers(2)
    page = person(ann)
    page.goto(room_url(sale))
    number = number_on(page)
    expect(page.locator("#heading")).to_have_text(f"You are number {number} in line")
    name = f"place-{sale.pk}"
    (place,) = [it["value"] for it in page.context.cookies() if it.get("name") == name]
    fill(sale, people=40)

    # Leaving and coming back.
    page.goto("/")
    page.goto(purchase_url(sale))
    page.wait_for_url(f"**{room_url(sale)}")
    assert number - 60 < number_on(page) <= number

    # Another browser of the same account, which knows of no place.
    second = person(ann)
    second.goto(room_url(sale))
    assert number - 60 < number_on(second) <= number

    # A copy in the browser of another account.
    thief = person(ben)
    thief.context.add_cookies([{"name": name, "value": place, "url": web.url}])
    thief.goto(room_url(sale))
    assert number_on(thief) > number


def test_expired_place_can_join_the_line_again(person: Person) -> None:
    sale, late = put_in_a_room(), make_buyers(2)
    fill(sale, people=12)
    join_line(sale, *late)
    miss_turns(sale)
    fill(sale, people=150)

    page = person(late[0])
    page.goto(purchase_url(sale))
    page.wait_for_url(f"**{room_url(sale)}")
    expect(page.locator("#heading")).to_have_text("Your turn has passed")
    expect(page.locator("#wait")).to_be_hidden()
    page.get_by_role("button", name="Join the line again").click()
    assert number_on(page) > 30
    expect(page.locator("#again")).to_be_hidden()

    plain = person(late[1], java_script_enabled=False)
    plain.goto(f"{purchase_url(sale)}form/")
    expect(plain.locator("h1")).to_have_text("Your turn has passed")
    plain.get_by_role("link", name="Join the line again").click()
    assert number_on(plain) > 30


# --- Staff ----------------------------------------------------------------------------------------


def test_staff_changes_the_rate_and_lets_everybody_in(person: Person) -> None:
    sale = put_in_a_room()
    fill(sale, people=180)
    buyer, staff = person(make_buyer()), person(make_person("boss", admin=True))
    run_first(buyer, IN_A_HURRY)
    buyer.goto(room_url(sale))
    assert number_on(buyer) > 120
    expect(buyer.locator("#wait")).to_have_text(re.compile(r"^About [234] min to go$"))
    staff.goto(board_of(sale))
    room = staff.locator('[data-text="room"]')
    expect(room).to_have_text(re.compile(r"^\d+ waiting, 1 let in per second, about .* to wait$"))

    staff.click("[data-action=room-rate] a")
    staff.fill("#id_rate", "5")
    staff.get_by_role("button", name="Yes, change the rate").click()
    expect(staff.locator(".messagelist")).to_contain_text("5")
    expect(room).to_have_text(re.compile(r"waiting, 5 let in per second"))
    buyer.wait_for_timeout(SALE_KNOWN_MS)
    ask_now(buyer)
    expect(buyer.locator("#wait")).to_have_text(re.compile(r"^About [1-4]0 s to go$"))

    staff.click("[data-action=close-room] a")
    staff.get_by_role("button", name="Yes, let everybody in").click()
    expect(room).to_have_text("closed")
    expect_to_buy(buyer, sale)  # by itself


def test_room_opened_by_staff_leaves_open_pages_alone(person: Person) -> None:
    sale = put_in_a_room(room=RoomKind.OFF)
    page, staff = person(make_buyer()), person(make_person("boss", admin=True))
    page.goto(purchase_url(sale))
    expect(page.locator("#buy-label")).to_have_text("Buy now")
    expect(page.locator("[data-who]:visible")).not_to_have_count(0)  # it has its token

    staff.goto(board_of(sale))
    expect(staff.locator('[data-text="room"]')).to_have_text("closed")
    staff.click("[data-action=open-room] a")
    staff.fill("#id_rate", "1")
    staff.get_by_role("button", name="Yes, open it").click()
    expect(staff.locator('[data-text="room"]')).to_contain_text("1 let in per second")
    fill(sale, people=120)

    late = person(make_buyer())
    late.goto(purchase_url(sale))
    late.wait_for_url(f"**{room_url(sale)}")
    assert number_on(late) > 30
    page.click("#buy")
    page.wait_for_url("**/orders/*/")
    expect(page.locator("#receipt")).to_have_attribute("data-status", "unpaid")


# --- What else may happen while waiting -----------------------------------------------------------


def test_line_says_that_the_sale_is_sold_out_or_paused(person: Person) -> None:
    sale = put_in_a_room(stock=1)
    fill(sale, people=120)
    page = person(make_buyer())
    page.goto(room_url(sale))
    assert number_on(page) > 30
    expect(page.locator("#sale-state")).to_be_hidden()

    reserved(sale, [make_buyer()])
    page.wait_for_timeout(SALE_KNOWN_MS)
    ask_now(page)
    expect(page.locator("#sale-state")).to_contain_text("Sold out for now")
    staff = person(make_person("boss", admin=True))
    staff.goto(f"{board_of(sale)}pause/")
    staff.fill("#id_reason", "the counter asks for a minute")
    staff.get_by_role("button", name="Yes, pause").click()
    staff.wait_for_url(f"**{board_of(sale)}")
    page.wait_for_timeout(SALE_KNOWN_MS)
    ask_now(page)
    expect(page.locator("#sale-state")).to_contain_text("The sale is paused")
    expect(page.locator("#wait")).to_be_hidden()


def test_page_keeps_asking_while_redis_is_away(people: Person, module_stack: Stack) -> None:
    sale = put_in_a_room()
    fill(sale, people=200)
    with FaultProxy(redis_server(settings.REDIS_URL)) as line:
        web = module_stack.web(threads=6, REDIS_URL=line.url(like=settings.REDIS_URL))
        faults, page = Faults(web.url), people(make_buyer())
        run_first(page, IN_A_HURRY)
        faults.watch(page)
        page.goto(f"{web.url}{room_url(sale)}")
        number = number_on(page)

        line.refuse()
        line.cut()
        page.wait_for_timeout(SALE_KNOWN_MS)
        ask_now(page)
        expect(page.locator("#note")).to_contain_text("The shop is very busy right now.")
        assert number_on(page) <= number
        # Redis comes back, and has forgotten who came.
        assert ledger_connection().delete(LedgerKeys(sale.pk).room)
        line.heal()

        expect(page.locator("#note")).to_be_hidden()
        assert number - 60 < number_on(page) <= number
        faults.leave()
        assert faults.found == []
        web.stop()
