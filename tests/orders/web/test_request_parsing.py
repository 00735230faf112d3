"""Reading an order request: the same fields out of JSON, a form and a multipart form."""

from __future__ import annotations

import json
from contextlib import suppress
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


def token_in(body: bytes, content_type: str) -> object:
    """Return the token of a request, or None if it is refused by name."""
    with suppress(InvalidRequest):
        return read_order_request(a_request(body, content_type)).token
    return None


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


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ('{"token": "t", "quantity": 3, "all_or_none": true}', JSON),
        ("token=t&quantity=3&all_or_none=1", FORM),
        (
            encode_multipart(BOUNDARY, {"token": "t", "quantity": "3", "all_or_none": "true"}),
            MULTIPART_CONTENT,
        ),
    ],
)
def test_each_encoding_carries_quantity_and_choice(body: bytes | str, content_type: str) -> None:
    asked = read_order_request(a_request(body, content_type))
    assert asked == OrderRequest("t", None, 3, True)


@pytest.mark.parametrize("fields", [{}, {"quantity": None}, {"quantity": ""}, {"quantity": "01"}])
def test_order_without_quantity_is_for_one(fields: dict[str, object]) -> None:
    assert read_order_request(a_request(json.dumps(fields), JSON)).quantity == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("quantity", it) for it in (0, -1, 21, 10**40, 1.0, True, "+2", "２", "1e1")],
        *[("all_or_none", it) for it in (None, 2, "yes", 1.0)],
        ("quantity", [2]),
        ("all_or_none", {}),
    ],
)
def test_malformed_quantity_or_choice_is_invalid(name: str, value: object) -> None:
    assert refusal_of(a_request(json.dumps({"token": "t", name: value}), JSON)) == 400


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
        b'{"token": NaN}', b'{"token": "\xff\xfe\xfd"}', b"\n ",
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
        b"&".join(b"f%d=1" % n for n in range(21)), b"attempt=1&attempt=2", b"token=%ff%fe",
        "token=t".encode("utf-16"), b"token=t&attempt=1_000", b"token=t&attempt=%2B1",
        b"token=t&attempt=%D9%A3",
    ],
)  # fmt: skip
def test_ambiguous_form_is_invalid(body: bytes) -> None:
    assert refusal_of(a_request(body, FORM)) == 400


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain", "text/html", "application/xml", "application/jsonx", "json", "*/*", "x",
        "application/octet-stream", "multipart/mixed; boundary=x", "image/png", "é", "\0",
        "application/json\0", "application/json, text/plain", "a" * 50_000,
        "text/plain; charset=klingon",
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


# --- Multipart forms ------------------------------------------------------------------------------


def part(name: str, value: bytes, more: bytes = b"") -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"'.encode()
    return head + more + b"\r\n\r\n" + value + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()
TOKEN = part("token", b"t:s")


@pytest.mark.parametrize(
    "content_type",
    [
        "multipart/form-data", "multipart/form-data; boundary=",
        "multipart/form-data; boundary=" + "x" * 200, "multipart/form-data; boundary=é",
        "multipart/form-data; boundary=other", f"{MULTIPART_CONTENT}; charset=base64",
        f"{MULTIPART_CONTENT}; charset=undefined",
        f"{MULTIPART_CONTENT}; charset=utf-16",
    ],
)  # fmt: skip
def test_multipart_form_of_another_kind_carries_no_token(content_type: str) -> None:
    assert token_in(TOKEN + END, content_type) != "t:s"


@pytest.mark.parametrize(
    "body",
    [
        END,
        TOKEN[:40],
        part("token", b""),
        b"\0\xff" * 100,
        part("token", b"x", b"\r\nContent-Transfer-Encoding: base64") + END,
        part("token", b"\xfft:s") + END,
        part("token", b"t:s\0") + END,
        part("token", b"t:s", b'; filename="x.txt"\r\nContent-Type: text/plain') + END,
        b"".join(part(f"f{n}", b"", b'; filename="x"') for n in range(101)) + END,
        TOKEN + part("attempt", b"x") + END,
    ],
    ids=lambda body: repr(body[-30:]),
)
def test_malformed_multipart_form_carries_no_token(body: bytes) -> None:
    assert token_in(body, MULTIPART_CONTENT) != "t:s"
