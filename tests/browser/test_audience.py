"""A sale with a rule in a browser: what it says, and the way in with an invitation code."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group
from playwright.sync_api import Page, expect

from orders.models import CodeUse, InvitationCode
from tests.browser.conftest import PATIENT_MS, Person, make_person, put_on_sale
from tests.orders.audience.rules import give_code
from tests.support.stack import Web

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.usefixtures("row_locks", "workers"),
]


def test_buyer_enters_a_code_and_buys(person: Person, web: Web) -> None:
    sale = put_on_sale(needs_code=True)
    give_code(sale, None)
    page = person(ann := make_person("ann"), locale="en")
    page.goto(f"{web.url}/vouchers/{sale.pk}/")
    expect(page.get_by_role("button", name="Enter your code first")).to_be_visible()
    expect(page.locator("#status")).to_have_text(
        "This sale takes an invitation code. Enter yours below."
    )
    expect(page.get_by_text("Only with an invitation code")).to_be_visible()
    page.get_by_label("Invitation code").fill("welcome-1")
    page.get_by_role("button", name="Enter the code").click()
    page.get_by_role("button", name="Buy now").click(timeout=PATIENT_MS)
    page.wait_for_url("**/orders/*/")
    expect(page.get_by_role("heading", name="It's yours!")).to_be_visible(timeout=PATIENT_MS)
    assert InvitationCode.objects.get(seckill_voucher=sale).user == ann
    order_id = page.url.rstrip("/").rpartition("/")[2]
    assert CodeUse.objects.get(code__seckill_voucher=sale).order_id == int(order_id)


def test_buyer_without_javascript_enters_a_code_and_buys(person: Person, web: Web) -> None:
    sale = put_on_sale(needs_code=True)
    give_code(sale, None)
    page = person(make_person("ben"), locale="en", java_script_enabled=False)
    page.goto(f"{web.url}/vouchers/{sale.pk}/")
    page.get_by_role("link", name="Buy without JavaScript").click()
    expect(page.get_by_role("button", name="Enter your code first")).to_be_disabled()
    page.get_by_label("Invitation code").fill("no such code")
    page.get_by_role("button", name="Enter the code").click()
    expect(page.get_by_text("This code does not exist")).to_be_visible()
    page.get_by_role("link", name="Back to the sale").click()
    page.get_by_role("link", name="Buy without JavaScript").click()
    page.get_by_label("Invitation code").fill("welcome-1")
    page.get_by_role("button", name="Enter the code").click()
    page.get_by_role("button", name="Buy now").click()
    page.wait_for_url("**/orders/*/")


def test_rule_is_read_before_the_start_and_checked_by_a_press(person: Person, web: Web) -> None:
    members = Group.objects.create(name="members")
    sale = put_on_sale(begins_in_s=3600, group_id=members.pk)
    page = person(cat := make_person("cat"), locale="en")
    page.goto(f"{web.url}/vouchers/{sale.pk}/")
    button = page.get_by_role("button", name="Members only")
    expect(button).to_be_enabled()
    expect(page.locator("#status")).to_contain_text("a group of accounts that yours is not in")
    expect(page.locator("#code-entry")).to_be_hidden()
    members.user_set.add(cat)
    expect(press(page)).to_contain_text("Starts in", timeout=PATIENT_MS)
    expect(page.locator("#token")).not_to_have_value("")


def press(page: Page) -> Any:
    """Press the button until the verdict of before is forgotten, and return it."""
    button = page.locator("#buy")
    while "Members only" in (button.text_content() or ""):
        with page.expect_response("**/me/**"):
            button.click()
        page.wait_for_timeout(300)
    return button


@pytest.mark.parametrize("with_script", [True, False])
def test_buyer_without_a_contact_is_led_to_confirm_one(
    person: Person, web: Web, with_script: bool
) -> None:
    sale = put_on_sale(needs_contact=True)
    page = person(make_person(f"eve{with_script}"), locale="en", java_script_enabled=with_script)
    page.goto(f"{web.url}/vouchers/{sale.pk}/{'' if with_script else 'form/'}")
    expect(page.get_by_role("button", name="Verify email or phone first")).to_be_visible()
    page.get_by_role("link", name="Verify email or phone", exact=True).click()
    page.wait_for_url("**/accounts/profile/")
