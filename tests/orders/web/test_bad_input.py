"""Whatever is sent: an answer of the contract, never a 500, and nothing is changed by it.

Django's test client raises what a view lets through, so a 500 shows itself here as an error.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from orders.placing.tokens import PurchaseToken
from seckill_site.ledger_connection import ledger_connection
from tests.support.inspection import assert_refused, everything
from tests.support.orders import make_buyer, make_sale, reserved, token_for, tokens_for
from tests.support.wsgi import ask
from vouchers.inventory.keys import LedgerKeys
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"
MULTIPART = f"multipart/form-data; boundary={BOUNDARY}"


class Shop:
    """An open sale with one order pending, and a token that would be accepted."""

    def __init__(self) -> None:
        self.sale: SeckillVoucher = make_sale()
        self.buyer = make_buyer()
        reserved(self.sale, [make_buyer()])
        ledger_connection().delete(LedgerKeys(self.sale.pk).kick)  # it would run out meanwhile
        self.token: PurchaseToken = token_for(self.sale, self.buyer)
        self.text = self.token.sign()
        self.url = f"/vouchers/{self.sale.pk}/orders/"
        self.client = Client()


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def unchanged(shop: Shop) -> Any:
    """Assert after the test that neither ledger nor rows nor broker have changed."""
    before = everything()
    yield
    assert everything() == before


REFUSALS = {(400, "invalid"), (403, "bad_token"), (413, "invalid"), (415, "invalid")}


def assert_refused_somehow(response: Any) -> None:
    """For what may be read as a token, of which no signature is right."""
    status = response.status_code
    assert_refused(response, status, {403: "bad_token"}.get(status, "invalid"))
    assert (status, response.json()["code"]) in REFUSALS


def post(shop: Shop, body: bytes | str, content_type: str = JSON, **environ: Any) -> Any:
    return shop.client.generic("POST", shop.url, body, content_type=content_type, **environ)


# --- Bodies --------------------------------------------------------------------------------------

DEEP = 10_000

BODIES: dict[str, Callable[[str], bytes]] = {
    "empty object": lambda token: b"{}",
    "nothing but blanks": lambda token: b" \n ",
    "a list": lambda token: json.dumps([token]).encode(),
    "a string": lambda token: json.dumps(token).encode(),
    "a number": lambda token: b"7",
    "a boolean": lambda token: b"true",
    "null": lambda token: b"null",
    "NaN": lambda token: b"NaN",
    "a token in a list": lambda token: json.dumps({"token": [token]}).encode(),
    "a token in an object": lambda token: json.dumps({"token": {"token": token}}).encode(),
    "a number as token": lambda token: b'{"token": 9007199254740993}',
    "a boolean as token": lambda token: b'{"token": true}',
    "NaN as token": lambda token: b'{"token": NaN}',
    "a huge number as token": lambda token: b'{"token": ' + b"9" * 4_000 + b"}",
    "more digits than Python converts": lambda token: b'{"token": ' + b"9" * 5_000 + b"}",
    "a number beyond doubles": lambda token: b'{"token": 1e999}',
    "NaN beside the token": lambda token: f'{{"token": "{token}", "more": NaN}}'.encode(),
    "NaN as attempt": lambda token: f'{{"token": "{token}", "attempt": NaN}}'.encode(),
    "infinity as attempt": lambda token: f'{{"token": "{token}", "attempt": Infinity}}'.encode(),
    "true as attempt": lambda token: f'{{"token": "{token}", "attempt": true}}'.encode(),
    "1.0 as attempt": lambda token: f'{{"token": "{token}", "attempt": 1.0}}'.encode(),
    "a list as attempt": lambda token: f'{{"token": "{token}", "attempt": [1]}}'.encode(),
    "an underscore in attempt": lambda token: f'{{"token":"{token}","attempt":"1_000"}}'.encode(),
    "Arabic digits in attempt": lambda token: f'{{"token":"{token}","attempt":"٣"}}'.encode(),
    "blanks around attempt": lambda token: f'{{"token":"{token}","attempt":" 1 "}}'.encode(),
    "a huge attempt": lambda token: f'{{"token":"{token}","attempt":{10**300}}}'.encode(),
    "the token twice": lambda token: f'{{"token":"{token}","token":"{token}"}}'.encode(),
    "a trailing comma": lambda token: f'{{"token":"{token}",}}'.encode(),
    "two objects": lambda token: f'{{"token":"{token}"}}{{}}'.encode(),
    "NUL after the object": lambda token: f'{{"token":"{token}"}}\0'.encode(),
    "NUL in the token": lambda token: json.dumps({"token": token + "\0"}).encode(),
    "a lone surrogate": lambda token: b'{"token": "\\ud800"}',
    "a lone surrogate as signature": lambda token: json.dumps(
        {"token": token.rpartition(":")[0] + ":\ud800"}
    ).encode(),
    "a lone surrogate as attempt": lambda token: json.dumps(
        {"token": token, "attempt": "\ud800"}
    ).encode(),
    "an encoded surrogate": lambda token: b'{"token": "\xed\xa0\x80"}',
    "invalid UTF-8": lambda token: b'{"token": "\xff\xfe\xfd"}',
    "UTF-16": lambda token: json.dumps({"token": token}).encode("utf-16"),
    "UTF-16 without a mark": lambda token: json.dumps({"token": token}).encode("utf-16-be"),
    "UTF-32": lambda token: json.dumps({"token": token}).encode("utf-32"),
    "a byte order mark": lambda token: json.dumps({"token": token}).encode("utf-8-sig"),
    "lists, deep": lambda token: b"[" * DEEP + b"]" * DEEP,
    "lists, deep and open": lambda token: b"[" * 8_000,
    "objects, deep": lambda token: b'{"a":' * 1_300 + b"1" + b"}" * 1_300,
    "100 KB": lambda token: json.dumps({"token": token, "more": "x" * 100_000}).encode(),
    "100 KB of blanks": lambda token: b" " * 100_000 + json.dumps({"token": token}).encode(),
    "a form": lambda token: f"token={token}".encode(),
}


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("name", BODIES)
def test_bad_json_body_is_invalid(shop: Shop, name: str) -> None:
    body = BODIES[name](shop.text)
    response = post(shop, body)
    if name in ("a lone surrogate as signature", "NUL in the token"):
        assert_refused(response, 403, "bad_token")
    else:
        assert_refused(response, 413 if len(body) > 8_192 else 400, "invalid")


FORMS: dict[str, Callable[[str], bytes]] = {
    "nothing": lambda token: b"&",
    "no token": lambda token: b"tokens=x",
    "an empty token": lambda token: b"token=",
    "the token twice": lambda token: f"token={token}&token={token}".encode(),
    "too many fields": lambda token: f"token={token}".encode() + b"&a=1" * 20,
    "invalid UTF-8": lambda token: b"token=\xff",
    "invalid UTF-8 in percents": lambda token: b"token=%ff%fe",
    "a surrogate in percents": lambda token: b"token=%ed%a0%80",
    "NUL": lambda token: f"token={token}%00".encode(),
    "UTF-16": lambda token: f"token={token}".encode("utf-16"),
    "attempt 0": lambda token: f"token={token}&attempt=0".encode(),
    "an underscore in attempt": lambda token: f"token={token}&attempt=1_000".encode(),
    "Arabic digits in attempt": lambda token: f"token={token}&attempt={quote('٣')}".encode(),
    "a sign in attempt": lambda token: f"token={token}&attempt=%2B1".encode(),
    "JSON": lambda token: json.dumps({"token": token}).encode(),
    "100 KB": lambda token: f"token={token}&more=".encode() + b"x" * 100_000,
}


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("content_type", [FORM, ""])
@pytest.mark.parametrize("name", FORMS)
def test_bad_form_is_invalid_with_or_without_content_type(
    shop: Shop, name: str, content_type: str
) -> None:
    response = post(shop, FORMS[name](shop.text), content_type)
    if name == "NUL":
        assert_refused(response, 403, "bad_token")
    else:
        assert_refused(response, 413 if name == "100 KB" else 400, "invalid")


def part(name: str, value: bytes, more: bytes = b"") -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"'.encode()
    return head + more + b"\r\n\r\n" + value + b"\r\n"


END = f"--{BOUNDARY}--\r\n".encode()

MULTIPARTS: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "no boundary named": (lambda token: part("token", token) + END, "multipart/form-data"),
    "an empty boundary": (
        lambda token: part("token", token) + END,
        "multipart/form-data; boundary=",
    ),
    "a boundary of 200": (
        lambda token: part("token", token) + END,
        "multipart/form-data; boundary=" + "x" * 200,
    ),
    "a boundary that is not ASCII": (
        lambda token: part("token", token) + END,
        "multipart/form-data; boundary=é",
    ),
    "another boundary": (
        lambda token: part("token", token) + END,
        "multipart/form-data; boundary=other",
    ),
    "nothing": (lambda token: END, MULTIPART),
    "broken off in the head": (lambda token: part("token", token)[:40], MULTIPART),
    "broken off before the end": (lambda token: part("token", b""), MULTIPART),
    "binary": (lambda token: b"\0\xff" * 100, MULTIPART),
    "broken base64": (
        lambda token: part("token", b"x", b"\r\nContent-Transfer-Encoding: base64") + END,
        MULTIPART,
    ),
    "a token that is not UTF-8": (lambda token: part("token", b"\xff" + token) + END, MULTIPART),
    "NUL in the token": (lambda token: part("token", token + b"\0") + END, MULTIPART),
    "a file as token": (
        lambda token: part("token", token, b'; filename="x.txt"\r\nContent-Type: text/plain') + END,
        MULTIPART,
    ),
    "a hundred files": (
        lambda token: b"".join(part(f"f{n}", b"", b'; filename="x"') for n in range(101)) + END,
        MULTIPART,
    ),
    "a wrong attempt": (
        lambda token: part("token", token) + part("attempt", b"x") + END,
        MULTIPART,
    ),
    "an unknown charset": (lambda token: END, MULTIPART + "; charset=klingon"),
    "a charset that is not for text": (
        lambda token: part("token", token) + END,
        MULTIPART + "; charset=base64",
    ),
    "a charset that fails": (
        lambda token: part("token", token) + END,
        MULTIPART + "; charset=undefined",
    ),
    "another charset": (lambda token: part("token", token) + END, MULTIPART + "; charset=utf-16"),
}


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("name", MULTIPARTS)
def test_bad_multipart_form_is_invalid(shop: Shop, name: str) -> None:
    make_body, content_type = MULTIPARTS[name]
    assert_refused_somehow(post(shop, make_body(shop.text.encode()), content_type))


@pytest.mark.usefixtures("unchanged")
def test_oversized_multipart_form_returns_413(shop: Shop) -> None:
    for field in ("x" * 100_000, io.BytesIO(b"x" * 100_000)):
        body = encode_multipart(BOUNDARY, {"token": shop.text, "more": field})
        assert_refused(post(shop, body, MULTIPART_CONTENT), 413, "invalid")


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("content_type", "status"),
    [
        ("text/plain", 415), ("text/html", 415), ("application/xml", 415), ("image/png", 415),
        ("x", 415), ("*/*", 415), (";", 400), (";charset=utf-8", 400), ("é", 415), ("\0", 415),
        ("application/json\0", 415), ("application/json, text/plain", 415), ("a" * 50_000, 415),
        ("text/plain; charset=klingon", 415), ("multipart/mixed; boundary=x", 415),
        (f"{JSON}; charset=utf-16", 400), (f"{JSON}; charset=klingon", 400), (f"{JSON};;;=", 400),
    ],
)  # fmt: skip
def test_unsupported_content_type_is_refused(shop: Shop, content_type: str, status: int) -> None:
    assert_refused(post(shop, b"{}", content_type), status, "invalid")


# --- Past the test client: the WSGI application itself -------------------------------------------


def call(shop: Shop, body: bytes, content_type: str, **environ: str) -> tuple[int, dict[str, Any]]:
    """Call the site as a server would; return status and body."""
    about = {"CONTENT_TYPE": content_type, "CONTENT_LENGTH": str(len(body))}
    answer = ask("POST", shop.url, body=body, **{**about, **environ})
    return answer.status, answer.json


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("length", ["abc", "-1", "", "1e3", "0", "١", "0x10", "5"])
@pytest.mark.parametrize("content_type", [JSON, FORM, MULTIPART])
def test_wrong_content_length_is_invalid(shop: Shop, content_type: str, length: str) -> None:
    body = {
        JSON: json.dumps({"token": shop.text}).encode(),
        FORM: f"token={shop.text}".encode(),
        MULTIPART: part("token", shop.text.encode()) + END,
    }[content_type]
    status, answer = call(shop, body, content_type, CONTENT_LENGTH=length)
    assert (status, answer["code"]) == (400, "invalid")


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("length", "status"),
    [("5000", 400), ("8193", 413), ("100000", 413), ("9" * 19, 413)],
)
@pytest.mark.parametrize("content_type", [JSON, FORM, MULTIPART])
def test_content_length_above_body_is_refused(
    shop: Shop, content_type: str, length: str, status: int
) -> None:
    answer = call(shop, b"{", content_type, CONTENT_LENGTH=length)
    assert (answer[0], answer[1]["code"]) == (status, "invalid")


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("digits", [20, 400])
@pytest.mark.parametrize("content_type", [JSON, FORM, MULTIPART])
def test_huge_content_length_is_no_server_error(shop: Shop, content_type: str, digits: int) -> None:
    status, answer = call(shop, b"{", content_type, CONTENT_LENGTH="9" * digits)
    assert (status, answer["code"]) in REFUSALS


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    "content_type",
    [
        "application/json; charset*=klingon''%41",
        "application/json; charset*=utf-8''%00",
        "multipart/form-data; boundary*=klingon''x",
        "application/json; charset*=utf-8'",
        "application/json; charset*0*=a; charset*1=b",
    ],
)
def test_extended_content_type_parameter_is_no_server_error(shop: Shop, content_type: str) -> None:
    status, answer = call(shop, b"{}", content_type)
    assert (status, answer["code"]) in REFUSALS


@pytest.mark.usefixtures("unchanged")
def test_truncated_body_is_invalid(shop: Shop) -> None:
    class Broken(io.BytesIO):
        def read(self, *args: Any) -> bytes:
            raise OSError("Connection reset by peer")

        readline = read

    broken: Any = Broken()
    for content_type in (JSON, FORM, MULTIPART):
        status, answer = call(
            shop, b"{}", content_type, CONTENT_LENGTH="20", **{"wsgi.input": broken}
        )
        assert (status, answer["code"]) == (400, "invalid")


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    "environ",
    [
        {"HTTP_ACCEPT": "\xff\xfe"},
        {"HTTP_ACCEPT_LANGUAGE": "zz-" * 900},
        {"HTTP_COOKIE": "sessionid=\xff; csrftoken=\x00; =; a"},
        {"HTTP_COOKIE": "sessionid=" + "x" * 4_000},
        {"QUERY_STRING": "token=%ff&attempt=1_000&\x00"},
        {"HTTP_X_FORWARDED_FOR": "\xff"},
        {"HTTP_HOST": "nowhere.example"},
        {"HTTP_HOST": "\xff"},
    ],
)
def test_odd_headers_are_no_server_error(shop: Shop, environ: dict[str, str]) -> None:
    status, answer = call(shop, b"{}", JSON, **environ)
    assert (status, answer["code"]) == (400, "invalid")


# --- Addresses and methods -----------------------------------------------------------------------

ODD_IDS = [
    "0", "-1", "+1", "01", "1.0", "1e3", "0x1", "1_000", "%20", "%201", "1%20", "%00", "1%00", "a",
    "null", "None", "NaN", "%D9%A3", "%EF%BC%91", "%ff", "%ed%a0%80", "9223372036854775808",
    "9999999999999999999", "9" * 20, "9" * 500, "1;2", "1,2", "..", "%2e%2e", "1%2F2", "*", "'",
    '"', "{1}", "%7B1%7D", "1'--", "<b>",
]  # fmt: skip


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("odd_id", ODD_IDS)
def test_malformed_id_returns_404_everywhere(shop: Shop, odd_id: str) -> None:
    client = shop.client
    client.force_login(shop.buyer)
    body = {"token": shop.text}
    assert_refused(
        client.post(f"/vouchers/{odd_id}/orders/", body, content_type=JSON), 404, "not_found"
    )
    headers = {"Purchase-Token": shop.text}
    for url in (
        f"/vouchers/{odd_id}/",
        f"/vouchers/{odd_id}/token/",
        f"/vouchers/{odd_id}/orders/{shop.token.order_id}/",
        f"{shop.url}{odd_id}/",
    ):
        assert_refused(client.get(url, headers=headers), 404, "not_found")
        assert client.get(url, headers={"Accept": "text/html"}).status_code == 404


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    "method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "BREW", "POSTS", "É"]
)
def test_only_post_places_an_order(shop: Shop, method: str) -> None:
    body = json.dumps({"token": shop.text})
    response = shop.client.generic(method, shop.url, body, content_type=JSON)
    assert_refused(response, 405, "invalid")


@pytest.mark.usefixtures("unchanged")
def test_token_in_url_or_header_orders_nothing(shop: Shop) -> None:
    response = shop.client.generic(
        "POST",
        f"{shop.url}?token={quote(shop.text)}",
        b"{}",
        content_type=JSON,
        headers={"Purchase-Token": shop.text},
    )
    assert_refused(response, 400, "invalid")


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("number", ["0", "-1", "x", "1_000", "٣", "9" * 30, "", "1.5", "%00"])
def test_malformed_page_number_shows_a_page(shop: Shop, number: str) -> None:
    client = shop.client
    client.force_login(shop.buyer)
    assert client.get(f"/orders/?page={number}").status_code == 200


# --- Anything at all -----------------------------------------------------------------------------

words = st.one_of(
    st.text(max_size=60),
    st.text(alphabet="0123456789-:_. \0\ud800٣", max_size=60),
    st.sampled_from(["token", "attempt", "", "1_000", "٣", "\ud800", "\0", "NaN", "true"]),
)
values = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), words, st.integers(10**18, 10**300)
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(words, inner, max_size=4)),
    max_leaves=12,
)
fields = st.fixed_dictionaries({"token": values}, optional={"attempt": values, "more": values})
bodies = st.one_of(
    st.binary(max_size=400),
    values.map(json.dumps).map(str.encode),
    fields.map(json.dumps).map(str.encode),
    fields.map(lambda found: "&".join(f"{k}={v!r}" for k, v in found.items())).map(
        lambda text: text.encode("utf-8", "surrogatepass")
    ),
    st.binary(max_size=200).map(lambda value: part("token", value) + END),
    st.sampled_from(["utf-16", "utf-32", "utf-7"]).map(lambda name: '{"token": "x"}'.encode(name)),
)
content_types = st.one_of(
    st.sampled_from([JSON, FORM, MULTIPART, "", f"{JSON}; charset=utf-16", "multipart/form-data"]),
    st.text(
        st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="*"), max_size=40
    ),
)
methods = st.sampled_from(["POST"] * 8 + ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "X"])
odd_ids = st.one_of(words, st.integers().map(str), st.sampled_from(ODD_IDS))
ids = st.integers(1, 8).flatmap(lambda n: odd_ids if n == 8 else st.none())


@examples(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    method=methods,
    odd_id=ids,
    body=bodies,
    content_type=content_types,
    accept=st.sampled_from(["", JSON, "text/html", "*/*"]),
)
def test_fuzzed_request_is_refused_and_changes_nothing(
    shop: Shop, method: str, odd_id: str | None, body: bytes, content_type: str, accept: str
) -> None:
    before = everything()
    sale_id = shop.sale.pk if odd_id is None else quote(odd_id, safe="%", errors="surrogatepass")
    response = shop.client.generic(
        method,
        f"/vouchers/{sale_id}/orders/",
        body,
        content_type=content_type,
        headers={"Accept": accept},
    )
    assert response.status_code in {400, 403, 404, 405, 413, 415}
    if method != "HEAD" and accept != "text/html":
        answer = response.json()
        assert set(answer) == {"code", "message"}
        assert answer["code"] in {"invalid", "bad_token", "not_found"}
    assert everything() == before


@examples(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(text=st.text(st.characters(max_codepoint=255, exclude_characters="\r\n"), max_size=250))
def test_fuzzed_receipt_token_is_refused(shop: Shop, text: str) -> None:
    before = everything()
    response = shop.client.get(
        f"{shop.url}{shop.token.order_id}/", headers={"Purchase-Token": text}
    )
    assert response.status_code in {400, 403}
    assert response.json()["code"] in {"invalid", "bad_token"}
    assert everything() == before


def test_control_valid_request_is_accepted(shop: Shop) -> None:
    """The control: what the bad requests above are near to is accepted."""
    accepted: list[tuple[str | bytes, str]] = [
        (json.dumps({"token": shop.text, "attempt": 1}), JSON),
        (f"token={shop.text}", FORM),
        (f"token={shop.text}", ""),
        (part("token", shop.text.encode()) + END, MULTIPART),
    ]
    for body, content_type in accepted:
        assert post(shop, body, content_type).status_code == 202
    assert call(shop, json.dumps({"token": shop.text}).encode(), JSON)[0] == 202
    other = tokens_for(shop.sale, [make_buyer()])[0]
    assert post(shop, json.dumps({"token": other.sign()})).status_code == 202
