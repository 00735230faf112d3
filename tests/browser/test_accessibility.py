"""Accessibility of every page: axe, target sizes, keyboard, motion, and no foreign requests.

One shop for the module. No test looks at what another one changes.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Container, Iterable
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT  # type: ignore[import-untyped]
from django.utils import timezone
from playwright.sync_api import Page, Route, ViewportSize, expect

from tests.browser.conftest import Faults, Person
from tests.browser.window import Window, join_line, miss_turns
from tests.support.draws import draw_to_the_end, end, entered, make_draw
from tests.support.orders import make_buyers, make_sale, token_for, written_orders
from tests.support.stack import Web
from vouchers.catalogue.sales import SaleTerms, create_sale

pytestmark = [pytest.mark.slow, pytest.mark.browser]

PHONE, DESK = ViewportSize(width=390, height=844), ViewportSize(width=1280, height=900)
NARROW, ZOOMED = ViewportSize(width=320, height=568), ViewportSize(width=640, height=400)
"""The narrowest phone, as is a screen of 1280 at 400 %, and a screen of 1280 by 800 at 200 %."""

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
GRAVE = ("serious", "critical")
LEFT_OUT = {"meta-refresh": {"enabled": False}}
"""Without JavaScript, a place in line has to reload; WCAG 2.2.1 excepts events in real time."""
TARGET_PX = 44

# --- Pages and their users -----------------------------------------------------

Where = Callable[[Window], str]
Visit = Person


def sale(name: str) -> Where:
    return lambda window: f"/vouchers/{window.sales[name].pk}/"


def receipt(status: str) -> Where:
    return lambda window: window.receipts[status]


def at(url: str) -> Where:
    return lambda window: url


def admin_page(name: str, what: str = "change") -> Where:
    return lambda window: f"/admin/vouchers/seckillvoucher/{window.sales[name].pk}/{what}/"


def order_page(status: str, what: str = "change") -> Where:
    return lambda window: f"/admin/orders/voucherorder/{window.orders[status]}/{what}/"


def stage_page(step: str, *names: str) -> Where:
    url = f"/admin/vouchers/seckillvoucher/{step}/?ids="
    return lambda window: url + ",".join(str(window.sales[it].pk) for it in names)


def code(status: str) -> Where:
    return lambda window: f"/staff/redeem/#code={window.code_of(status)}"


BUYERS_PAGES: dict[str, tuple[str, Where]] = {
    "list": ("", at("/")),
    "visitor-soon": ("", sale("soon")),
    "visitor-open": ("", sale("open")),
    "visitor-sold-out": ("", sale("sold_out")),
    "sign-in": ("", at("/accounts/login/")),
    "sign-up": ("", at("/accounts/signup/")),
    "not-found": ("", at("/nothing/")),
    "soon": ("ben", sale("soon")),
    "open": ("ben", sale("open")),
    "sold-out": ("ben", sale("sold_out")),
    "paused": ("ben", sale("paused")),
    "ended": ("ben", sale("ended")),
    "yours-to-pay": ("ann", sale("open")),
    "yours": ("ann", sale("sold_out")),
    **{f"receipt-{it}": ("ann", receipt(it)) for it in (
        "queued", "unpaid", "paid", "used", "expired", "refunding", "refused",
    )},
    **{f"receipt-{it}": ("eve", receipt(it)) for it in (
        "confirming", "silent", "unconfirmed", "not_paid",
    )},
    "code": ("ann", lambda window: f"{window.receipts['paid']}code/"),
    "codes": ("ann", at("/orders/codes/")),
    "my-orders": ("ann", at("/orders/")),
    "no-orders": ("ben", at("/orders/")),
    "notice": ("ben", lambda window: f"{sale('soon')(window)}notice/"),
    "my-notices": ("ben", at("/accounts/notices/")),
    "account": ("ben", at("/accounts/profile/")),
    "devices": ("ben", at("/accounts/sessions/")),
    "emails": ("ben", at("/accounts/email/")),
    "phone": ("ben", at("/accounts/phone/change/")),
    "two-step": ("ben", at("/accounts/2fa/")),
    "form": ("ben", lambda window: f"{sale('open')(window)}form/"),
    "waiting": ("cora", lambda window: f"{sale('sold_out')(window)}waiting/"),
    "sandbox": ("ann", lambda window: f"/sandbox/{window.trades['open']}/"),
    "sandbox-paid": ("ann", lambda window: f"/sandbox/{window.trades['paid']}/"),
    "lab": ("", at("/lab/")),
    "lab-race": ("", at("/lab/v6-owned/lease-runs-out/")),
    "lab-experiment": ("", at("/lab/experiments/caches/")),
}  # fmt: skip

STAFFS_PAGES: dict[str, tuple[str, Where]] = {
    "redeem": ("clerk", at("/staff/redeem/")),
    "redeem-valid": ("clerk", code("paid")),
    "redeem-used": ("clerk", code("used")),
    "redeem-unknown": ("clerk", at("/staff/redeem/#code=0000")),
    "redeem-undo": ("operator", code("used")),
    "redemptions": ("clerk", at("/staff/redemptions/")),
    "admin-login": ("", at("/admin/login/")),
    "admin": ("boss", at("/admin/")),
    "today-operator": ("operator", at("/admin/")),
    "today-clerk": ("clerk", at("/admin/")),
    "today-reader": ("reader", at("/admin/")),
    "admin-system": ("operator", at("/admin/system/")),
    "admin-staff": ("boss", at("/admin/staff/")),
    "admin-staff-member": (
        "boss",
        lambda window: f"/admin/auth/user/{window.people['clerk'].pk}/change/",
    ),
    "admin-staff-advanced": (
        "boss",
        lambda window: f"/admin/auth/user/{window.people['clerk'].pk}/change/?advanced=1",
    ),
    "admin-settings": ("boss", at("/admin/seckill_site/shopsettings/1/change/")),
    "admin-invite": ("boss", at("/admin/accounts/invitation/add/")),
    "admin-voucher": (
        "boss",
        lambda window: f"/admin/vouchers/voucher/{window.sales['open'].voucher_id}/change/",
    ),
    "admin-new-voucher": ("boss", at("/admin/vouchers/voucher/add/")),
    "admin-delete": (
        "boss",
        lambda window: f"/admin/vouchers/voucher/{window.sales['draft'].voucher_id}/delete/",
    ),
    "admin-history": ("operator", admin_page("open", "history")),
    "admin-rehearsals": ("operator", at("/admin/orders/rehearsal/")),
    "admin-jobs": ("operator", at("/admin/orders/orderjob/")),
    "admin-codes": ("boss", at("/admin/orders/invitationcode/")),
    "admin-accounts": ("boss", at("/admin/auth/user/")),
    "admin-groups": ("boss", at("/admin/auth/group/")),
    "admin-invitations": ("boss", at("/admin/accounts/invitation/")),
    "admin-all-orders": ("operator", at("/admin/orders/voucherorder/")),
    "admin-all-payments": ("reader", at("/admin/orders/payment/")),
    "admin-sales": ("boss", at("/admin/vouchers/seckillvoucher/")),
    "admin-new-sale": ("boss", at("/admin/vouchers/seckillvoucher/add/")),
    "admin-sale": ("operator", admin_page("open")),
    "admin-draft": ("clerk", admin_page("draft")),
    "publish": ("clerk", stage_page("publish", "draft")),
    "withdraw": ("operator", stage_page("withdraw", "soon", "tomorrow")),
    "preview": ("reader", lambda window: f"{sale('draft')(window)}preview/"),
    "admin-sale-to-read": ("reader", admin_page("open")),
    "admin-sale-begun": ("clerk", admin_page("open")),
    "board": ("operator", admin_page("open", "board")),
    "board-to-read": ("reader", admin_page("sold_out", "board")),
    "board-end": ("operator", admin_page("open", "board/end")),
    "board-extend": ("operator", admin_page("open", "board/extend")),
    "report": ("reader", admin_page("sold_out", "report")),
    "reports": ("reader", at("/admin/reports/")),
    "reports-by-voucher": ("reader", at("/admin/reports/?by=voucher")),
    "customers": ("operator", at("/admin/customers/")),
    "customer": ("operator", lambda window: f"/admin/customers/{window.people['ann'].pk}/"),
    "customer-delete": (
        "operator",
        lambda window: f"/admin/customers/{window.people['ann'].pk}/delete/",
    ),
    "waiting-by-name": ("operator", admin_page("sold_out", "waiting")),
    "rehearse": ("operator", admin_page("soon", "rehearse")),
    "rehearsal": (
        "operator",
        lambda window: f"/admin/orders/rehearsal/{window.rehearsal.pk}/change/",
    ),
    "series": (
        "clerk",
        lambda window: f"/admin/vouchers/seckillvoucher/series/?sale={window.sales['soon'].pk}",
    ),
    "copies": (
        "clerk",
        lambda window: f"/admin/vouchers/seckillvoucher/copies/?ids={window.sales['soon'].pk}",
    ),
    "import": ("clerk", at("/admin/vouchers/voucher/import/")),
    "admin-vouchers": ("boss", at("/admin/vouchers/voucher/")),
    "admin-orders": ("operator", at("/admin/orders/voucherorder/?status__exact=refunded")),
    "admin-order": ("operator", order_page("paid")),
    "admin-refund": ("operator", order_page("paid", "refund")),
    "admin-payments": ("reader", at("/admin/orders/payment/?status__exact=refunding")),
    "admin-job": (
        "operator",
        lambda window: f"/admin/orders/orderjob/{window.job.pk}/change/",
    ),
    "admin-locks": ("operator", at("/admin/locks/lock/")),
}

PAGES = BUYERS_PAGES | STAFFS_PAGES


# --- Axe and target sizes -------------------------------------------------------------------------


def findings(page: Page, *, only: str = "", inject: bool = False) -> set[str]:
    """Return the serious violations that axe finds: rule, element and advice."""
    if inject:
        page.evaluate(AXE_SCRIPT)
    run_only = {"type": "rule", "values": [only]} if only else {"type": "tag", "values": RULES}
    options = {
        "runOnly": run_only,
        "rules": LEFT_OUT if not only else {},
        "resultTypes": ["violations"],
        "preload": False,
    }
    result = page.evaluate("options => axe.run(options)", options)
    return {
        f"{rule['id']} ({rule['impact']}) at {' '.join(map(str, node['target']))}: "
        + " ".join(node["failureSummary"].split())
        for rule in result["violations"]
        if rule["impact"] in GRAVE
        for node in rule["nodes"]
    }


def emulate(page: Page, **media: Any) -> None:
    """Emulate these media features, and wait until the colours have changed."""
    page.emulate_media(**media)
    page.evaluate(
        "Promise.all(document.getAnimations()"
        ".filter((it) => it instanceof CSSTransition).map((it) => it.finished))"
    )


def check(show: Callable[[str, ViewportSize], Page]) -> None:
    """Check a page in two languages, on phone and desk, light and dark.

    Each pair of these occurs once. Only contrast depends on the colour scheme.
    """
    found = {}
    for language, light, dark in (("en", PHONE, DESK), ("zh", DESK, PHONE)):
        page = show(language, light)
        found[language, light["width"], "light"] = findings(page, inject=True)
        page.set_viewport_size(dark)
        emulate(page, color_scheme="dark")
        found[language, dark["width"], "dark"] = findings(page, only="color-contrast")
        check_layout(page)
    assert found == {how: set() for how in found}


def check_layout(page: Page) -> None:
    """Assert that every target is large enough on a phone, and that nothing overflows."""
    page.set_viewport_size(PHONE)
    assert page.evaluate(BROKEN_PICTURES) == []
    if "/admin/" not in page.url:
        assert page.evaluate(SMALL_TARGETS, TARGET_PX) == []
    assert_no_overflow(page)


def assert_no_overflow(page: Page) -> None:
    for size in (NARROW, ZOOMED):
        page.set_viewport_size(size)
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= size["width"], f"{width} px on a screen of {size['width']}"


SMALL_TARGETS = """least => {
  const words = (it) => it.textContent.trim();
  const inline = (it) => // a link in a sentence may be small, one that stands alone may not
    getComputedStyle(it).display === "inline" && words(it.parentElement) !== words(it);
  const whole = (it) => getComputedStyle(it, "::after").position === "absolute"; // its card is it
  const shown = (it) => it.checkVisibility({ visibilityProperty: true }) && !it.closest(".unseen");
  const small = ({ width, height }, px) => width < px || height < px;
  const targets = "a[href], button, summary, select, input:not([type=hidden])";
  return [...document.querySelectorAll(targets)]
    .filter((it) => shown(it) && !inline(it) && !whole(it) && !it.matches(".skip"))
    .filter((it) => small(it.getBoundingClientRect(), it.type === "radio" ? 24 : least))
    .map((it) => it.outerHTML.slice(0, 120) + JSON.stringify(it.getBoundingClientRect()));
}"""


BROKEN_PICTURES = """[...document.images]
  .filter((it) => it.complete && !it.naturalWidth)
  .map((it) => it.outerHTML.slice(0, 120))"""


def in_tiers(names: Iterable[str], *, default: Container[str]) -> list[Any]:
    """Return parameters, of which only these belong to the default tier."""
    return [it if it in default else pytest.param(it, marks=pytest.mark.faults) for it in names]


ONE_OF_EACH_KIND = {
    *("list", "open", "sold-out", "waiting", "receipt-paid", "code", "my-orders"),
    *("admin", "admin-new-sale", "admin-all-orders", "admin-staff-member", "board"),
}
"""The pages of the default tier; the slow tier checks every page."""


@pytest.mark.parametrize("name", in_tiers(PAGES, default=ONE_OF_EACH_KIND))
def test_page_is_accessible(name: str, window: Window, visit: Visit) -> None:
    who, where = PAGES[name]
    check(lambda language, size: visit(who, where(window), language=language, size=size))


@pytest.mark.faults
def test_played_race_is_accessible(visit: Visit) -> None:
    def play(language: str, size: ViewportSize) -> Page:
        page = visit("", "/lab/v2/double-click/", language=language, size=size)
        with page.expect_navigation():
            page.locator("main form button").click()
        return page

    check(play)


@pytest.mark.parametrize(
    "name", in_tiers(["soon", "paused", "ended", "yours", "forged"], default={"soon"})
)
def test_refusal_is_accessible(name: str, window: Window, visit: Visit) -> None:
    who, of = ("ann", "sold_out") if name == "yours" else ("ben", name)
    its = window.sales[of if of in window.sales else "open"]
    token = token_for(its, window.people[who]).sign() + ("x" if name == "forged" else "")

    def show(language: str, size: ViewportSize) -> Page:
        page = visit("", "/", language=language, size=size)
        with page.expect_navigation():
            page.evaluate(SEND_WITHOUT_SCRIPT, [f"/vouchers/{its.pk}/orders/", token])
        return page

    check(show)


SEND_WITHOUT_SCRIPT = """([action, token]) => {
  const form = Object.assign(document.createElement("form"), { method: "post", action });
  form.append(Object.assign(document.createElement("input"), { name: "token", value: token }));
  document.body.append(form);
  form.submit();
}"""


@pytest.mark.parametrize("state", in_tiers(["sending", "busy"], default={"busy"}))
def test_purchase_page_is_accessible_while_ordering(
    state: str, window: Window, visit: Visit
) -> None:
    url, held = put_on_sale(window, begins_in_s=-1), []

    def hold(route: Route) -> None:
        held.append(route)

    def show(language: str, size: ViewportSize) -> Page:
        page = visit("ben", url, language=language, size=size)
        page.route("**/orders/", refuse_for_now if state == "busy" else hold)
        page.click("#buy")
        expect(page.locator("#main")).to_have_attribute("data-state", state)
        return page

    check(show)
    for route in held:
        route.abort()


def refuse_for_now(route: Route) -> None:
    headers = {"Retry-After": "30"}
    route.fulfill(status=503, headers=headers, json={"code": "unavailable", "message": ""})


@pytest.mark.parametrize(
    "state", in_tiers(["waiting", "plain", "expired", "visitor"], default={"waiting", "plain"})
)
def test_waiting_room_is_accessible(state: str, window: Window, visit: Visit) -> None:
    its = window.open_room(people=1)
    join_line(its, window.people["ben"])
    if state == "expired":
        miss_turns(its)
    join_line(its, *make_buyers(300))
    who = {"visitor": "", "expired": "ben"}.get(state, "cora")
    url = f"/vouchers/{its.pk}/{'form' if state == 'plain' else 'room'}/"
    turn = {"visitor": "sign_in", "expired": "expired"}.get(state, "waiting")

    def show(language: str, size: ViewportSize) -> Page:
        page = visit(who, url, language=language, size=size)
        expect(page.locator("#room")).to_have_attribute("data-turn", turn)
        return page

    check(show)


@pytest.mark.parametrize("state", ["page", "checked", "receipt"])
def test_draw_is_accessible(state: str, window: Window, visit: Visit) -> None:
    its = make_draw(stock=1)
    tokens = entered(its, [window.people["ben"], *make_buyers(3)])
    path = f"/vouchers/{its.pk}/"
    url = path if state == "page" else f"{path}draw/"
    if state == "receipt":
        url = f"{path}orders/{tokens[0].order_id}/"
    if state == "checked":
        end(its)
        draw_to_the_end(its)

    def show(language: str, size: ViewportSize) -> Page:
        page = visit("ben" if state == "receipt" else "", url, language=language, size=size)
        if state == "checked":
            page.click("#check")
            page.fill("#entry", str(tokens[0].order_id))
            page.click("#find button")
            expect(page.locator("#found")).to_be_visible()
        return page

    check(show)


@pytest.mark.parametrize("state", ["running", "checked", "receipt"])
def test_list_of_orders_is_accessible(state: str, window: Window, visit: Visit) -> None:
    its = make_sale(stock=5)
    tokens = written_orders(its, [window.people["ben"], *make_buyers(3)])
    path = f"/vouchers/{its.pk}/"
    url = f"{path}orders/{tokens[0].order_id}/" if state == "receipt" else f"{path}chain/"
    if state != "running":
        end(its)

    def show(language: str, size: ViewportSize) -> Page:
        page = visit("ben" if state == "receipt" else "", url, language=language, size=size)
        if state == "receipt":
            page.click("#check-place")
            expect(page.locator("#place-result")).to_be_visible()
        if state == "checked":
            page.click("#check")
            page.fill("#entry", str(tokens[0].order_id))
            page.click("#find button")
            expect(page.locator("#found")).to_be_visible()
        return page

    check(show)


def put_on_sale(window: Window, *, begins_in_s: int) -> str:
    """Put a voucher on sale again, and return the URL of its page."""
    begins_at = timezone.now() + dt.timedelta(seconds=begins_in_s)
    terms = SaleTerms(stock=3, begins_at=begins_at, ends_at=begins_at + dt.timedelta(hours=1))
    its = create_sale(voucher=window.sales["soon"].voucher, terms=terms)
    return f"/vouchers/{its.pk}/"


# --- A low screen ---------------------------------------------------------------------------------

FIRST_BUTTONS = {
    "open": "#buy", "soon": "#buy", "visitor-open": "#sign-in", "sold-out": "#line-join button",
    "yours-to-pay": "#order-link", "form": "#order-form button", "receipt-unpaid": "#pay",
}  # fmt: skip
IN_VIEW = """selector => {
  const { top, bottom, left, right } = document.querySelector(selector).getBoundingClientRect();
  return top >= 0 && left >= 0 && bottom <= innerHeight && right <= innerWidth && bottom > top;
}"""


@pytest.mark.parametrize("name", in_tiers(FIRST_BUTTONS, default={"open"}))
@pytest.mark.parametrize("language", ["en", "zh"])
def test_button_is_in_view_at_200_percent(
    name: str, language: str, window: Window, visit: Visit
) -> None:
    who, where = BUYERS_PAGES[name]
    page = visit(who, where(window), size=ZOOMED, language=language)
    expect(page.locator(FIRST_BUTTONS[name])).to_be_visible()
    assert page.evaluate(IN_VIEW, FIRST_BUTTONS[name])
    content = page.evaluate("document.querySelector('.bar')?.getBoundingClientRect().top ?? 400")
    assert content >= ZOOMED["height"] / 2, "the bar hides most of the page"


# --- Success --------------------------------------------------------------------------------------

INK = """selector => {
  const its = getComputedStyle(document.querySelector(selector));
  const colour = selector.endsWith("circle") ? its.fill : its.color;
  return colour.match(/[0-9]+/g).slice(0, 3).map(Number);
}"""
MESSAGE = """document.querySelector("main").insertAdjacentHTML(
  "afterbegin", '<p class="message message--success">Saved.</p>')"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_success_has_not_the_colour_of_errors(scheme: Any, window: Window, visit: Visit) -> None:
    """Errors are red, success is green."""
    paid = "[data-status=paid] > .badge"
    for url, success in (
        ("/orders/", (".message", paid)),
        (window.receipts["paid"], (".receipt__icon--done circle",)),
    ):
        page = visit("ann", url, size=PHONE)
        page.emulate_media(color_scheme=scheme)
        page.evaluate(MESSAGE)
        for selector in success:
            red, green, blue = page.evaluate(INK, selector)
            assert green > max(red, blue), selector


