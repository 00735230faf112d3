"""Webhooks in the admin: secrets shown once, endpoints that need attention, the log."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from api.models import WebhookDelivery, WebhookEndpoint
from tests.support.api import make_delivery, make_endpoint
from tests.support.html_forms import edit
from tests.support.orders import make_sale
from tests.support.payments import make_unpaid_order, pay
from tests.support.tiers import slow_after

pytestmark = pytest.mark.django_db

LIST = "/admin/api/webhookendpoint/"
LOG = "/admin/api/webhookdelivery/"
SECRET = re.compile(r"whsec_[\w+/]{43}=")
FORM = {"url": "https://example.com/hook", "topics": ["order.paid"], "active": "on"}


def secret_in(response: Any) -> str:
    (found,) = set(SECRET.findall(response.text))
    return str(found)


def test_secret_is_shown_once(shop: Client) -> None:
    secret = secret_in(shop.post(f"{LIST}add/", FORM))

    endpoint = WebhookEndpoint.objects.get()
    assert (endpoint.secret, endpoint.topics, endpoint.active) == (secret, ["order.paid"], True)
    for page in (LIST, f"{LIST}{endpoint.pk}/change/", f"{LIST}{endpoint.pk}/history/"):
        assert secret not in shop.get(page).text


def test_new_webhook_promises_no_old_secret(shop: Client) -> None:
    page = shop.post(f"{LIST}add/", FORM).text
    assert "Copy this secret now. It is not shown again." in page
    assert "24 hours" not in page


def test_secrets_have_a_button_that_copies_them(shop: Client) -> None:
    token = {"name": "till", "owner": User.objects.get().pk, "scopes": "redeem", "days": "30"}
    for url, fields in ((LIST, FORM), ("/admin/api/apitoken/", token)):
        page = shop.post(f"{url}add/", fields).text
        (secret,) = re.findall(r'id="code" translate="no">([^<]+)<', page)
        assert f'data-copy="{secret}"' in page
        assert "seckill/copy." in page


def test_log_says_what_went_wrong_in_the_readers_language(shop: Client) -> None:
    order = make_unpaid_order(make_sale())
    pay(order)
    delivery = make_delivery(make_endpoint("https://example.com/hook"), order)
    for error, shown in {
        "example.com has no address": "example.com 的地址无法解析",
        "no answer within 5 s": "5 秒内没有响应",
        "10.0.0.1 is not a public address": "10.0.0.1 不是公网地址",
    }.items():
        WebhookDelivery.objects.update(error=error)
        for url in (LOG, f"{LOG}{delivery.pk}/change/"):
            page = shop.get(url, headers={"Accept-Language": "zh-hans"}).text
            assert shown in page
            assert "消息编号" in page


def test_new_secret_leaves_the_old_one_for_a_day(shop: Client) -> None:
    endpoint = make_endpoint("https://example.com/hook")
    chosen = {"action": "rotate", "_selected_action": [endpoint.pk]}
    secret = secret_in(shop.post(LIST, chosen))

    old = endpoint.secret
    endpoint.refresh_from_db()
    assert (endpoint.secret, endpoint.old_secret) == (secret, old)
    assert endpoint.old_secret_until is not None


@pytest.mark.parametrize(
    "url",
    slow_after(
        1,
        [
            *("http://example.com/", "https://127.0.0.1/", "https://[::1]/", "https://10.0.0.1/x"),
            *(
                "https://169.254.169.254/latest/meta-data/",
                "https://u:p@example.com/",
                "ftp://x.com/",
            ),
            *("https://localhost/", "https://shop.localhost/x", "https://[::127.0.0.1]/"),
            *("https://[::10.0.0.1]/", "https://[::ffff:0:127.0.0.1]/", "https://[5f00::1]/"),
        ],
    ),
)
def test_address_that_is_not_public_is_refused(shop: Client, url: str) -> None:
    response = shop.post(f"{LIST}add/", {**FORM, "url": url})
    assert response.status_code == 200
    assert not WebhookEndpoint.objects.exists()


def test_address_in_another_script_is_stored_as_it_is_sent(shop: Client) -> None:
    shop.post(f"{LIST}add/", {**FORM, "url": "https://例子.example/钩"})
    assert WebhookEndpoint.objects.get().url == "https://xn--fsqu00a.example/%E9%92%A9"


def test_disabled_endpoint_needs_attention_until_it_is_active_again(shop: Client) -> None:
    now = timezone.now()
    endpoint = make_endpoint(
        "https://example.com/hook",
        active=False,
        disabled_at=now,
        failing_since=now,
        failures=9,
        paused_until=now,
    )
    assert "needs attention" in shop.get(LIST).text

    edit(shop, f"{LIST}{endpoint.pk}/change/", FORM)

    endpoint.refresh_from_db()
    assert (endpoint.active, endpoint.disabled_at, endpoint.failures) == (True, None, 0)
    assert "needs attention" not in shop.get(LIST).text


def test_log_shows_the_answer_and_sends_again(shop: Client) -> None:
    order = make_unpaid_order(make_sale())
    pay(order)
    delivery = make_delivery(make_endpoint("https://example.com/hook"), order)
    WebhookDelivery.objects.update(
        state="failed", tries=11, tried_at=timezone.now(), status=500, answer="<b>no</b>"
    )
    assert "HTTP 500" in shop.get(LOG).text
    page = shop.get(f"{LOG}{delivery.pk}/change/").text
    assert "&lt;b&gt;no&lt;/b&gt;" in page

    shop.post(LOG, {"action": "resend", "_selected_action": [delivery.pk]})

    delivery.refresh_from_db()
    assert (delivery.state, delivery.tries) == ("waiting", 0)
    assert delivery.next_at is not None
