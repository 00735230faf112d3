"""``docs/openapi.yaml``: every route is in it, and every answer that it names is given.

The tests' clients check each answer they get against the file (``tests/support/openapi.py``). Here
each status of each operation is asked for, at the front door and in Django.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.urls import URLPattern, URLResolver, get_resolver
from PIL import Image

from api.models import Scope
from orders.draws.drawing import close_list
from orders.lifecycle.redemption import GUESSES, written_code
from orders.models import InvitationCode, VoucherOrder
from tests.support import asgi, openapi, wsgi
from tests.support.api import make_token
from tests.support.browsers import session_cookie
from tests.support.draws import end, entered, make_draw
from tests.support.notices import make_reader
from tests.support.orders import make_buyer, make_sale, token_for, written_orders
from tests.support.payments import let_time_run_out, make_unpaid_order, owner_of, pay
from tests.support.rooms import change_room
from tests.support.tiers import slow_after
from tests.support.wsgi import Answer
from vouchers.models import Picture, SeckillVoucher

pytestmark = pytest.mark.django_db

PAGES = {
    *("purchase", "purchase-form", "preview", "sandbox", "stop-notices", "my-notices"),
    *("redeem", "redeem-worker", "redemptions", "undo-redemption"),
    *("account-delete", "captcha-image", "set-language-link"),
    *("payment-return", "pay-code", "code", "code-picture", "codes", "codes-worker", "terms"),
    *("face-theme", "face-icon", "face-manifest"),
}
"""Routes for people alone: they answer pages, or what pages show."""

PAGES_BELOW = ("accounts/", "admin/", "lab/")
"""Parts of the site that are pages, but for what a route of its own names."""


def routes() -> Iterator[tuple[str, str]]:
    """Return the name and the address of each route that is no page."""
    for found, address in _below(get_resolver().url_patterns, ""):
        name = found.name or ""
        if name in PAGES or (address.startswith(PAGES_BELOW) and name != "account-data"):
            continue
        yield name, f"/{address}"


def _below(patterns: Any, before: str) -> Iterator[tuple[URLPattern, str]]:
    for found in patterns:
        address = before + str(found.pattern)
        if isinstance(found, URLResolver):
            yield from _below(found.url_patterns, address)
        else:
            yield found, address


EXAMPLES = {
    "<id:sale_id>": "7",
    "<id:order_id>": "8",
    "<slug:provider>": "sandbox",
    r"^pictures/(?P<digest>[0-9a-f]{32})-small\.webp\Z": "pictures/" + "0" * 32 + "-small.webp",
    r"^pictures/(?P<digest>[0-9a-f]{32})\.webp\Z": "pictures/" + "0" * 32 + ".webp",
}


@pytest.mark.parametrize(("name", "address"), list(routes()))
def test_every_route_is_documented(name: str, address: str) -> None:
    for placeholder, example in EXAMPLES.items():
        address = address.replace(placeholder, example)
    assert openapi.path_of(address), f"{name} ({address}) is neither documented nor a page"


# --- Every answer ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ask:
    """A request; ``by`` signs in."""

    path: str
    fields: Any = None
    by: User | None = None
    csrf: bool = True
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None

    def send(self, method: str, server: Any) -> Answer:
        """Send it to the front door or to Django."""
        headers, cookies = dict(self.headers), []
        if self.by:
            cookies.append(session_cookie(self.by))
        if self.csrf:
            headers["HTTP_X_CSRFTOKEN"] = "c" * 32
            cookies.append(f"csrftoken={'c' * 32}")
        if cookies:
            headers["HTTP_COOKIE"] = "; ".join(cookies)
        path, _, query = self.path.partition("?")
        if server is wsgi:
            headers["QUERY_STRING"] = query
        else:
            path = self.path
        answer: Answer = server.ask(method, path, self.fields, body=self.body, **headers)
        return answer


def of_sale(what: str, **terms: Any) -> Callable[[], Ask]:
    """Ask about a new sale, as a new buyer."""
    return lambda: Ask(f"/vouchers/{make_sale(**terms).pk}/{what}", by=make_buyer())


def of_no_sale(what: str) -> Callable[[], Ask]:
    return lambda: Ask(f"/vouchers/999999/{what}", by=make_buyer())


def by_nobody(what: str) -> Callable[[], Ask]:
    return lambda: Ask(f"/vouchers/{make_sale().pk}/{what}")


def without_csrf(what: str) -> Callable[[], Ask]:
    return lambda: Ask(f"/vouchers/{make_sale().pk}/{what}", by=make_buyer(), csrf=False)


def placing(sale: SeckillVoucher, **changes: Any) -> Ask:
    token = token_for(sale, make_buyer()).sign()
    return Ask(f"/vouchers/{sale.pk}/orders/", {"token": token, **changes})


def placing_forged() -> Ask:
    sale, other = make_sale(), make_sale()
    return Ask(f"/vouchers/{sale.pk}/orders/", {"token": token_for(other, make_buyer()).sign()})


def placing_in_no_sale() -> Ask:
    sale = make_sale(loaded=False)
    ask = placing(sale)
    sale.delete()
    return ask


def of_order(what: str, change: Callable[[VoucherOrder], Any] = lambda it: None) -> Ask:
    """Ask about an unpaid order, as its owner."""
    order = make_unpaid_order(make_sale())
    change(order)
    return Ask(receipt_of(order, what), by=owner_of(order))


def receipt_of(order: VoucherOrder, what: str = "") -> str:
    return f"/vouchers/{order.seckill_voucher_id}/orders/{order.pk}/{what}"


def of_nobodys_order(what: str) -> Callable[[], Ask]:
    return lambda: Ask(receipt_of(make_unpaid_order(make_sale()), what), by=make_buyer())


def order_by_nobody(what: str) -> Callable[[], Ask]:
    return lambda: Ask(receipt_of(make_unpaid_order(make_sale()), what))


def order_without_csrf(what: str) -> Callable[[], Ask]:
    def make() -> Ask:
        ask = of_order(what)
        return Ask(ask.path, by=ask.by, csrf=False)

    return make


def with_forged_token() -> Ask:
    order = make_unpaid_order(make_sale())
    token = token_for(make_sale(), make_buyer()).sign()
    return Ask(receipt_of(order), headers={"HTTP_PURCHASE_TOKEN": token})


def withdrawing() -> Ask:
    draw, buyer = make_draw(), make_buyer()
    (token,) = entered(draw, [buyer])
    return Ask(f"/vouchers/{draw.pk}/orders/{token.order_id}/withdraw/", by=buyer)


def withdrawing_late() -> Ask:
    draw, buyer = make_draw(), make_buyer()
    (token,) = entered(draw, [buyer])
    end(draw)
    return Ask(f"/vouchers/{draw.pk}/orders/{token.order_id}/withdraw/", by=buyer)


def closed_draw() -> Ask:
    draw = make_draw()
    entered(draw, [make_buyer()])
    end(draw)
    close_list(sale_id=draw.pk)
    return Ask(f"/vouchers/{draw.pk}/draw/record.txt")


def closed_chain(page: str) -> Callable[[], Ask]:
    def ask() -> Ask:
        sale = make_sale()
        written_orders(sale, [make_buyer()])
        end(sale)
        return Ask(f"/vouchers/{sale.pk}/chain/{page}")

    return ask


def known(known_file: Callable[[], Ask]) -> Callable[[], Ask]:
    return lambda: known_now(known_file())


def known_now(ask: Ask) -> Ask:
    ask.headers["HTTP_IF_NONE_MATCH"] = ask.send("GET", wsgi).headers["etag"]
    return ask


def in_line(what: str) -> Ask:
    """Ask about a sale with a waiting room that lets nobody in."""
    sale = make_sale()
    change_room(sale.pk)
    return Ask(f"/vouchers/{sale.pk}/{what}", by=make_buyer())


def picture(size: str = "", **headers: str) -> Ask:
    digest, content = "0" * 32, BytesIO()
    Image.new("RGB", (4, 4)).save(content, "WEBP")
    Picture.objects.get_or_create(
        digest=digest, defaults={"content": content.getvalue(), "width": 1, "height": 1}
    )
    return Ask(f"/pictures/{digest}{size}.webp", headers=headers)


def entering(code: str) -> Ask:
    sale = make_sale(needs_code=True)
    InvitationCode.objects.create(seckill_voucher=sale, code="WELCOME1")
    return Ask(f"/vouchers/{sale.pk}/code/", {"code": code}, by=make_buyer())


def on_waiting_list(what: str = "") -> Ask:
    sale = make_sale(stock=1)
    written_orders(sale, [make_buyer()])
    buyer = make_buyer()
    Ask(f"/vouchers/{sale.pk}/waiting/", {"token": token_for(sale, buyer).sign()}, by=buyer).send(
        "POST", wsgi
    )
    return Ask(f"/vouchers/{sale.pk}/waiting/{what}", by=buyer)


def joining(*, stock_left: bool = False, forged: bool = False) -> Ask:
    sale, buyer = make_sale(stock=1), make_buyer()
    if not stock_left:
        written_orders(sale, [make_buyer()])
    token = token_for(make_sale() if forged else sale, buyer).sign()
    return Ask(f"/vouchers/{sale.pk}/waiting/", {"token": token}, by=buyer)


def with_token(path: str, *, scopes: Any = tuple(Scope), fields: Any = None) -> Ask:
    _, text = make_token(scopes=scopes)
    return Ask(f"/api/v1/{path}", fields, headers={"HTTP_AUTHORIZATION": f"Bearer {text}"})


def redeeming(*, times: int = 0, code: str = "", scopes: Any = tuple(Scope)) -> Ask:
    order = make_unpaid_order(make_sale())
    pay(order)
    order.refresh_from_db()
    fields = {"code": code or written_code(order.code or "")}
    for _ in range(times):
        with_token("redeem/", fields=fields).send("POST", wsgi)
    return with_token("redeem/", fields=fields, scopes=scopes)


@pytest.fixture(autouse=True)
def one_window_of_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the guesses of a test no new window may begin."""
    monkeypatch.setattr("api.web.views.GUESSES", GUESSES._replace(window_s=10**10))


