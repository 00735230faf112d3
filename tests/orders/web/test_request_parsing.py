"""Reading an order request: the same fields out of JSON, a form and a multipart form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.http import HttpRequest
from django.test import RequestFactory
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart

from orders.web.request_parsing import (
    LARGEST_BODY_BYTES,
    InvalidRequest,
    OrderRequest,
    read_order_request,
)

pytestmark = pytest.mark.quick

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"


def a_request(body: bytes | str, content_type: str, **extra: Any) -> HttpRequest:
    return RequestFactory().generic("POST", "/", body, content_type=content_type, **extra)


def refusal_of(request: HttpRequest) -> int:
    with pytest.raises(InvalidRequest) as caught:
        read_order_request(request)
    assert caught.value.text
    return caught.value.status


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ('{"token": "t:s", "attempt": 3}', JSON),
        ('{"token": "t:s", "attempt": "3"}', JSON + "; charset=utf-8"),
        ('\n {"attempt": 3, "token": "t:s", "more": [1, {"a": null}]} ', "APPLICATION/JSON"),
        ("token=t%3As&attempt=3", FORM),
        ("attempt=3&token=t:s&more=", FORM + "; charset=utf-8"),
        ("token=t:s&attempt=0003", ""),
        (encode_multipart(BOUNDARY, {"token": "t:s", "attempt": "3"}), MULTIPART_CONTENT),
    ],
)
def test_each_encoding_carries_token_and_attempt(body: bytes | str, content_type: str) -> None:
    assert read_order_request(a_request(body, content_type)) == OrderRequest("t:s", 3)


@pytest.mark.parametrize(
    ("body", "content_type"), [("{}", JSON), ("", FORM), ("", ""), ("a=1", FORM)]
)
def test_missing_fields_are_none(body: str, content_type: str) -> None:
    assert read_order_request(a_request(body, content_type)) == OrderRequest(None, None)


@pytest.mark.parametrize("attempt", [1, 2, 9999, "1", "9999", "0001"])
def test_attempt_is_1_to_9999(attempt: object) -> None:
    request = a_request(json.dumps({"attempt": attempt}), JSON)
    assert read_order_request(request).attempt == int(str(attempt))


@pytest.mark.parametrize("attempt", [None, ""])
def test_attempt_may_be_empty(attempt: object) -> None:
    assert read_order_request(a_request(json.dumps({"attempt": attempt}), JSON)).attempt is None


@pytest.mark.parametrize(
    "attempt",
    [
        0, -1, 10_000, 10**40, 1.0, 1.5, True, False, float("nan"), float("inf"), [], [1], {},
        "0", "-1", "+1", " 1", "1 ", "1_000", "10000", "00001", "1e3", "0x1", "１", "٣", "²", "one",
        "1\0", "\ud800", "true", "null",
    ],
)  # fmt: skip
def test_malformed_attempt_is_invalid(attempt: object) -> None:
    assert refusal_of(a_request(json.dumps({"token": "t", "attempt": attempt}), JSON)) == 400


@pytest.mark.parametrize(
    "body",
    [
        b" ", b"token", b"[]", b'["token"]', b'"token"', b"1", b"1.5", b"true", b"null", b"NaN",
        b'{"token": "t"', b'{"token": "t"} {}', b"{'token': 't'}", b'{"token": "t",}',
        b"{token: 1}",
        b'{"token": "t", "token": "t"}', b'{"token": "t", "more": {"a": 1, "a": 2}}',
        b'{"token": "\xff"}', b"\xff\xfe", b'\xef\xbb\xbf{"token": "t"}',
        b'{"token": "\xed\xa0\x80"}',
        '{"token": "t"}'.encode("utf-16"), '{"token": "t"}'.encode("utf-16-le"),
        '{"token": "t"}'.encode("utf-32"), b"[" * 4_000, b'{"a":' * 1_500, b'{"token": "t\n"}',
        b'{"attempt": ' + b"9" * 5_000 + b"}", b'\0{"token": "t"}', b'{"token": "t"}\0',
    ],
)  # fmt: skip
def test_non_json_object_is_invalid(body: bytes) -> None:
    assert refusal_of(a_request(body, JSON)) == 400


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_nan_and_infinity_are_invalid(constant: str) -> None:
    assert refusal_of(a_request(f'{{"token": "t", "more": {constant}}}', JSON)) == 400


@pytest.mark.parametrize(
    "body",
    [
        b"token=t&token=t", b"token=%ff", b"token=\xff", b"token=%ed%a0%80",
        b"&".join(b"f%d=1" % n for n in range(21)), b"attempt=1&attempt=2",
    ],
)  # fmt: skip
def test_ambiguous_form_is_invalid(body: bytes) -> None:
    assert refusal_of(a_request(body, FORM)) == 400


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain", "text/html", "application/xml", "application/jsonx", "json", "*/*", "x",
        "application/octet-stream", "multipart/mixed; boundary=x", "image/png",
    ],
)  # fmt: skip
def test_other_content_type_returns_415(content_type: str) -> None:
    assert refusal_of(a_request('{"token": "t"}', content_type)) == 415


@pytest.mark.parametrize("content_type", [JSON, FORM, "", MULTIPART_CONTENT])
def test_body_above_8_kilobytes_returns_413(content_type: str) -> None:
    assert refusal_of(a_request(b"x" * (LARGEST_BODY_BYTES + 1), content_type)) == 413
    assert refusal_of(a_request(b"x" * 100_000, content_type)) == 413


@pytest.mark.parametrize("content_type", [JSON, FORM])
def test_body_of_exactly_8_kilobytes_is_read(content_type: str) -> None:
    body = {JSON: '{"token": "%s"}', FORM: "token=%s"}[content_type]
    token = "x" * (LARGEST_BODY_BYTES - len(body) + 2)
    assert read_order_request(a_request(body % token, content_type)).token == token
