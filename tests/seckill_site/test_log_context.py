"""The fields of a log line: what its code was working at."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from celery.signals import task_postrun, task_prerun
from django.http import HttpRequest, HttpResponse
from pytest_django import Settings

from seckill_site.front_door.requests import environ_of
from seckill_site.log_context import PEER, fields_here, log_fields, note_request
from seckill_site.log_lines import JsonLine
from seckill_site.web.middleware import site_guard

pytestmark = pytest.mark.quick

NGINX, CLIENT, REQUEST_ID = "10.0.0.9", "203.0.113.7", "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture(autouse=True)
def _no_request() -> Any:
    yield
    note_request(None)


def request_from(peer: str, path: str = "/vouchers/7/orders/8123/pay/") -> dict[str, Any]:
    return {"PATH_INFO": path, "HTTP_X_REQUEST_ID": REQUEST_ID, "REMOTE_ADDR": CLIENT, PEER: peer}


@pytest.mark.parametrize(
    ("peer", "proxies", "is_named"),
    [
        (NGINX, [NGINX], True),
        (NGINX, ["10.0.0.0/24"], True),
        ("", [NGINX], False),
        (CLIENT, [NGINX], False),
        (NGINX, [], False),
    ],
)
def test_request_id_is_that_of_a_trusted_proxy(
    peer: str, proxies: list[str], is_named: bool, settings: Settings
) -> None:
    settings.SECKILL_TRUSTED_PROXIES = proxies
    note_request(request_from(peer))
    assert (fields_here().get("request_id") == REQUEST_ID) is is_named


@pytest.mark.parametrize("text", ["x" * 65, 'a"b', "a b", "ü", ""])
def test_request_id_is_short_and_plain(text: str, settings: Settings) -> None:
    settings.SECKILL_TRUSTED_PROXIES = [NGINX]
    note_request(request_from(NGINX) | {"HTTP_X_REQUEST_ID": text})
    assert "request_id" not in fields_here()


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/vouchers/7/orders/8123/pay/", {"sale_id": "7", "order_id": "8123"}),
        ("/vouchers/7/live/", {"sale_id": "7"}),
        ("/vouchers/7/orders/", {"sale_id": "7"}),
        ("/orders/", {}),
    ],
)
def test_address_of_a_request_names_sale_and_order(path: str, fields: dict[str, str]) -> None:
    note_request(request_from("", path))
    assert fields_here() == fields


def test_django_names_the_request_while_it_answers() -> None:
    request = HttpRequest()
    request.method = "GET"
    request.META = {"REQUEST_METHOD": "GET", "HTTP_HOST": "testserver", **request_from("")}
    seen: list[dict[str, str]] = []

    def answer(_: HttpRequest) -> HttpResponse:
        seen.append(fields_here())
        return HttpResponse()

    site_guard(answer)(request)
    assert seen == [{"sale_id": "7", "order_id": "8123"}]
    assert fields_here() == {}


def test_client_cannot_name_the_peer() -> None:
    """A header of that name is another key of the environment."""
    scope = {"method": "GET", "path": "/", "headers": [(b"seckill.peer", NGINX.encode())]}
    assert environ_of(scope)[PEER] == ""


class Named:
    name = "orders.tasks.fulfill_sale"


def test_task_names_itself_its_sale_and_its_order() -> None:
    task = Named()
    task_prerun.send(sender=task, task=task, kwargs={"sale_id": 7, "token": "secret"})
    with log_fields(order_id=8123):
        inside = fields_here()
    assert inside == {"task": task.name, "sale_id": "7", "order_id": "8123"}
    assert fields_here() == {"task": task.name, "sale_id": "7"}
    task_postrun.send(sender=task, task=task, kwargs={}, state="SUCCESS")
    assert fields_here() == {}


def test_json_line_has_no_other_fields() -> None:
    """A record's own extras may hold anything, such as a request with its cookies."""
    record = logging.makeLogRecord(
        {"name": "orders", "msg": "sold %s", "args": ("七",), "levelname": "INFO", "created": 0.0}
    )
    record.request, record.data = "sessionid=secret", {"password": "secret"}
    with log_fields(sale_id=7):
        line = JsonLine().format(record)
    fields = json.loads(line)
    assert fields.pop("time").startswith("1970-01-01T")
    assert fields.pop("process").endswith(f"/{record.process}")
    assert fields == {"level": "INFO", "place": "orders", "text": "sold 七", "sale_id": "7"}


def test_json_line_has_the_traceback() -> None:
    make: Callable[[], int] = lambda: 1 // 0  # noqa: E731
    try:
        make()
    except ZeroDivisionError as error:
        exc_info = (type(error), error, error.__traceback__)
    record = logging.makeLogRecord({"msg": "failed", "exc_info": exc_info})
    assert "ZeroDivisionError" in json.loads(JsonLine().format(record))["traceback"]
