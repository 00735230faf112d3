"""A sale with a rule in a browser: the reason in words, and as the button what helps."""

from __future__ import annotations

import datetime as dt
import re

import pytest
from django.contrib.auth.models import Group, User
from django.utils import timezone
from playwright.sync_api import Page, expect

from orders.models import CodeUse, InvitationCode
from tests.browser.conftest import PATIENT_MS, Person, make_person, put_on_sale
from tests.orders.audience.rules import give_code
from tests.support.orders import make_order, make_sale
from tests.support.stack import Web

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.usefixtures("row_locks", "workers"),
]

WRONG = "This code does not exist, or it was entered for another account."
THREE_DAYS_S = 3 * 86_400


def look_again(page: Page) -> None:
    """Let a page ask as it does when its tab is looked at again."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def expect_no_button(page: Page) -> None:
    expect(page.locator(".bar .button--buy:visible")).to_have_count(0)


def test_wrong_code_is_said_in_place_and_the_right_one_buys(person: Person, web: Web) -> None:
    sale = put_on_sale(needs_code=True)
    give_code(sale, None)
    page = person(ann := make_person("ann"), locale="en")
    page.goto(f"{web.url}/vouchers/{sale.pk}/")
    expect(page.locator("#status")).to_have_text(
        "This sale takes an invitation code. Enter yours below."
    )
    expect(page.locator(".bar .button--buy:visible")).to_have_text("Enter code")
    expect(page.get_by_text("Only with an invitation code")).to_be_visible()
    page.evaluate("window.neverReloaded = true")
    field = page.get_by_label("Invitation code")
    field.fill("no such code")
    field.press("Enter")

    expect(page.locator("#code-error")).to_have_text(WRONG)
    expect(field).to_have_value("no such code")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_be_focused()
    page.keyboard.type("!")
    expect(page.locator("#code-error")).to_be_empty()
    field.fill("welcome-1")
    page.get_by_role("button", name="Enter code").click()
    button = page.get_by_role("button", name="Buy now")
    expect(button).to_be_visible(timeout=PATIENT_MS)
    assert page.evaluate("window.neverReloaded")
    button.click()
    page.wait_for_url("**/orders/*/")
    expect(page.get_by_role("heading", name="It's yours!")).to_be_visible(timeout=PATIENT_MS)
    assert InvitationCode.objects.get(seckill_voucher=sale).user == ann
    order_id = page.url.rstrip("/").rpartition("/")[2]
    assert CodeUse.objects.get(code__seckill_voucher=sale).order_id == int(order_id)


def test_code_that_gets_no_answer_stays_in_its_field(people: Person, web: Web) -> None:
    sale = put_on_sale(needs_code=True)
    page = people(make_person("fay"), locale="en")
    page.goto(f"{web.url}/vouchers/{sale.pk}/")
    page.route("**/code/", lambda route: route.abort())
    page.get_by_label("Invitation code").fill("welcome-1")
    page.get_by_role("button", name="Enter code").click()
    expect(page.locator("#code-error")).to_have_text("The shop did not answer. Try again.")
    expect(page.get_by_label("Invitation code")).to_have_value("welcome-1")


def test_buyer_without_javascript_enters_a_code_and_buys(person: Person, web: Web) -> None:
    sale = put_on_sale(needs_code=True)
    give_code(sale, None)
    page = person(make_person("ben"), locale="en", java_script_enabled=False)
    page.goto(f"{web.url}/vouchers/{sale.pk}/")
    page.get_by_role("link", name="Buy without JavaScript").click()
    page.get_by_label("Invitation code").fill("no such code")
    page.get_by_role("button", name="Enter code").click()
    expect(page.get_by_text(WRONG)).to_be_visible()
    expect(page.get_by_label("Invitation code")).to_have_value("no such code")
    page.get_by_label("Invitation code").fill("welcome-1")
    page.get_by_role("button", name="Enter code").click()
    page.get_by_role("button", name="Buy now").click()
    page.wait_for_url("**/orders/*/")


def test_rule_that_nothing_helps_is_a_sentence_without_button(person: Person, web: Web) -> None:
    members = Group.objects.create(name="members")
    sale = put_on_sale(begins_in_s=3600, group_id=members.pk)
    page = person(cat := make_person("cat"), locale="en")
    page.goto(f"{web.url}/vouchers/{sale.pk}/")
    expect(page.locator("#main")).to_have_attribute("data-state", "not_eligible")
    expect(page.locator("#status")).not_to_be_empty()
    expect_no_button(page)
    expect(page.locator("#code-entry")).to_be_hidden()
    members.user_set.add(cat)
    button = page.locator("#buy")
    while button.is_hidden():  # until the verdict of before is forgotten
        with page.expect_response("**/me/**"):
            look_again(page)
        page.wait_for_timeout(300)
    expect(button).to_contain_text("Starts in", timeout=PATIENT_MS)
    expect(page.locator("#token")).not_to_have_value("")


@pytest.mark.parametrize("with_script", [True, False])
def test_buyer_without_a_contact_is_led_to_verify_one(
    person: Person, web: Web, with_script: bool
) -> None:
    sale = put_on_sale(needs_contact=True)
    page = person(make_person(f"eve{with_script}"), locale="en", java_script_enabled=with_script)
    here = f"/vouchers/{sale.pk}/{'' if with_script else 'form/'}"
    page.goto(f"{web.url}{here}")
    expect(page.locator(".bar .button--buy:visible")).to_have_text("Verify phone")
    email = page.get_by_role("link", name="Verify email")
    expect(email).to_have_attribute("href", f"/accounts/email/?next={here}")
    page.get_by_role("link", name="Verify phone").click()
    page.wait_for_url(f"**/accounts/phone/change/?next={here}")


def test_buyer_with_unpaid_orders_is_led_to_pay_one(person: Person, web: Web) -> None:
    dan = make_person("dan")
    orders = [make_order(make_sale(loaded=False), dan) for _ in range(5)]
    sale, page = put_on_sale(), person(dan, locale="en")
    link = page.get_by_role("link", name="Pay your order")
    page.goto(f"{web.url}/vouchers/{sale.pk}/")
    while link.is_hidden():  # until the web process has counted again
        page.wait_for_timeout(500)
        with page.expect_response("**/me/**"):
            look_again(page)
    expect(page.locator("#status")).to_contain_text("5 or more unpaid orders")
    expect(page.locator(".bar .button--buy:visible")).to_have_count(1)
    link.click()
    page.wait_for_url(f"**/orders/{orders[-1].pk}/")


def make_young(name: str, *, left: dt.timedelta, hours: int) -> User:
    """Return an account that will be so many hours old in a while."""
    user = make_person(name)
    joined = timezone.now() + left - dt.timedelta(hours=hours)
    User.objects.filter(pk=user.pk).update(date_joined=joined)
    return user


def test_young_account_reads_its_day_and_then_buys(person: Person, web: Web) -> None:
    young = make_young("gus", left=dt.timedelta(seconds=20), hours=2)
    page = person(young, locale="en")
    page.goto(f"{web.url}/vouchers/{put_on_sale(account_age_h=2).pk}/")
    label = page.locator("#buy-label")
    expect(label).to_have_text(re.compile(r"^Eligible from \d+ \w{3}, \d\d:\d\d$"))
    expect(page.locator("#buy")).to_have_attribute("aria-disabled", "true")
    expect(label).to_have_text("Buy now", timeout=PATIENT_MS)  # by itself


@pytest.mark.parametrize(
    ("locale", "words"), [("en", "Eligible from {}"), ("zh-CN", "{} 起可购买")]
)
def test_day_is_written_as_by_the_server(person: Person, web: Web, locale: str, words: str) -> None:
    young = make_young(f"hal {locale}", left=dt.timedelta(days=1), hours=48)
    sale = put_on_sale(account_age_h=48, ends_in_s=THREE_DAYS_S)
    page, plain = (person(young, locale=locale, java_script_enabled=on) for on in (True, False))
    plain.goto(f"{web.url}/vouchers/{sale.pk}/form/")
    page.goto(f"{web.url}/vouchers/{sale.pk}/")
    day = r"\d+ \w{3}, \d\d:\d\d" if locale == "en" else r"\d+月\d+日 \d\d:\d\d"
    expect(page.locator("#buy-label")).to_have_text(re.compile(f"^{words.format(day)}$"))
    expect(plain.locator(".bar .button--buy")).to_have_text(page.locator("#buy-label").inner_text())


def test_day_after_the_end_is_no_button(person: Person, web: Web) -> None:
    young = make_young("ida", left=dt.timedelta(days=1), hours=48)
    page = person(young, locale="en")
    page.goto(f"{web.url}/vouchers/{put_on_sale(account_age_h=48).pk}/")
    expect(page.locator("#status")).to_contain_text("ends before your account is old enough")
    expect_no_button(page)
