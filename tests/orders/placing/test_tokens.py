"""Purchase tokens: nothing but the very text that was signed gets in, each refusal by its name."""

from __future__ import annotations

import datetime as dt
import time

import pytest
from django.core import signing
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from orders.placing import tokens
from orders.placing.order_ids import minted_ms
from orders.placing.tokens import (
    BadToken,
    MalformedToken,
    PurchaseToken,
    WorkMissing,
    check_work,
    issue_tokens,
    read_token,
)
from seckill_site.clocks.machine import epoch_ms
from tests.support.orders import make_buyer, make_buyers, make_sale
from tests.support.work import do_too_little_work, do_work

pytestmark = pytest.mark.quick

EXPIRY_MS = 1_900_000_000_000
TOKEN = PurchaseToken(order_id=2**53 + 1, user_id=7, sale_id=3, expires_at_ms=EXPIRY_MS)
TEXT = TOKEN.sign()
SIGNATURE = TEXT.rpartition(":")[2]


def read(text: object, *, sale_id: int = 3, now_ms: int = EXPIRY_MS - 1) -> PurchaseToken:
    return read_token(text, sale_id=sale_id, now_ms=now_ms)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def test_token_is_valid_until_its_last_millisecond() -> None:
    assert read(TEXT) == TOKEN


def test_token_is_accepted_by_a_server_whose_clock_is_a_minute_ahead() -> None:
    assert read(TEXT, now_ms=EXPIRY_MS + 59_999) == TOKEN


def test_token_expires_a_minute_after_its_time() -> None:
    with pytest.raises(BadToken):
        read(TEXT, now_ms=EXPIRY_MS + 60_000)


def test_control_without_tolerance_clock_ahead_refuses_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tokens, "CLOCK_TOLERANCE_MS", 0)
    with pytest.raises(BadToken):
        read(TEXT, now_ms=EXPIRY_MS)


def test_other_sales_token_is_refused() -> None:
    with pytest.raises(BadToken):
        read(TEXT, sale_id=4)


@pytest.mark.parametrize(
    "payload",
    [
        f"{2**53 + 2}-7-3-{EXPIRY_MS}",
        f"{2**53 + 1}-8-3-{EXPIRY_MS}",
        f"{2**53 + 1}-7-4-{EXPIRY_MS}",
        f"{2**53 + 1}-7-3-{EXPIRY_MS + 1}",
    ],
)
def test_changed_payload_is_refused(payload: str) -> None:
    with pytest.raises(BadToken):
        read(f"{payload}:{SIGNATURE}", sale_id=int(payload.split("-")[2]))


@pytest.mark.parametrize(
    "signature",
    ["", "x", SIGNATURE[:-1], SIGNATURE + "x", SIGNATURE.swapcase(), "é", "\ud800", "\0", "签"],
)
def test_wrong_signature_is_refused(signature: str) -> None:
    with pytest.raises(BadToken):
        read(f"{TEXT.rpartition(':')[0]}:{signature}")


def test_signature_equals_djangos() -> None:
    """Which derives the key anew for each; so a token of an earlier release still holds."""
    text = PurchaseToken(1, 2, 3, 4).sign()
    assert text == signing.Signer(salt="seckill.purchase-token").sign("1-2-3-4")


@pytest.mark.parametrize("length", range(len(TEXT)))
def test_truncated_token_is_refused(length: int) -> None:
    expected = BadToken if ":" in TEXT[:length] else MalformedToken
    with pytest.raises(expected):
        read(TEXT[:length])


@pytest.mark.parametrize(
    "value",
    [
        None, 1, 1.5, True, float("nan"), b"x", [TEXT], {"token": TEXT}, "", ":", "-", "::::", "x",
        TEXT + "\n", " " + TEXT, "\ufeff" + TEXT, TEXT.replace("7", "٧", 1), TEXT.replace("-", "−"),
        TEXT.replace("-7-", "-07-"), TEXT.replace("-7-", "-7_0-"), TEXT.replace("-7-", "--7-"),
        "\ud800", "\0", "null", "1-2-3:x", "1-2-3-4", "0-7-3-4:x", f"{10**19}-7-3-4:x", "x" * 10**6,
        "1-7-3-" + "9" * 17 + ":x", f"{TEXT.rpartition(':')[0]}:{'x' * 200}",
    ],
)  # fmt: skip
def test_malformed_text_is_refused(value: object) -> None:
    # A newline or a colon may also fall into the signature, where it is forged.
    with pytest.raises(BadToken if value == TEXT + "\n" else MalformedToken):
        read(value)


@examples(derandomize=True, database=None, deadline=None, max_examples=200)
@given(st.one_of(st.text(), st.text(alphabet="0123456789-:abc\ud800٣"), st.binary(), st.integers()))
def test_fuzzed_token_is_refused_by_name(value: object) -> None:
    with pytest.raises((BadToken, MalformedToken)):
        read(value)


def test_64_bit_order_id_is_refused() -> None:
    largest = PurchaseToken(2**63 - 1, 7, 3, EXPIRY_MS)
    assert read(largest.sign()) == largest
    with pytest.raises(BadToken):
        read(PurchaseToken(2**63, 7, 3, EXPIRY_MS).sign())


