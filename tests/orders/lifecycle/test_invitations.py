"""Invitation codes: made, imported and entered, also over HTTP."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from orders.audience.verdicts import NotEligible
from orders.lifecycle.invitations import (
    GUESSES,
    CodeRefused,
    EnoughCodes,
    Imported,
    UnusableCode,
    enter_code,
    import_codes,
    make_codes,
    read_invitation,
    written_invitation,
)
from orders.models import InvitationCode
from orders.web import buyer_views
from tests.orders.audience.rules import give_code
from tests.support.browsers import browser_of
from tests.support.orders import at_once, make_buyer, make_sale, race
from tests.support.tiers import slow_after
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db


@pytest.fixture
def sale() -> SeckillVoucher:
    return make_sale(needs_code=True)


def enter(sale: SeckillVoucher, buyer: User, text: str = "WELCOME1") -> None:
    enter_code(sale_id=sale.pk, user_id=buyer.pk, text=text, now=timezone.now())


def owner_of(sale: SeckillVoucher, code: str = "WELCOME1") -> User | None:
    return InvitationCode.objects.get(seckill_voucher=sale, code=code).user


# --- Making and importing ------------------------------------------------------------------------


def test_made_codes_are_new_and_long(sale: SeckillVoucher) -> None:
    codes = make_codes(sale_id=sale.pk, count=50)
    assert len(set(codes)) == 50
    assert {len(it) for it in codes} == {12}
    assert set(InvitationCode.objects.values_list("code", flat=True)) == set(codes)
    assert read_invitation(written_invitation(codes[0]).lower()) == codes[0]


def test_import_skips_blank_lines_and_known_codes(sale: SeckillVoucher) -> None:
    give_code(sale, None)
    found = import_codes(
        sale_id=sale.pk, lines=["welcome-1", "", "  ", "Ｓｐｒｉｎｇ　２０２６", "SPRING2026"]
    )
    assert found == Imported(new=1, known=1)
    assert InvitationCode.objects.filter(code="SPRING2026").exists()


@pytest.mark.parametrize(
    "line", slow_after(1, ["SHORT", "A" * 33, "欢迎光临本店铺", "=CMD()1234", "a\x00bcdefg"])
)
def test_line_that_is_no_code_imports_nothing(sale: SeckillVoucher, line: str) -> None:
    with pytest.raises(UnusableCode) as refused:
        import_codes(sale_id=sale.pk, lines=["WELCOME1", line])
    assert refused.value.line == 2
    assert not InvitationCode.objects.exists()


def test_two_sales_may_have_the_same_code(sale: SeckillVoucher) -> None:
    for it in (sale, make_sale()):
        assert import_codes(sale_id=it.pk, lines=["WELCOME1"]).new == 1


# --- Entering ------------------------------------------------------------------------------------


def test_entered_code_belongs_to_the_account(sale: SeckillVoucher, buyer: User) -> None:
    give_code(sale, None)
    for text in (" wel-come 1", "WELCOME1"):
        enter(sale, buyer, text)
    assert owner_of(sale) == buyer


def test_code_of_another_account_or_sale_is_refused(sale: SeckillVoucher, buyer: User) -> None:
    give_code(sale, make_buyer())
    give_code(make_sale(), None, "OTHERSALE")
    for text in ("WELCOME1", "OTHERSALE", "NOSUCHCODE"):
        with pytest.raises(CodeRefused):
            enter(sale, buyer, text)


@race
def test_of_many_accounts_at_once_one_gets_the_code(sale: SeckillVoucher) -> None:
    give_code(sale, None)
    buyers = [make_buyer() for _ in range(8)]
    outcomes = at_once(*(lambda it=it: enter(sale, it) for it in buyers))
    assert sum(isinstance(it, CodeRefused) for it in outcomes) == 7
    assert owner_of(sale) in buyers


def test_buyer_takes_no_more_codes_than_units(sale: SeckillVoucher, buyer: User) -> None:
    for code in ("WELCOME1", "WELCOME2"):
        give_code(sale, None, code)
    enter(sale, buyer, "WELCOME1")
    with pytest.raises(EnoughCodes):
        enter(sale, buyer, "WELCOME2")
    assert owner_of(sale, "WELCOME2") is None


@race
def test_of_many_codes_at_once_a_buyer_gets_one(sale: SeckillVoucher, buyer: User) -> None:
    texts = [f"WELCOME{n}" for n in range(8)]
    for text in texts:
        give_code(sale, None, text)
    outcomes = at_once(*(lambda it=it: enter(sale, buyer, it) for it in texts))
    assert sum(isinstance(it, EnoughCodes) for it in outcomes) == 7
    assert InvitationCode.objects.filter(user=buyer).count() == 1


def test_buyer_whom_another_rule_refuses_wastes_no_code(buyer: User) -> None:
    sale = make_sale(needs_code=True, account_age_h=24)
    give_code(sale, None)
    with pytest.raises(NotEligible):
        enter(sale, buyer)
    assert owner_of(sale) is None


# --- Over HTTP -----------------------------------------------------------------------------------


def post(client: Client, sale: SeckillVoucher, **fields: Any) -> Any:
    return client.post(f"/vouchers/{sale.pk}/code/", fields)


@pytest.fixture
def shopper(buyer: User) -> Client:
    return browser_of(buyer, headers={"Accept-Language": "en"})


def test_form_leads_back_to_its_page(sale: SeckillVoucher, shopper: Client, buyer: User) -> None:
    give_code(sale, None)
    fields = {"code": "welcome1"}
    answer = shopper.post(f"/vouchers/{sale.pk}/code/", fields, headers={"Accept": "text/html"})
    assert (answer.status_code, answer["Location"]) == (303, f"/vouchers/{sale.pk}/")
    assert owner_of(sale) == buyer


@pytest.fixture
def one_window_of_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the guesses of a test no new window may begin."""
    now = dt.datetime(2026, 11, 11, 12, 0, 40, tzinfo=dt.UTC)
    monkeypatch.setattr(buyer_views, "database_now", lambda: now)