# --- Keyboard -------------------------------------------------------------------------------------


FOCUSED = "document.activeElement.id || document.activeElement.className"
OUTLINE = """() => {
  const its = getComputedStyle(document.activeElement);
  return its.outlineStyle === "none" ? 0 : parseFloat(its.outlineWidth);
}"""


def tab_to(page: Page, wanted: str) -> None:
    """Press Tab until this element has the focus; each focused element must show it."""
    for _ in range(30):
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        assert page.evaluate(OUTLINE) >= 2, f"no outline around {focused}"
        if focused == wanted:
            return
    pytest.fail(f"{wanted} cannot be reached")


def test_keyboard_alone_skips_to_content_and_buys(window: Window, visit: Visit) -> None:
    url = put_on_sale(window, begins_in_s=-1)
    page = visit("cora", url, size=DESK)
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    expect(page.locator(".skip")).to_be_in_viewport()
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#main') !== null"), "skips nothing"
    page.goto(url)

    tab_to(page, "buy")
    page.keyboard.press("Enter")

    page.wait_for_url("**/orders/*/")
    expect(page.locator("#receipt")).to_have_attribute("data-status", "queued")


def test_focus_stays_on_the_button(window: Window, visit: Visit) -> None:
    page = visit("ben", put_on_sale(window, begins_in_s=20), size=PHONE)
    page.route("**/orders/", refuse_for_now)
    tab_to(page, "buy")
    main, button = page.locator("#main"), page.locator("#buy")
    expect(main).to_have_attribute("data-state", "scheduled")
    expect(main).to_have_attribute("data-state", "open")
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    expect(main).to_have_attribute("data-state", "busy")
    expect(button).to_be_focused()


