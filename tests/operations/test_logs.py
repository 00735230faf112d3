"""The logs of a whole run: no secret in any line, and few lines while Redis is silent."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest
from django.conf import settings
from django.contrib.auth.models import User

from orders.lifecycle.redemption import written_code
from orders.models import OrderStatus, VoucherOrder
from tests.concurrency.sales import crowd_of, make_sale, order_requests
from tests.support.api import make_endpoint, make_token
from tests.support.browsers import session_cookie
from tests.support.crowd import fire
from tests.support.orders import make_buyer, token_for
from tests.support.orders import make_sale as make_row
from tests.support.patience import wait_for
from tests.support.payments import pay
from tests.support.proxy import FaultProxy, redis_server
from tests.support.stack import Process, Stack, Web
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.operations, pytest.mark.usefixtures("row_locks")]

PASSWORD, WRONG = "correct-horse-battery", "wrong-horse-battery"
STORM_S, MOST_LINES_A_MINUTE = 20.0, 2_000


def ask(
    web: Web, method: str, path: str, body: str = "", **headers: str
) -> http.client.HTTPResponse:
    """Send a request and return its answer, which was read."""
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=30)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body.encode(), named)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def post_form(web: Web, path: str, cookie: str, **fields: str) -> http.client.HTTPResponse:
    csrf = "c" * 32
    return ask(
        web, "POST", path, urlencode({**fields, "csrfmiddlewaretoken": csrf}),
        Cookie=f"{cookie}; {settings.CSRF_COOKIE_NAME}={csrf}", Origin=web.url,
        Content_Type="application/x-www-form-urlencoded", Accept="text/html",
    )  # fmt: skip


class Run:
    """What people and programs do in a shop; ``secrets`` are what no log may hold."""

    def __init__(self, worker: Process) -> None:
        self.worker = worker
        self.secrets: set[str] = {PASSWORD, WRONG, settings.SECRET_KEY}
        for url in (settings.REDIS_URL, settings.CELERY_BROKER_URL):
            self.secrets |= {it for it in [urlsplit(url).password] if it}
        self.owner = User.objects.create_user(
            "owner", password=PASSWORD, is_staff=True, is_superuser=True
        )
        _, self.api_token = make_token(owner=self.owner)
        self.webhook = make_endpoint("http://127.0.0.1:9/hook").secret
        self.secrets |= {self.api_token, self.webhook}

    def go_through(self, web: Web) -> None:
        sale, buyer = make_row(loaded=False), make_buyer()  # the first order loads it
        voucher = self._buy(web, sale, buyer)
        self._sign_in(web)
        self._show(web, voucher, buyer)
        self._refused(web, sale)

    def _buy(self, web: Web, sale: SeckillVoucher, buyer: User) -> VoucherOrder:
        token = token_for(sale, buyer)
        text, path = token.sign(), f"/vouchers/{sale.pk}/orders/"
        self.secrets |= {text, text.rpartition("-")[2]}
        as_json = {"Content_Type": "application/json", "Accept": "application/json"}
        assert ask(web, "POST", path, json.dumps({"token": text}), **as_json).status == 202
        orders = VoucherOrder.objects.filter(pk=token.order_id, status=OrderStatus.UNPAID)
        wait_for(lambda: orders.exists(), what="an order")
        ask(web, "GET", f"{path}{token.order_id}/", Purchase_Token=text, Accept="application/json")
        ask(web, "POST", path, json.dumps({"token": f"{text}x"}), **as_json)
        ask(web, "POST", path, f'{{"token": "{text}"', **as_json)
        ask(web, "POST", f"{path}?token={quote(text)}", text, Content_Type="text/plain")
        pay(orders.get())
        voucher = VoucherOrder.objects.get(pk=token.order_id)
        assert voucher.code
        self.secrets |= {voucher.code, written_code(voucher.code)}
        return voucher

    def _sign_in(self, web: Web) -> None:
        for password in (WRONG, PASSWORD):
            form = {"username": "owner", "password": password}
            answer = post_form(web, "/accounts/login/", "a=b", **form)
        assert answer.status == 302
        for cookie in answer.headers.get_all("Set-Cookie", []):
            name, _, value = cookie.partition(";")[0].partition("=")
            if name == settings.SESSION_COOKIE_NAME:
                self.secrets.add(value)

    def _show(self, web: Web, voucher: VoucherOrder, buyer: User) -> None:
        mine, staff = session_cookie(buyer), session_cookie(self.owner)
        self.secrets |= {it.partition("=")[2] for it in (mine, staff)}
        receipt = f"/vouchers/{voucher.seckill_voucher_id}/orders/{voucher.pk}/"
        for path in (receipt, f"{receipt}code/", "/orders/", "/accounts/data/"):
            ask(web, "GET", path, Cookie=mine, Accept="text/html")
        change = f"/admin/orders/voucherorder/{voucher.pk}/change/"
        for path in (change, f"/admin/customers/{buyer.pk}/"):
            assert ask(web, "GET", path, Cookie=staff, Accept="text/html").status == 200
        code = str(voucher.code)
        assert post_form(web, "/staff/redeem/", staff, code=code, check="1").status == 200
        assert post_form(web, "/staff/redeem/", staff, code=code).status == 200
        body, bearer = json.dumps({"code": code, "check": True}), f"Bearer {self.api_token}"
        headers = {"Content_Type": "application/json", "Authorization": bearer}
        ask(web, "POST", "/api/v1/redeem/", body, **headers)
        ask(web, "POST", "/api/v1/redeem/", body[:-1], **headers)

    def _refused(self, web: Web, sale: SeckillVoucher) -> None:
        ask(web, "GET", "/", Host="foreign.example")
        ask(web, "POST", f"/vouchers/{sale.pk}/orders/", "{}", Cookie=f"a={PASSWORD}")


def found_in(text: str, secrets: Iterable[str]) -> set[str]:
    """Return the secrets that a text has, as they are or as an address has them."""
    return {it for it in secrets if it in text or quote(it) in text}


@pytest.mark.timeout(300)
def test_no_log_of_a_whole_run_has_a_secret(stack: Stack) -> None:
    as_json: Any = {"SECKILL_LOG_FORMAT": "json", "SECKILL_LOG_LEVEL": "INFO"}
    with stack.together():
        webs = [
            stack.web(**as_json),
            stack.web(SECKILL_LOG_FORMAT="text"),
            stack.web(server="wsgi"),
        ]
        worker = stack.worker("--beat", **as_json)
    run = Run(worker)
    for web in webs:
        run.go_through(web)
    logs = {process.name: process.text() for process in stack.processes}

    assert len(run.secrets) > 20
    assert {name: found for name, it in logs.items() if (found := found_in(it, run.secrets))} == {}
    secret = next(iter(run.secrets))
    assert found_in(f"… {secret} …", run.secrets)  # the search would find one

    lines = [json.loads(it) for it in logs[webs[0].name].splitlines() if it.startswith("{")]
    assert any("loaded sale" in it["text"] and it.get("sale_id") for it in lines)
    lines = [json.loads(it) for it in logs[worker.name].splitlines() if it.startswith("{")]
    done = [it for it in lines if "ordered" in it["text"]]
    assert {it["task"] for it in done} == {"orders.tasks.fulfill_sale"}
    assert {it["sale_id"] for it in done} == {
        str(pk) for pk in VoucherOrder.objects.values_list("seckill_voucher", flat=True)
    }


@pytest.mark.timeout(300)
def test_silent_redis_before_a_crowd_fills_no_disk(stack: Stack) -> None:
    sale = make_sale(stock=1_000)
    tokens = crowd_of(sale, count=200)
    with FaultProxy(redis_server(settings.REDIS_URL)) as line:
        environ: Any = {"REDIS_URL": line.url(0, like=settings.REDIS_URL)}
        with stack.together():
            web = stack.web(workers=2, threads=4, **environ)
            stack.worker("--beat", **environ)
        assert {it.status for it in fire(order_requests(sale, tokens[:50]), url=web.url)} == {202}
        before = sum(len(it.text().splitlines()) for it in stack.processes)
        line.stall()
        start = time.monotonic()
        statuses: set[int] = set()
        while time.monotonic() < start + STORM_S:
            statuses |= {it.status for it in fire(order_requests(sale, tokens), url=web.url)}
        took_s = time.monotonic() - start
        lines = sum(len(it.text().splitlines()) for it in stack.processes) - before
        line.heal()
    assert 503 in statuses
    assert lines / took_s * 60 < MOST_LINES_A_MINUTE, f"{lines} lines in {took_s:.0f} s"
