"""The counter: who may redeem, what is shown of a code, and one clear answer for each."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from orders.lifecycle.redemption import GUESSES, written_code
from orders.models import OrderEvent, OrderStatus, VoucherOrder
from orders.web import staff_views
from tests.orders.lifecycle.test_redemption import lose_the_cache
from tests.support.inspection import rows
from tests.support.orders import make_sale
from tests.support.payments import make_unpaid_order, pay
from tests.support.tiers import slow_after
from vouchers.models import Merchant, SeckillVoucher, Voucher

pytestmark = pytest.mark.django_db

PAGE = "/staff/redeem/"
HTML = {"Accept": "text/html", "Accept-Language": "en"}


def member(name: str, *, is_staff: bool = True) -> User:
    user = User.objects.create(username=name, password="!", is_staff=is_staff)
    user.user_permissions.add(Permission.objects.get(codename="redeem_voucherorder"))
    return user


def at_counter(user: User | None) -> Client:
    client = Client(headers=HTML)
    if user:
        client.force_login(user)
    return client


@pytest.fixture
def clerk() -> Client:
    """The client of somebody at the counter."""
    return at_counter(member("clerk"))


@pytest.fixture
def voucher() -> VoucherOrder:
    """A paid order with its code."""
    order = make_unpaid_order(make_sale())
    pay(order)
    order.refresh_from_db()
    assert order.code
    return order


def code_of(order: VoucherOrder) -> str:
    return written_code(order.code or "")


def look(client: Client, code: str) -> Any:
    return client.post(PAGE, {"code": code, "check": "1"})


def use(client: Client, code: str) -> Any:
    return client.post(PAGE, {"code": code})


ASKS: dict[str, Callable[[Client, str], Any]] = {"look": look, "use": use}


def verdict(response: Any, status: int = 200) -> str:
    """Return what the page says of the code, and assert that it says it once."""
    assert response.status_code == status
    assert response["Cache-Control"] == "private, no-store"
    found = re.findall(r'data-verdict="(\w+)"', response.text)
    assert len(found) <= 1
    return "".join(found)


def facts(response: Any) -> dict[str, str]:
    """Return what the page tells of the voucher, by its headings."""
    text = re.sub(r"\s+", " ", response.text)
    pairs = re.findall(r"<dt>(.*?)</dt> ?<dd[^>]*>(.*?)</dd>", text)
    return {key.strip(): unescape(re.sub("<[^>]+>", "", value)).strip() for key, value in pairs}


# --- Who -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["get", "post"])
def test_visitor_signs_in_and_returns(method: str) -> None:
    response = getattr(at_counter(None), method)(PAGE)
    assert response.status_code == 302
    where = urlsplit(response["Location"])
    assert (where.path, parse_qs(where.query)) == ("/accounts/login/", {"next": [PAGE]})


def test_only_the_counter_may_use_the_camera(clerk: Client, voucher: VoucherOrder) -> None:
    for response in (clerk.get(PAGE), look(clerk, code_of(voucher)), look(clerk, "0000")):
        assert "camera=(self), display-capture=()" in response["Permissions-Policy"]
    for path in ("/", "/orders/"):
        assert "camera=(), display-capture=()" in clerk.get(path)["Permissions-Policy"]


def test_code_in_an_address_is_not_read(clerk: Client, voucher: VoucherOrder) -> None:
    """Servers log addresses."""
    response = clerk.get(f"{PAGE}?code={code_of(voucher)}")
    assert verdict(response) == ""
    assert facts(response) == {}


@pytest.mark.parametrize("method", slow_after(1, ["get", "post"]))
def test_redeeming_is_for_staff_alone(voucher: VoucherOrder, method: str) -> None:
    """Permissions of staff are tested in ``tests/orders/test_roles.py``."""
    client = at_counter(member("other", is_staff=False))
    before = rows()
    response = getattr(client, method)(PAGE, {"code": code_of(voucher)})
    assert response.status_code == 403
    assert voucher.seckill_voucher.voucher.title not in response.text
    assert rows() == before


def test_post_without_csrf_token_is_refused(voucher: VoucherOrder) -> None:
    client = Client(enforce_csrf_checks=True, headers=HTML)
    client.force_login(member("clerk"))
    assert client.post(PAGE, {"code": voucher.code or ""}).status_code == 403
    voucher.refresh_from_db()
    assert voucher.status == OrderStatus.PAID


# --- Looking -------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", slow_after(1, [{}, {"code": ""}, {"code": "   "}]))
@pytest.mark.parametrize("method", ["get", "post"])
def test_no_code_shows_the_form(clerk: Client, method: str, query: dict[str, str]) -> None:
    response = getattr(clerk, method)(PAGE, query)
    assert verdict(response) == ""
    assert '<label for="code">' in response.text
    assert facts(response) == {}


def test_lookup_shows_the_voucher_and_changes_nothing(clerk: Client, voucher: VoucherOrder) -> None:
    before = rows()
    response = look(clerk, code_of(voucher))
    assert verdict(response) == "valid"
    assert "verdict--good" not in response.text, "green is kept for what is redeemed"
    assert voucher.user
    shown = facts(response)
    assert shown.pop("Since")
    assert shown == {
        "Face value": "¥100.00",
        "Buyer": voucher.user.username,
        "State": "paid",
        "Code": code_of(voucher),
        "Order number": str(voucher.pk),
    }
    assert voucher.seckill_voucher.voucher.title in response.text
    assert rows() == before
    assert response.text.count("Redeem now") == 1


@pytest.mark.parametrize("method", slow_after(1, ASKS))
def test_unredeemable_voucher_shows_its_state(
    clerk: Client, voucher: VoucherOrder, method: str
) -> None:
    VoucherOrder.objects.filter(pk=voucher.pk).update(status="refunded", live=None)
    before = rows()
    response = ASKS[method](clerk, voucher.code or "")
    assert verdict(response, 200 if method == "look" else 409) == "not_valid"
    assert "Not valid: the order is refunded" in response.text
    assert 'action="/staff/redeem/"' in response.text
    assert "Redeem now" not in response.text
    assert rows() == before


@pytest.mark.parametrize("method", slow_after(1, ASKS))
def test_disputed_voucher_is_not_accepted(
    clerk: Client, voucher: VoucherOrder, method: str
) -> None:
    voucher.payments.create(reference="p", amount_cents=1, status="disputed", settles=True)
    response = ASKS[method](clerk, voucher.code or "")
    assert verdict(response, 200 if method == "look" else 409) == "disputed"
    assert "verdict--bad" in response.text
    assert "Redeem now" not in response.text


@pytest.mark.parametrize("text", slow_after(1, ["AAAA-BBBB-CCCC-DDDD", "<script>é🙂", "9" * 3000]))
@pytest.mark.parametrize("method", slow_after(1, ASKS))
def test_wrong_code_is_shown_and_stays_in_the_field(clerk: Client, method: str, text: str) -> None:
    response = ASKS[method](clerk, text)
    assert verdict(response, 404) == "no_such_code"
    assert "<script>" not in response.text
    shown = re.search(r'<input id="code"\s+name="code"\s+value="([^"]*)"', response.text)
    assert shown
    assert unescape(shown[1]) == text, "it stays, to be corrected"


@pytest.mark.parametrize(
    ("code", "said"),
    slow_after(
        2,
        [
            ("AB01-CDEF-0V1T-VWX", "one character short"),
            ("AB01-CDEF-0V1T-VWXYZ", "one character too many"),
            ("AB01", "A code has 16 letters and digits; this one does not"),
            ("AB01-CDEF-0V1T-VWXY", "character by character"),
        ],
    ),
)
def test_wrong_code_is_told_by_its_length(clerk: Client, code: str, said: str) -> None:
    response = look(clerk, code)
    assert verdict(response, 404) == "no_such_code"
    assert said in response.text


# --- Redeeming -----------------------------------------------------------------------------------


def test_redeeming_uses_the_voucher(clerk: Client, voucher: VoucherOrder) -> None:
    response = clerk.post(PAGE, {"code": code_of(voucher)})
    assert verdict(response) == "redeemed"
    assert "verdict--good" in response.text
    assert "Redeemed" in response.text
    assert "Redeem now" not in response.text
    voucher.refresh_from_db()
    assert voucher.status == OrderStatus.USED
    event = OrderEvent.objects.get(order=voucher, after="used")
    assert event.actor
    assert (event.actor_kind, event.actor.username) == ("staff", "clerk")


def test_second_redeem_shows_when_and_by_whom(clerk: Client, voucher: VoucherOrder) -> None:
    clerk.post(PAGE, {"code": voucher.code or ""})
    event = OrderEvent.objects.get(order=voucher, after="used")
    before = rows()
    other = at_counter(member("ben"))
    for response, status in (
        (other.post(PAGE, {"code": voucher.code or ""}), 409),
        (look(other, voucher.code or ""), 200),
    ):
        assert verdict(response, status) == "used_before"
        assert "verdict--bad" in response.text
        shown = facts(response)
        assert shown["Used by"] == "clerk"
        assert shown["Used at"] == f"{timezone.localtime(event.at):%Y-%m-%d %H:%M:%S}"
    assert rows() == before


# --- A lost answer -------------------------------------------------------------------------------


def filled_in(response: Any) -> dict[str, str]:
    """Return the form *Redeem now* of a page as a browser sends it, without its token."""
    pairs = re.findall(r'<input type="hidden" name="(code|key)" value="([^"]+)"', response.text)
    return dict(pairs)


def move_back(minutes: float) -> None:
    """Let the uses be that old."""
    for event in OrderEvent.objects.filter(after="used"):
        OrderEvent.objects.filter(pk=event.pk).update(at=event.at - dt.timedelta(minutes=minutes))


def test_reload_says_redeemed_by_you_just_now(clerk: Client, voucher: VoucherOrder) -> None:
    form = filled_in(look(clerk, code_of(voucher)))
    assert verdict(clerk.post(PAGE, form)) == "redeemed"
    before = rows()
    again = clerk.post(PAGE, form)
    assert verdict(again) == "repeated"
    assert "verdict--good" in again.text
    assert "Redeemed by you just now</h2>" in again.text
    assert "Hand it out." in again.text
    assert rows() == before


def test_each_page_has_a_key_of_its_own(clerk: Client, voucher: VoucherOrder) -> None:
    keys = {filled_in(look(clerk, code_of(voucher)))["key"] for _ in range(3)}
    assert len(keys) == 3
    assert all(len(it) >= 20 for it in keys)


@pytest.mark.parametrize("other", slow_after(1, ["check", "new key", "no key", "late"]))
def test_own_use_is_never_green_again(clerk: Client, voucher: VoucherOrder, other: str) -> None:
    form = filled_in(look(clerk, code_of(voucher)))
    clerk.post(PAGE, form)
    move_back(5.1 if other == "late" else 0)
    asks = {
        "check": {"code": form["code"], "check": "1"},
        "new key": {**form, "key": "another"},
        "no key": {"code": form["code"]},
        "late": form,
    }
    before = rows()
    response = clerk.post(PAGE, asks[other])
    assert verdict(response, 200 if other in ("check", "late") else 409) == "own"
    at = timezone.localtime(OrderEvent.objects.get(order=voucher, after="used").at)
    # With its date in the first minutes of a day.
    assert re.search(f"You redeemed this (at|on [0-9-]+) {at:%H:%M:%S}", response.text)
    assert "verdict--good" not in response.text
    assert rows() == before


def test_own_use_of_another_day_has_its_date(clerk: Client, voucher: VoucherOrder) -> None:
    use(clerk, code_of(voucher))
    move_back(25 * 60)
    at = timezone.localtime(OrderEvent.objects.get(order=voucher, after="used").at)
    assert f"You redeemed this on {at:%Y-%m-%d %H:%M:%S}" in look(clerk, code_of(voucher)).text


def test_key_of_another_cashier_is_a_second_use(clerk: Client, voucher: VoucherOrder) -> None:
    form = filled_in(look(clerk, code_of(voucher)))
    clerk.post(PAGE, form)
    assert verdict(at_counter(member("ben")).post(PAGE, form), 409) == "used_before"


def test_page_names_its_session_but_not_by_its_key(clerk: Client, voucher: VoucherOrder) -> None:
    """Codes that wait on a device are of one session (``static/seckill/unchecked.js``)."""

    def session_of(response: Any) -> str:
        return re.findall(r'data-session="(\w+)"', response.text)[0]

    before = session_of(clerk.get(PAGE))
    assert session_of(look(clerk, code_of(voucher))) == before
    assert str(clerk.session.session_key) not in clerk.get(PAGE).text
    assert session_of(at_counter(User.objects.get(username="clerk")).get(PAGE)) != before


# --- Undoing -------------------------------------------------------------------------------------


def undo_url(order: VoucherOrder) -> str:
    event = OrderEvent.objects.filter(order=order, after="used").latest("pk")
    return f"/staff/redemptions/{event.pk}/undo/"


def operator(name: str = "olga") -> Client:
    user = member(name)
    user.user_permissions.add(Permission.objects.get(codename="end_voucherorder"))
    return at_counter(user)


def test_who_redeemed_undoes_at_once(clerk: Client, voucher: VoucherOrder) -> None:
    response = use(clerk, code_of(voucher))
    assert f'action="{undo_url(voucher)}"' in response.text
    undone = clerk.post(undo_url(voucher))
    assert verdict(undone) == "undone"
    assert "verdict--good" not in undone.text
    assert verdict(clerk.post(undo_url(voucher))) == "undone"
    assert verdict(look(clerk, code_of(voucher))) == "valid"
    assert list(OrderEvent.objects.filter(order=voucher).values_list("before", "after"))[-2:] == [
        ("paid", "used"),
        ("used", "paid"),
    ]


@pytest.mark.slow
def test_later_or_by_others_only_an_operator_undoes(clerk: Client, voucher: VoucherOrder) -> None:
    use(clerk, code_of(voucher))
    move_back(5.1)
    assert undo_url(voucher) not in look(clerk, code_of(voucher)).text
    before = rows()
    for client in (clerk, at_counter(member("ben"))):
        response = client.post(undo_url(voucher), {"why": "x"})
        assert verdict(response, 409) == "not_undoable"
    assert rows() == before

    olga = operator()
    shown = look(olga, code_of(voucher)).text
    assert f'action="{undo_url(voucher)}"' in shown
    assert 'name="why" required' in shown
    assert verdict(olga.post(undo_url(voucher), {"why": " "}), 409) == "not_undoable"
    assert rows() == before
    assert verdict(olga.post(undo_url(voucher), {"why": "wrong\ntable"})) == "undone"
    assert OrderEvent.objects.latest("pk").reason == "wrong table"


def test_undo_that_comes_too_late_says_so(clerk: Client, voucher: VoucherOrder) -> None:
    use(clerk, code_of(voucher))
    url = undo_url(voucher)
    clerk.post(url)
    use(clerk, code_of(voucher))
    before = rows()
    assert verdict(clerk.post(url), 409) == "not_undoable"
    assert rows() == before
    assert clerk.post("/staff/redemptions/404/undo/").status_code == 404
    assert clerk.get(url)["Location"] == "/staff/redemptions/", "back from the sign-in"


def test_form_that_was_undone_redeems_nothing(clerk: Client, voucher: VoucherOrder) -> None:
    form = filled_in(look(clerk, code_of(voucher)))
    clerk.post(PAGE, form)
    clerk.post(undo_url(voucher))
    again = clerk.post(PAGE, form)
    assert verdict(again, 409) == "valid"
    assert verdict(clerk.post(PAGE, filled_in(again))) == "redeemed"


# --- Merchants -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_bound_cashier_is_told_the_other_merchant_alone(voucher: VoucherOrder) -> None:
    ours, theirs = (Merchant.objects.create(name=it) for it in ("Ours", "Theirs"))
    Voucher.objects.filter(sales=voucher.seckill_voucher_id).update(merchant=theirs)
    user = member("bound")
    bound = at_counter(user)
    user.merchants.add(ours)
    before = rows()
    for ask in ASKS.values():
        response = ask(bound, code_of(voucher))
        assert verdict(response, 403) == "other_merchant"
        assert "For another merchant: Theirs" in response.text
        assert voucher.user
        assert voucher.user.username not in response.text
        assert facts(response) == {}
    assert rows() == before
    use(at_counter(member("free")), code_of(voucher))
    assert verdict(bound.post(undo_url(voucher)), 403) == "other_merchant"
    user.merchants.add(theirs)
    assert verdict(look(bound, code_of(voucher))) == "used_before"


def test_owner_redeems_for_all_merchants(voucher: VoucherOrder) -> None:
    owner = User.objects.create(username="owner", is_staff=True, is_superuser=True)
    owner.merchants.add(Merchant.objects.create(name="Ours"))
    assert verdict(use(at_counter(owner), code_of(voucher))) == "redeemed"


# --- My redemptions ------------------------------------------------------------------------------


DAY = "/staff/redemptions/"


def test_my_redemptions_show_the_day(clerk: Client, voucher: VoucherOrder) -> None:
    assert "0 vouchers redeemed" in clerk.get(DAY).text
    use(clerk, code_of(voucher))
    shown = clerk.get(DAY).text
    assert "1 voucher redeemed" in shown
    assert str(voucher.pk) in shown
    assert f'action="{undo_url(voucher)}"' in shown
    assert voucher.user
    assert voucher.user.username not in shown
    assert (voucher.code or "")[-4:] not in shown
    clerk.post(undo_url(voucher))
    shown = clerk.get(DAY).text
    assert "0 vouchers redeemed" in shown
    assert "Undone" in shown
    assert str(voucher.pk) not in at_counter(member("ben")).get(DAY).text


@pytest.mark.slow
def test_another_day_is_shown_and_a_wrong_one_is_today(
    clerk: Client, voucher: VoucherOrder
) -> None:
    use(clerk, code_of(voucher))
    move_back(24 * 60)
    yesterday = timezone.localdate() - dt.timedelta(days=1)
    assert str(voucher.pk) in clerk.get(DAY, {"day": f"{yesterday}"}).text
    for day in ("", "x", "2026-02-30", "9999-12-31", "0001-01-01"):
        assert str(voucher.pk) not in clerk.get(DAY, {"day": day}).text


@pytest.mark.slow
def test_operator_sees_the_redemptions_of_each_cashier(
    clerk: Client, voucher: VoucherOrder
) -> None:
    use(clerk, code_of(voucher))
    pk = User.objects.get(username="clerk").pk
    olga = operator()
    assert ">clerk</option>" in olga.get(DAY).text
    assert str(voucher.pk) not in olga.get(DAY).text
    assert undo_url(voucher) in olga.get(DAY, {"by": pk}).text
    assert str(voucher.pk) not in at_counter(member("ben")).get(DAY, {"by": pk}).text


def test_operator_who_changes_the_day_keeps_the_cashier(
    clerk: Client, voucher: VoucherOrder
) -> None:
    use(clerk, code_of(voucher))
    pk = User.objects.get(username="clerk").pk
    shown = operator().get(DAY, {"by": f"{pk}", "day": "2026-01-02"}).text
    assert re.search(r"<h1>\s*Redemptions\s*</h1>", shown)
    assert f'value="{pk}" selected' in shown


@pytest.mark.slow
def test_day_takes_a_fixed_number_of_statements(
    clerk: Client, voucher: VoucherOrder, django_assert_num_queries: Any
) -> None:
    sale = voucher.seckill_voucher
    clerk.get(DAY)
    user = User.objects.get(username="clerk")
    for _ in range(3):
        order = make_unpaid_order(sale)
        OrderEvent.objects.create(
            order=order, before="paid", after="used", at=timezone.now(), actor_kind="staff",
            actor=user,
        )  # fmt: skip
    with django_assert_num_queries(STATEMENTS):
        clerk.get(DAY)


STATEMENTS = 7
"""Of the list: the account, its permissions (two), the time, two counts and the rows."""


# --- What is left of accounts --------------------------------------------------------------------


def test_used_voucher_page_survives_deleted_account(clerk: Client, voucher: VoucherOrder) -> None:
    leaver = member("leaver")
    at_counter(leaver).post(PAGE, {"code": voucher.code or ""})
    leaver.delete()
    assert facts(look(clerk, voucher.code or ""))["Used by"] == "staff"


def test_title_and_rules_are_escaped(clerk: Client, voucher: VoucherOrder) -> None:
    item = voucher.seckill_voucher.voucher
    item.title, item.rules = "<b>Hotpot</b>", "Not on\nSundays <i>"
    item.save()
    page = look(clerk, voucher.code or "").text
    assert "&lt;b&gt;Hotpot" in page
    assert "Not on<br>Sundays &lt;i&gt;" in page


# --- Guessing ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_guessing_is_throttled_per_account(
    clerk: Client, voucher: VoucherOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = dt.datetime(2026, 11, 11, 12, 0, 40, tzinfo=dt.UTC)
    monkeypatch.setattr(staff_views, "database_now", lambda: now)
    for _ in range(GUESSES.most):
        assert verdict(look(clerk, "AAAA"), 404) == "no_such_code"
    for method in ASKS:
        response = ASKS[method](clerk, voucher.code or "")
        assert verdict(response, 429) == "too_many"
        assert response["Retry-After"] == "20"
        assert "Wait 20 seconds" in response.text
    voucher.refresh_from_db()
    assert voucher.status == OrderStatus.PAID
    assert verdict(look(at_counter(member("ben")), voucher.code or "")) == "valid"
    assert verdict(clerk.get(PAGE)) == "", "the form is there"


@pytest.mark.slow
@pytest.mark.parametrize("method", ASKS)
def test_lookup_is_refused_if_guesses_cannot_be_counted(
    clerk: Client, voucher: VoucherOrder, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = rows()
    lose_the_cache(monkeypatch)
    response = ASKS[method](clerk, voucher.code or "")
    assert verdict(response, 503) == "away"
    assert response["Retry-After"] == "5"
    assert voucher.seckill_voucher.voucher.title not in response.text
    assert rows() == before


def test_redeeming_works_without_the_ledger(
    clerk: Client, voucher: VoucherOrder, lose_ledger: Callable[[], None]
) -> None:
    lose_ledger()
    assert verdict(clerk.post(PAGE, {"code": voucher.code or ""})) == "redeemed"


# --- Past the last day ---------------------------------------------------------------------------


@pytest.fixture
def past(voucher: VoucherOrder) -> VoucherOrder:
    """A paid order whose voucher was valid until yesterday, and is not refunded by itself."""
    SeckillVoucher.objects.update(refund_unused=False)
    merchant = Merchant.objects.create(name="Old Street")
    Voucher.objects.filter(sales=voucher.seckill_voucher_id).update(
        valid_until=timezone.localdate() - dt.timedelta(days=1), merchant=merchant
    )
    return voucher


def test_past_voucher_asks_for_a_reason(clerk: Client, past: VoucherOrder) -> None:
    response = look(clerk, code_of(past))
    assert verdict(response) == "past"
    assert 'name="why"' in response.text
    assert "Redeem now" not in response.text
    assert facts(response)["Merchant"] == "Old Street"
    assert verdict(use(clerk, code_of(past)), 409) == "past"
    assert verdict(clerk.post(PAGE, {"code": code_of(past), "why": "  "}), 409) == "past"
    past.refresh_from_db()
    assert past.status == OrderStatus.PAID


def test_lapsed_voucher_has_no_exception(clerk: Client, past: VoucherOrder) -> None:
    SeckillVoucher.objects.update(refund_unused=True)
    response = look(clerk, code_of(past))
    assert verdict(response) == "lapsed"
    assert "without exception: the buyer gets the money back automatically" in response.text
    for control in ('name="why"', "Redeem anyway", "Redeem now"):
        assert control not in response.text
    assert verdict(clerk.post(PAGE, {"code": code_of(past), "why": "came late"}), 409) == "lapsed"
    past.refresh_from_db()
    assert past.status == OrderStatus.PAID


def test_lapsed_free_voucher_keeps_the_exception(clerk: Client, past: VoucherOrder) -> None:
    SeckillVoucher.objects.update(refund_unused=True)
    VoucherOrder.objects.update(price_cents=0)
    assert verdict(look(clerk, code_of(past))) == "past"


def test_undone_use_of_a_lapsed_voucher_tells_of_its_refund(
    clerk: Client, past: VoucherOrder
) -> None:
    clerk.post(PAGE, {"code": code_of(past), "why": "came late"})
    SeckillVoucher.objects.update(refund_unused=True)
    used = OrderEvent.objects.get(order=past, after=OrderStatus.USED)
    page = clerk.post(f"/staff/redemptions/{used.pk}/undo/", follow=True)
    assert verdict(page) == "undone"
    assert "its buyer gets the money back automatically" in page.text
    assert "Its buyer can use it" not in page.text


def test_past_voucher_is_redeemed_with_a_reason(clerk: Client, past: VoucherOrder) -> None:
    response = clerk.post(PAGE, {"code": code_of(past), "why": f" came\nlate {'x' * 300}"})
    assert verdict(response) == "redeemed"
    event = OrderEvent.objects.get(order=past, after=OrderStatus.USED)
    assert event.reason.startswith("came late x")
    assert len(event.reason) == staff_views.LONGEST_REASON
