"""Choosing a payment provider in browsers, and WeChat Pay's code on a page of the shop."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import expect

from orders.models import Payment
from tests.browser.conftest import Person, make_person
from tests.browser.test_accessibility import findings
from tests.browser.test_after_the_win import buy, expect_the_code
from tests.concurrency.sales import make_sale
from tests.support.qr_codes import read_qr
from tests.support.stack import Stack, Web
from tests.support.stand_ins.wechat import WeChatStandIn

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.usefixtures("row_locks", "workers"),
]

PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
DESK: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}


@pytest.fixture(scope="module")
def wechat() -> Iterator[WeChatStandIn]:
    stand_in = WeChatStandIn()
    yield stand_in
    stand_in.close()
    assert stand_in.violations == []


@pytest.fixture(scope="module")
def environ(wechat: WeChatStandIn) -> dict[str, Any]:
    """The settings of the sandbox and WeChat Pay, as a shop would write them."""
    keys = SimpleNamespace()
    wechat.configure(keys)
    ((key_id, public),) = keys.SECKILL_WECHAT_PUBLIC_KEYS.items()
    providers = f"orders.payments.sandbox.Sandbox,{wechat.path}"
    return {
        **vars(keys),
        "SECKILL_WECHAT_PUBLIC_KEYS": f"{key_id}={public}",
        "SECKILL_PAYMENT_PROVIDERS": providers,
    }


@pytest.fixture(scope="module")
def web(module_stack: Stack, environ: dict[str, Any]) -> Web:
    return module_stack.web(workers=1, threads=6, **environ)


@pytest.fixture(scope="module")
def workers(module_stack: Stack, environ: dict[str, Any]) -> None:
    """Workers as script/server runs them: one for orders, one for payments."""
    with module_stack.together():
        module_stack.worker("--beat", "--queues", "celery", **environ)
        module_stack.worker("--queues", "payments", "--hostname", "payments@%h", **environ)


@pytest.mark.parametrize("javascript", [True, False], ids=["script", "no-script"])
def test_buyer_chooses_and_scans_the_code(
    person: Person, wechat: WeChatStandIn, javascript: bool
) -> None:
    page = person(make_person(f"eve-{javascript}"), java_script_enabled=javascript, **DESK)
    order = buy(page, make_sale(stock=1), path="" if javascript else "form/")
    choice = page.get_by_role("group", name="Pay with")
    expect(choice.get_by_label("Payment sandbox")).to_be_checked()
    choice.get_by_label("WeChat Pay").check()
    page.click("#pay")
    page.wait_for_url("**/pay/code/")
    expect(page.locator(".code__picture svg")).to_be_visible()
    payment = Payment.objects.get(order=order)
    assert payment.provider == "wechat"
    reader = page if javascript else person()
    scanned = read_qr(reader, page.locator(".code__picture svg").screenshot())
    assert (scanned or "").startswith("weixin://")
    wechat.pay(payment.reference)
    headers, body = wechat.notification(payment.reference, at_s=timezone.now().timestamp())
    answer = page.request.post("/payments/wechat/notify/", data=body, headers=headers)
    assert answer.ok
    page.wait_for_url("**/orders/*/")
    expect_the_code(page, order)


@pytest.mark.parametrize(("screen", "scheme"), [(PHONE, "dark"), (DESK, "light")])
def test_choice_and_code_are_accessible(
    person: Person, screen: dict[str, Any], scheme: str
) -> None:
    page = person(make_person(f"ann-{scheme}"), color_scheme=scheme, bypass_csp=True, **screen)
    buy(page, make_sale(stock=1))
    assert findings(page, inject=True) == set()
    for label in page.locator(".pay-with label").all():
        box = label.bounding_box()
        assert box
        assert box["height"] >= 44
    page.get_by_label("WeChat Pay").check()
    page.click("#pay")
    page.wait_for_url("**/pay/code/")
    assert findings(page, inject=True) == set()
    assert page.evaluate("document.documentElement.scrollWidth") <= screen["viewport"]["width"]