def guessing() -> Ask:
    ask = with_token("redeem/", fields={"code": "0" * 16})
    for _ in range(GUESSES.most):
        ask.send("POST", wsgi)
    return ask


def a_sale_of_programs(**scopes: Any) -> Ask:
    return with_token(f"sales/{make_sale().pk}/", **scopes)


def an_order_of_programs(**scopes: Any) -> Ask:
    return with_token(f"orders/{make_unpaid_order(make_sale()).pk}/", **scopes)


GIVEN: dict[str, Callable[[], Ask]] = {
    # Anybody
    "listSales 200": lambda: Ask("/"),
    "searchSales 200": lambda: Ask("/search/?q=tea"),
    "liveFigures 200": of_sale("live/"),
    "liveFigures 404": of_no_sale("live/"),
    "calendarFile 200": of_sale("calendar.ics", begins_in_s=900),
    "calendarFile 404": of_no_sale("calendar.ics"),
    "calendarFile 410": of_sale("calendar.ics", begins_in_s=-900, ends_in_s=-60),
    "picture 200": lambda: picture(),
    "picture 304": lambda: picture(HTTP_IF_NONE_MATCH=f'"{"0" * 32}"'),
    "thumbnail 200": lambda: picture(size="-small"),
    "thumbnail 304": lambda: picture(size="-small", HTTP_IF_NONE_MATCH=f'"{"0" * 32}-small"'),
    "thumbnail 404": lambda: Ask("/pictures/" + "1" * 32 + "-small.webp"),
    "picture 404": lambda: Ask("/pictures/" + "1" * 32 + ".webp"),
    "draw 200": lambda: Ask(f"/vouchers/{make_draw().pk}/draw/"),
    "draw 404": of_sale("draw/"),
    "drawEntry 200": lambda: Ask(f"/vouchers/{make_draw().pk}/draw/entry/", by=make_buyer()),
    "drawEntry 401": by_nobody("draw/entry/"),
    "drawEntry 404": of_no_sale("draw/entry/"),
    "drawRecord 200": closed_draw,
    "drawRecord 304": known(closed_draw),
    "drawRecord 404": of_sale("draw/record.txt"),
    "chain 200": of_sale("chain/"),
    "chain 404": of_no_sale("chain/"),
    "chainList 200": closed_chain("list.txt"),
    "chainList 304": known(closed_chain("list.txt")),
    "chainList 404": of_sale("chain/list.txt"),
    "chainPart 200": closed_chain("part-1.txt"),
    "chainPart 304": known(closed_chain("part-1.txt")),
    "chainPart 404": closed_chain("part-2.txt"),
    # A buyer before the order
    "purchaseToken 200": of_sale("token/"),
    "purchaseToken 401": by_nobody("token/"),
    "purchaseToken 403": of_sale("token/", needs_contact=True),
    "purchaseToken 404": of_no_sale("token/"),
    "purchaseToken 409": of_sale("token/", begins_in_s=-900, ends_in_s=-60),
    "purchaseToken 429": lambda: in_line("token/"),
    "waitingRoom 200": lambda: in_line("room/"),
    "waitingRoom 401": by_nobody("room/"),
    "waitingRoom 404": of_no_sale("room/"),
    "me 200": lambda: Ask(f"/me/?sale={make_sale().pk}", by=make_buyer()),
    "me 404": lambda: Ask("/me/?sale=999999", by=make_buyer()),
    "enterInvitationCode 200": lambda: entering("WELCOME1"),
    "enterInvitationCode 401": by_nobody("code/"),
    "enterInvitationCode 403": without_csrf("code/"),
    "enterInvitationCode 404": lambda: Ask(
        "/vouchers/999999/code/", {"code": "WELCOME1"}, by=make_buyer()
    ),
    "enterInvitationCode 409": lambda: entering("ANOTHER1"),
    "notice 200": of_sale("notice/", begins_in_s=3_600, ends_in_s=9_000),
    "notice 401": by_nobody("notice/"),
    "notice 404": of_no_sale("notice/"),
    "askForNotice 200": lambda: Ask(
        f"/vouchers/{make_sale(begins_in_s=3_600, ends_in_s=9_000).pk}/notice/", by=make_reader()
    ),
    "askForNotice 401": by_nobody("notice/"),
    "askForNotice 403": without_csrf("notice/"),
    "askForNotice 404": of_no_sale("notice/"),
    "askForNotice 409": of_sale("notice/", begins_in_s=3_600, ends_in_s=9_000),
    "stopNotice 200": of_sale("notice/stop/", begins_in_s=3_600, ends_in_s=9_000),
    "stopNotice 401": by_nobody("notice/stop/"),
    "stopNotice 403": without_csrf("notice/stop/"),
    "stopNotice 404": of_no_sale("notice/stop/"),
    # The order
    "placeOrder 202": lambda: placing(make_sale()),
    "placeOrder 403": placing_forged,
    "placeOrder 404": placing_in_no_sale,
    "placeOrder 409": lambda: placing(make_sale(limit=3, stock=1), quantity=3, all_or_none=True),
    "receipt 200": lambda: of_order(""),
    "receipt 401": order_by_nobody(""),
    "receipt 403": with_forged_token,
    "receipt 404": of_nobodys_order(""),
    "pay 200": lambda: of_order("pay/"),
    "pay 401": order_by_nobody("pay/"),
    "pay 403": order_without_csrf("pay/"),
    "pay 404": of_nobodys_order("pay/"),
    "pay 409": lambda: of_order("pay/", pay),
    "cancelOrder 200": lambda: of_order("cancel/"),
    "cancelOrder 401": order_by_nobody("cancel/"),
    "cancelOrder 403": order_without_csrf("cancel/"),
    "cancelOrder 404": of_nobodys_order("cancel/"),
    "cancelOrder 409": lambda: of_order("cancel/", pay),
    "extendOrder 200": lambda: of_order("extend/", let_time_run_out),
    "extendOrder 401": order_by_nobody("extend/"),
    "extendOrder 403": order_without_csrf("extend/"),
    "extendOrder 404": of_nobodys_order("extend/"),
    "extendOrder 409": lambda: of_order("extend/"),
    "refundOrder 200": lambda: of_order("refund/", pay),
    "refundOrder 401": order_by_nobody("refund/"),
    "refundOrder 403": order_without_csrf("refund/"),
    "refundOrder 404": of_nobodys_order("refund/"),
    "refundOrder 409": lambda: of_order("refund/"),
    "withdrawEntry 200": withdrawing,
    "withdrawEntry 401": order_by_nobody("withdraw/"),
    "withdrawEntry 403": order_without_csrf("withdraw/"),
    "withdrawEntry 404": of_nobodys_order("withdraw/"),
    "withdrawEntry 409": withdrawing_late,
    "myOrders 200": lambda: Ask("/orders/", by=owner_of(make_unpaid_order(make_sale()))),
    "myOrders 401": lambda: Ask("/orders/"),
    "accountData 200": lambda: Ask("/accounts/data/", by=make_buyer()),
    "accountData 302": lambda: Ask("/accounts/data/"),
    # The waiting list
    "placeOnWaitingList 200": lambda: on_waiting_list(),
    "placeOnWaitingList 401": by_nobody("waiting/"),
    "placeOnWaitingList 404": of_sale("waiting/"),
    "joinWaitingList 200": lambda: joining(),
    "joinWaitingList 401": by_nobody("waiting/"),
    "joinWaitingList 403": lambda: joining(forged=True),
    "joinWaitingList 404": lambda: Ask(f"/vouchers/{10**19}/waiting/", by=make_buyer()),
    "joinWaitingList 409": lambda: joining(stock_left=True),
    "leaveWaitingList 200": lambda: on_waiting_list("leave/"),
    "leaveWaitingList 401": by_nobody("waiting/leave/"),
    "leaveWaitingList 403": without_csrf("waiting/leave/"),
    "leaveWaitingList 404": of_sale("waiting/leave/"),
    # Operation
    "notifyPayment 404": lambda: Ask("/payments/nobody/notify/", body=b"x"),
    "healthz 200": lambda: Ask("/healthz"),
    "readyz 200": lambda: Ask("/readyz"),
    "metrics 200": lambda: Ask("/metrics"),
    # Programs
    "apiListSales 200": lambda: with_token("sales/"),
    "apiListSales 401": lambda: Ask("/api/v1/sales/"),
    "apiListSales 403": lambda: with_token("sales/", scopes=[Scope.REDEEM]),
    "apiSale 200": lambda: a_sale_of_programs(),
    "apiSale 401": lambda: Ask("/api/v1/sales/1/"),
    "apiSale 403": lambda: a_sale_of_programs(scopes=[Scope.REDEEM]),
    "apiSale 404": lambda: with_token("sales/999999/"),
    "apiListOrders 200": lambda: with_token("orders/"),
    "apiListOrders 401": lambda: Ask("/api/v1/orders/"),
    "apiListOrders 403": lambda: with_token("orders/", scopes=[Scope.REDEEM]),
    "apiOrder 200": lambda: an_order_of_programs(),
    "apiOrder 401": lambda: Ask("/api/v1/orders/1/"),
    "apiOrder 403": lambda: an_order_of_programs(scopes=[Scope.REDEEM]),
    "apiOrder 404": lambda: with_token("orders/1/"),
    "apiRedeem 200": lambda: redeeming(),
    "apiRedeem 401": lambda: Ask("/api/v1/redeem/"),
    "apiRedeem 403": lambda: redeeming(scopes=[Scope.READ_SALES]),
    "apiRedeem 404": lambda: redeeming(code="0" * 16),
    "apiRedeem 409": lambda: redeeming(times=1),
    "apiRedeem 429": guessing,
}

