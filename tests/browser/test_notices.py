"""A reader asks to be told, in a browser with and without JavaScript, and stops it by a link."""

from __future__ import annotations

import re
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.contrib.auth.models import User
from django.utils import timezone
from playwright.sync_api import expect

from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.transitions import Actor
from orders.models import Notice
from tests.browser.conftest import Faults, Person, make_person, put_on_sale
from tests.concurrency.sales import DETAILS
from tests.support.patience import eventually
from tests.support.payments import make_unpaid_order
from tests.support.stack import Stack, Web

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.usefixtures("row_locks", "workers"),
]

STOP = re.compile(r"https?://[^/\s]+(/notices/stop/\S+/)$", re.MULTILINE)
HOUR_S = 3_600


def make_reader(name: str) -> User:
    user = make_person(name)
    EmailAddress.objects.create(user=user, email=f"{name}@example.com", verified=True)
    return user


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("ann", {"locale": "en-GB"}, ("Remind me", "We will remind", "Switch off")),
        (
            "bo",
            {"locale": "zh-CN", "java_script_enabled": False},
            ("提醒我", "我们会提前提醒", "关闭提醒"),
        ),
    ],
)
def test_reminder_is_asked_for_and_switched_off(
    people: Person,
    web: Web,
    name: str,
    options: dict[str, Any],
    words: tuple[str, str, str],
) -> None:
    ask, told, off = words
    sale, reader = put_on_sale(begins_in_s=HOUR_S), make_reader(name)
    page, faults = people(reader, **options), Faults(web.url)
    faults.watch(page)

    page.goto(f"/vouchers/{sale.pk}/")
    page.get_by_role("link", name=ask).click()
    page.get_by_role("button", name=ask).click()
    expect(page.locator("main")).to_contain_text(told)
    expect(page.locator("main")).to_contain_text(f"{name}@example.com")
    assert Notice.objects.filter(user=reader, live=True).count() == 1

    page.goto("/accounts/notices/")
    page.get_by_role("link", name=DETAILS.title).click()
    page.get_by_role("button", name=off).click()
    expect(page.get_by_role("button", name=ask)).to_be_visible()
    assert not Notice.objects.filter(user=reader, live=True).exists()
    faults.leave()
    assert not faults.found


def test_visitor_signs_in_first_and_confirms_an_address(people: Person) -> None:
    sale = put_on_sale(begins_in_s=HOUR_S)
    visitor = people()
    visitor.goto(f"/vouchers/{sale.pk}/")
    visitor.get_by_role("link", name="Remind me").click()
    visitor.wait_for_url(f"**/accounts/login/?next=/vouchers/{sale.pk}/notice/")

    page = people(make_person("unknown"))
    page.goto(f"/vouchers/{sale.pk}/notice/")
    page.get_by_role("link", name="Verify an email address").click()
    page.wait_for_url(
        lambda url: url.endswith(f"/accounts/email/?next=/vouchers/{sale.pk}/notice/")
    )


@pytest.mark.parametrize("scripts", [True, False])
def test_free_unit_is_told_by_mail_with_a_stop_link(
    people: Person, module_stack: Stack, scripts: bool
) -> None:
    sale = put_on_sale(stock=1, begins_in_s=-HOUR_S)
    order = make_unpaid_order(sale)
    reader = make_reader(f"cy-{scripts}".lower())
    page = people(reader, java_script_enabled=scripts)

    page.goto(f"/vouchers/{sale.pk}/" if scripts else f"/vouchers/{sale.pk}/form/")
    page.get_by_role("link", name="Tell me when one is back").click()
    page.get_by_role("button", name="Tell me when one is back").click()
    expect(page.locator("main")).to_contain_text("We will tell")

    cancel_order(order_id=order.pk, by=Actor.staff(None), why="", now=timezone.now())
    notice = Notice.objects.get(user=reader)
    assert eventually(lambda: Notice.objects.filter(pk=notice.pk, live=False).exists())
    printed = "".join(it.text() for it in module_stack.processes)
    mail = printed[printed.rindex(f"To: {reader.username}@example.com") :]
    found = STOP.search(mail)
    assert found

    other = put_on_sale(begins_in_s=HOUR_S)
    Notice.objects.create(
        seckill_voucher=other, user=reader, kind=Notice.Kind.START, asked_at=timezone.now()
    )
    stranger = people(java_script_enabled=scripts)
    stranger.goto(found[1])
    assert Notice.objects.filter(user=reader, live=True).exists()
    stranger.get_by_role("button", name="Stop reminders").click()
    expect(stranger.locator("main")).to_contain_text("Done.")
    assert not Notice.objects.filter(user=reader, live=True).exists()
