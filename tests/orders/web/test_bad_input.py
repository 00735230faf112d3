"""Whatever is sent: an answer of the contract, never a 500, and nothing is changed by it.

Django's test client raises what a view lets through, so a 500 shows itself here as an error.
"""

from __future__ import annotations

import io
import json
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest
from django.test import Client
from django.test.client import BOUNDARY
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from orders.placing.tokens import PurchaseToken
from seckill_site.redis.ledger_connection import ledger_connection
from tests.orders.web.test_request_parsing import END, part
from tests.support.inspection import assert_refused, everything
from tests.support.orders import make_buyer, make_sale, reserved, token_for, tokens_for
from tests.support.tiers import slow_after
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


def post(shop: Shop, body: bytes | str, content_type: str = JSON, **environ: Any) -> Any:
    return shop.client.generic("POST", shop.url, body, content_type=content_type, **environ)


# --- One of each kind of refusal -----------------------------------------------------------------
# All other bodies and types are in ``test_request_parsing.py``, tokens in ``test_tokens.py``.


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    slow_after(
        2,
        [
            (b"{", JSON, 400),
            (b'{"token": ["%s"]}', JSON, 400),
            (b'{"token": "%s", "attempt": 0}', JSON, 400),
            (b'{"token": "%s\\u0000"}', JSON, 403),
            (b" " * 9_000 + b'{"token": "%s"}', JSON, 413),
            (b"token=%s&token=%s", FORM, 400),
            (b"token=%s&attempt=0", "", 400),
            (b"token=%s%%00", FORM, 403),
            (b"token=%s&more=" + b"x" * 9_000, FORM, 413),
            (part("token", b"%s")[:40], MULTIPART, 400),
            (part("token", b"%s\0") + END, MULTIPART, 403),
            (part("token", b"%s") + part("more", b"x" * 9_000) + END, MULTIPART, 413),
            (b'{"token": "%s"}', "text/plain", 415),
        ],
    ),
)
def test_bad_body_is_refused(shop: Shop, body: bytes, content_type: str, status: int) -> None:
    body = body.replace(b"%s", shop.text.encode()).replace(b"%%", b"%")
    code = {403: "bad_token"}.get(status, "invalid")
    assert_refused(post(shop, body, content_type), status, code)


# --- Past the test client: the WSGI application itself -------------------------------------------


def call(shop: Shop, body: bytes, content_type: str, **environ: str) -> tuple[int, dict[str, Any]]:
    """Call the site as a server would; return status and body."""
    about = {"CONTENT_TYPE": content_type, "CONTENT_LENGTH": str(len(body))}
    answer = ask("POST", shop.url, body=body, **{**about, **environ})
    return answer.status, answer.json


LENGTHS = [
    *((length, 400) for length in ("abc", "-1", "", "1e3", "0", "١", "0x10", "5")),
    *((length, 413) for length in ("8193", "9" * 19, "9" * 20)),
]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize(("length", "status"), slow_after(2, LENGTHS))
@pytest.mark.parametrize("content_type", slow_after(1, [JSON, FORM, MULTIPART]))
def test_wrong_content_length_is_invalid(
    shop: Shop, content_type: str, length: str, status: int
) -> None:
    body = {
        JSON: json.dumps({"token": shop.text}).encode(),
        FORM: f"token={shop.text}".encode(),
        MULTIPART: part("token", shop.text.encode()) + END,
    }[content_type]
    answer = call(shop, body, content_type, CONTENT_LENGTH=length)
    assert (answer[0], answer[1]["code"]) == (status, "invalid")


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
    slow_after(
        1,
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
    ),
)
def test_odd_headers_are_no_server_error(shop: Shop, environ: dict[str, str]) -> None:
    status, answer = call(shop, b"{}", JSON, **environ)
    assert (status, answer["code"]) == (400, "invalid")


# --- Addresses and methods -----------------------------------------------------------------------

ODD_IDS = [
    "0",
    "01",
    "%20",
    "%00",
    "%D9%A3",
    "%ff",
    "9223372036854775808",
    "9" * 500,
    "..",
    "1%2F2",
]


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("odd_id", slow_after(1, ODD_IDS))
def test_malformed_id_returns_404_everywhere(shop: Shop, odd_id: str) -> None:
    client = shop.client
    client.force_login(shop.buyer)
    body = {"token": shop.text}
    assert_refused(
        client.post(f"/vouchers/{odd_id}/orders/", body, content_type=JSON), 404, "not_found"
    )
    headers = {"Purchase-Token": shop.text}
    for url in (
        f"/vouchers/{odd_id}/token/",
        f"/vouchers/{odd_id}/orders/{shop.token.order_id}/",
        f"{shop.url}{odd_id}/",
    ):
        assert_refused(client.get(url, headers=headers), 404, "not_found")


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("method", slow_after(1, ["GET", "PUT", "OPTIONS", "CONNECT", "BREW", "É"]))
def test_only_post_places_an_order(shop: Shop, method: str) -> None:
    body = json.dumps({"token": shop.text})
    response = shop.client.generic(method, shop.url, body, content_type=JSON)
    assert response["Allow"] == "POST"
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
@pytest.mark.parametrize(
    "number", slow_after(1, ["0", "-1", "x", "1_000", "٣", "9" * 30, "", "1.5", "%00"])
)
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
    fields.map(lambda form: "&".join(f"{k}={v!r}" for k, v in form.items())).map(
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


thorough = partial(
    examples,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.slow
@thorough(max_examples=300)
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


@pytest.mark.slow
@thorough(max_examples=150)
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