ELSEWHERE = {
    "notifyPayment 200": "tests/orders/payments/test_sandbox.py",
    "readyz 503": "tests/seckill_site/test_health.py",
    "placeOrder 429": "tests/orders/web/test_order_api.py",
}
"""Answers that take a provider, an outage or a crowd; their tests check them as well."""


def operations() -> dict[str, tuple[str, set[str]]]:
    """Return the method and the statuses of each operation."""
    methods = {"get", "post"}
    return {
        it["operationId"]: (method.upper(), set(it["responses"]) - {"default"})
        for path in openapi.spec()["paths"].values()
        for method, it in path.items()
        if method in methods
    }


def test_every_documented_answer_is_given() -> None:
    documented = {
        f"{name} {status}" for name, (_, statuses) in operations().items() for status in statuses
    }
    assert documented == GIVEN.keys() | ELSEWHERE.keys()


@pytest.mark.parametrize("server", [asgi, wsgi], ids=["front door", "Django"])
@pytest.mark.parametrize("name", slow_after(12, GIVEN))
def test_answer_is_as_documented(name: str, server: Any) -> None:
    operation, _, status = name.partition(" ")

    answer = GIVEN[name]().send(operations()[operation][0], server)

    assert str(answer.status) == status, answer.body


# --- The check itself -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b'{"code": "invalid"}', 400),
        (b'{"code": "unknown", "message": ""}', 400),
        (b'{"code": "invalid", "message": "", "more": 1}', 400),
        (b'{"vouchers": []}', 201),
        (b'{"vouchers": [{}]}', 200),
        (b'{"vouchers": [], "more": 1}', 200),
    ],
)
def test_undocumented_answer_fails(body: bytes, status: int) -> None:
    headers = {"content-type": "application/json"}
    openapi.check("GET", "/", status=200, headers=headers, body=b'{"vouchers": []}')

    with pytest.raises((AssertionError, ValueError)):
        openapi.check("GET", "/", status=status, headers=headers, body=body)