# --- Reduced motion -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    in_tiers(["list", "soon", "open", "receipt-queued", "waiting"], default={"receipt-queued"}),
)
def test_nothing_moves_with_reduced_motion(name: str, window: Window, visit: Visit) -> None:
    who, where = BUYERS_PAGES[name]
    page = visit(who, where(window), size=PHONE, reduced_motion="reduce")
    running = "document.getAnimations().filter((it) => it.playState === 'running').length"
    assert page.evaluate(running) == 0


# --- The checks -----------------------------------------------------------------------------------

SPOIL = """() => {
  const add = (name, text, style, around = "div") => {
    const it = Object.assign(document.createElement(name), { textContent: text });
    if (name === "a") it.href = "#";
    Object.assign(it.style, style);
    const its = document.createElement(around);
    its.append(it);
    document.querySelector("main").append(its);
  };
  add("p", "hard to read", { color: "#ccc", background: "#ddd" });
  add("button", "hard to hit", { height: "20px", width: "900px" });
  add("a", "alone in its line", {}, "p");
  add("style", "p { color: red }", {});
}"""


def test_checks_find_faults_of_a_page(tabs: Person, web: Web) -> None:
    page, faults, foreign = tabs("", "en"), Faults(web.url), Faults("http://elsewhere")
    for watcher in (faults, foreign):
        watcher.watch(page)
    page.set_viewport_size(PHONE)
    page.goto("/accounts/login/")
    assert (findings(page, inject=True), page.evaluate(SMALL_TARGETS, TARGET_PX)) == (set(), [])
    assert faults.found == []
    assert any(f"asks {web.url}" in it for it in foreign.found)

    page.evaluate(SPOIL)

    assert any(it.startswith("color-contrast (serious)") for it in findings(page))
    small = page.evaluate(SMALL_TARGETS, TARGET_PX)
    assert all(any(it in found for found in small) for it in ("hard to hit", "alone in its line"))
    assert any("Content Security Policy" in it for it in faults.found)
    with pytest.raises(AssertionError, match="px on a screen of 320"):
        assert_no_overflow(page)
    for watcher in (faults, foreign):
        watcher.leave()