@pytest.mark.servers
@pytest.mark.django_db
def test_token_is_valid_until_ten_minutes_after_end() -> None:
    sale, buyer = make_sale(begins_in_s=600), make_buyer()
    [token] = issue_tokens(sale=sale, user_ids=[buyer.pk])
    assert token.expires_at_ms == epoch_ms(sale.ends_at + dt.timedelta(minutes=10))
    assert (token.user_id, token.sale_id) == (buyer.pk, sale.pk)
    assert abs(minted_ms(token.order_id) - now_ms()) < 2_000
    assert read_token(token.sign(), sale_id=sale.pk, now_ms=now_ms()) == token


@pytest.mark.servers
@pytest.mark.django_db
def test_tokens_are_issued_in_bulk() -> None:
    sale, buyers = make_sale(), make_buyers(50)
    issued = issue_tokens(sale=sale, user_ids=[buyer.pk for buyer in buyers])
    assert [token.user_id for token in issued] == [buyer.pk for buyer in buyers]
    ids = [token.order_id for token in issued]
    assert ids == sorted(set(ids))


@pytest.mark.parametrize("identity", [0, 8])
def test_token_may_name_an_admission(identity: int) -> None:
    admitted = TOKEN._replace(identity=identity, admission=42)
    assert read(admitted.sign()) == admitted
    assert read(TEXT).admission == 0


def test_admission_cannot_be_added_to_a_signed_token() -> None:
    payload, _, signature = TEXT.rpartition(":")
    with pytest.raises(BadToken):
        read(f"{payload}-0-42:{signature}")


def test_token_without_admission_is_read_by_the_release_before() -> None:
    assert TOKEN._replace(identity=8).sign().rpartition(":")[0].count("-") == 4


# --- Work -----------------------------------------------------------------------------------------

WORK = TOKEN._replace(identity=9, work=8)


def test_token_with_its_work_is_read_as_without() -> None:
    assert read(do_work(WORK)) == read(WORK.sign()) == WORK


@pytest.mark.parametrize("admission", [0, 12])
@pytest.mark.parametrize("identity", [0, 9])
def test_work_is_checked(identity: int, admission: int) -> None:
    token = TOKEN._replace(identity=identity, admission=admission, work=8)
    text = do_work(token)
    check_work(read(text), text)


def test_token_without_work_asks_for_none() -> None:
    check_work(TOKEN, TEXT)


def test_missing_work_is_refused() -> None:
    with pytest.raises(WorkMissing):
        check_work(WORK, WORK.sign())


def test_work_that_misses_by_a_bit_is_refused() -> None:
    with pytest.raises(WorkMissing):
        check_work(WORK, do_too_little_work(WORK))


def test_work_of_another_token_is_refused() -> None:
    nonce = do_work(WORK).partition("~")[2]
    others = [WORK._replace(order_id=number, work=20) for number in range(1, 9)]
    for other in others:
        with pytest.raises(WorkMissing):
            check_work(other, f"{other.sign()}~{nonce}")


@pytest.mark.parametrize("nonce", ["", "~1", "A", "ä", "1" * 25, "1 ", "1\n"])
def test_nonce_of_other_characters_is_refused(nonce: str) -> None:
    with pytest.raises(WorkMissing):
        check_work(WORK._replace(work=1), f"{WORK.sign()}~{nonce}")


def test_bits_of_a_token_cannot_be_changed() -> None:
    with pytest.raises(BadToken):
        read(WORK.sign().replace("-w8:", "-w1:"))
    with pytest.raises(BadToken):
        read(WORK.sign().replace("-w8:", ":"))


def test_token_that_enters_a_draw_says_so() -> None:
    token = PurchaseToken(7, 8, 9, 9_999_999_999_999, identity=5, enters=1)
    text = token.sign()
    assert text.startswith(f"7-8-9-{9_999_999_999_999}-5-0-1:")
    assert read_token(text, sale_id=9, now_ms=0) == token
    assert read_token(token._replace(enters=0).sign(), sale_id=9, now_ms=0).enters == 0
    forged = text.replace("-5-0-1:", "-5:")
    with pytest.raises(BadToken):
        read_token(forged, sale_id=9, now_ms=0)


# --- The price ------------------------------------------------------------------------------------

PRICED = TOKEN._replace(identity=9, price_cents=8_000)


@pytest.mark.parametrize("price_cents", [0, 8_000, 4_294_967_295, None])
@pytest.mark.parametrize("work", [0, 8])
def test_token_names_the_price(price_cents: int | None, work: int) -> None:
    token = PRICED._replace(price_cents=price_cents, work=work)
    assert read(token.sign()) == token


def test_price_stands_behind_what_the_release_before_reads() -> None:
    before, _, rest = PRICED.sign().partition("~")
    assert before == PRICED._replace(price_cents=None).sign()
    assert rest == "p8000"


def test_price_of_a_token_with_work_is_signed() -> None:
    token = PRICED._replace(work=8)
    text = do_work(token)
    assert "-p8000-w8:" in text
    check_work(read(text), text)
    with pytest.raises(BadToken):
        read(text.replace("-p8000-", "-p1-"))


@pytest.mark.parametrize("rest", ["p", "p-1", "p8000-", "p8000~", "p12345678901", "P1", "1", "é"])
def test_token_with_anything_else_behind_it_is_refused(rest: str) -> None:
    with pytest.raises(BadToken):
        read(f"{TEXT}~{rest}")


@pytest.mark.servers
@pytest.mark.django_db
def test_issued_token_names_the_price_of_the_voucher() -> None:
    [token] = issue_tokens(sale=make_sale(), user_ids=[make_buyer().pk])
    assert token.price_cents == 8_000