@pytest.mark.usefixtures("one_window_of_guesses")
def test_wrong_code_is_answered_409_then_429(sale: SeckillVoucher, shopper: Client) -> None:
    answer = post(shopper, sale, code="NOSUCHCODE")
    assert (answer.status_code, answer.json()["code"]) == (409, "code_refused")
    for _ in range(GUESSES.most):
        answer = post(shopper, sale, code="NOSUCHCODE")
    assert (answer.status_code, answer.json()["code"]) == (429, "rate_limited")
    assert 0 < int(answer["Retry-After"]) <= GUESSES.window_s


def post_form(client: Client, sale: SeckillVoucher, code: str) -> Any:
    """Enter a code on the page without JavaScript."""
    return client.post(
        f"/vouchers/{sale.pk}/form/", {"code": code}, headers={"Accept": "text/html"}
    )


@pytest.mark.slow
@pytest.mark.usefixtures("one_window_of_guesses")
def test_wrong_code_is_said_beside_its_field(sale: SeckillVoucher, shopper: Client) -> None:
    answer = post_form(shopper, sale, "NO-SUCH-CODE")
    page = answer.content.decode()
    assert answer.status_code == 409
    assert 'value="NO-SUCH-CODE"' in page
    assert 'aria-invalid="true"' in page
    assert 'role="alert">This code does not exist, or it was entered for another account.<' in page
    for _ in range(GUESSES.most):
        answer = post_form(shopper, sale, "NO-SUCH-CODE")
    assert answer.status_code == 429
    assert "Too many wrong codes." in answer.content.decode()


@pytest.mark.parametrize("has_one", slow_after(1, [False, True]))
def test_right_code_leads_back_to_its_page(
    sale: SeckillVoucher, shopper: Client, buyer: User, has_one: bool
) -> None:
    give_code(sale, None)
    if has_one:
        give_code(sale, buyer, "WELCOME2")
    answer = post_form(shopper, sale, "welcome-1")
    assert (answer.status_code, answer["Location"]) == (303, f"/vouchers/{sale.pk}/form/")
    assert owner_of(sale) == (None if has_one else buyer)


def test_code_of_a_visitor_is_not_looked_at(sale: SeckillVoucher) -> None:
    give_code(sale, None)
    assert post_form(Client(), sale, "WELCOME1").status_code == 303
    assert owner_of(sale) is None


@pytest.mark.parametrize("code", slow_after(1, ["", "   ", "x" * 81]))
def test_text_that_is_no_code_is_answered_400(
    sale: SeckillVoucher, shopper: Client, code: str
) -> None:
    assert post(shopper, sale, code=code).status_code == 400


@pytest.mark.parametrize(
    "body", slow_after(1, [b"", b"[]", b'{"code": 7}', b'{"code": "\\ud800"}', b"\xff"])
)
def test_malformed_code_json_is_not_a_server_error(
    sale: SeckillVoucher, shopper: Client, body: bytes
) -> None:
    answer = shopper.post(f"/vouchers/{sale.pk}/code/", body, content_type="application/json")
    assert answer.status_code in (400, 409)


@pytest.fixture(autouse=True)
def empty_cache() -> None:
    cache.clear()
