"""Work before a purchase in a browser, and the picture in its place without JavaScript."""

from __future__ import annotations

import re

import pytest
from captcha.models import CaptchaStore
from django.templatetags.static import static
from playwright.sync_api import Request, expect

from orders.placing.tokens import PurchaseToken, check_work, read_token
from tests.browser.conftest import PATIENT_MS, Person, make_person, put_on_sale
from tests.support.stack import Web
from vouchers.models import SeckillVoucher, Work

pytestmark = [
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.usefixtures("row_locks", "workers"),
]


def sent_text(request: Request) -> str:
    body = request.post_data_json
    assert isinstance(body, dict)
    return str(body["token"])


def read(text: str, sale: SeckillVoucher) -> PurchaseToken:
    return read_token(text, sale_id=sale.pk, now_ms=0)


def test_browser_does_the_work_and_buys(person: Person, web: Web) -> None:
    sale = put_on_sale(work=Work.USUAL)
    page = person(make_person("ann"), locale="en")
    page.goto(f"{web.url}/vouchers/{sale.pk}/")
    button = page.get_by_role("button", name="Buy now")
    expect(button).to_be_enabled(timeout=PATIENT_MS)
    with page.expect_request("**/orders/", timeout=PATIENT_MS) as sent:
        button.click()
    text = sent_text(sent.value)
    token = read(text, sale)
    assert token.work == Work.USUAL
    check_work(token, text)
    expect(page).to_have_url(f"{web.url}/vouchers/{sale.pk}/orders/{token.order_id}/")


def test_browser_without_workers_does_the_work_itself(person: Person, web: Web) -> None:
    sale = put_on_sale(work=Work.USUAL)
    page = person(make_person("eve"), locale="en")
    page.add_init_script("window.Worker = class { constructor() { throw new Error('none'); } };")
    page.goto(f"{web.url}/vouchers/{sale.pk}/")
    button = page.get_by_role("button", name="Buy now")
    expect(button).to_be_enabled(timeout=PATIENT_MS)
    button.click()
    page.wait_for_url("**/orders/*/", timeout=PATIENT_MS)


def test_work_is_done_before_the_start(person: Person, web: Web) -> None:
    sale = put_on_sale(work=Work.USUAL, begins_in_s=3600)
    page = person(make_person("ben"), locale="en")
    page.goto(f"{web.url}/vouchers/{sale.pk}/")
    expect(page.locator("#token")).to_have_value(re.compile("~"), timeout=PATIENT_MS)
    text = page.locator("#token").input_value()
    check_work(read(text, sale), text)


def test_nonce_fits_whatever_the_length_of_a_token(person: Person, web: Web) -> None:
    page = person(make_person("dan"), locale="en")
    page.goto(f"{web.url}/vouchers/{put_on_sale(work=Work.USUAL).pk}/")
    src = static("seckill/work.js")
    texts = ["1" * length + "-w9:A" for length in range(60, 140)]
    found = page.evaluate(
        """async ([src, texts]) => {
          const { doWork } = await import(src);
          return texts.map((text) => doWork(text, 9));
        }""",
        [src, texts],
    )
    for text, worked in zip(texts, found, strict=True):
        assert worked.startswith(f"{text}~")
        check_work(PurchaseToken(1, 1, 1, 1, work=9), worked)


def test_buyer_without_javascript_answers_a_picture(person: Person, web: Web) -> None:
    sale = put_on_sale(work=Work.USUAL)
    page = person(make_person("cat"), locale="en", java_script_enabled=False)
    page.goto(f"{web.url}/vouchers/{sale.pk}/")
    page.get_by_role("link", name="Buy without JavaScript").click()
    picture = page.get_by_role("img", name="A picture of letters")
    expect(picture).to_be_visible()
    page.wait_for_load_state()  # the picture comes after the page
    assert picture.evaluate("it => it.naturalWidth")
    page.get_by_label("Letters in the picture").fill("wrong")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_text("Those letters are not right.")).to_be_visible()
    key = page.locator("input[name=answer_0]").input_value()
    right = CaptchaStore.objects.get(hashkey=key).response
    page.get_by_label("Letters in the picture").fill(right)
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Buy now").click()
    page.wait_for_url("**/orders/*/")
