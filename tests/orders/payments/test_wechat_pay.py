"""The signatures of WeChat Pay, with the examples of its documentation, and what else is its own.

Examples: pay.weixin.qq.com/doc/v3/merchant/4012365336, and its page about answers.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from orders.payments.providers import BadNotification
from orders.payments.reading import TOLERANCE_S
from orders.payments.rsa_signing import BadKey, is_signed, read_private_key, read_public_key
from orders.payments.wechat_pay import check_signature, request_text

pytestmark = pytest.mark.quick

MERCHANTS_PUBLIC_KEY = """-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAptpm+qvIDCh/9wjU26SQ
CK26ogYkBhDrYxnAaw2JbbBsp1oDbHKk+1r381NeBUG2HEFAuU+Fr72u5ot3yKdz
oF/FajAzQNKnm569/D3upKoi8mYBaST15Uig8j8qoUW1U217LL0jEHlSnHV3lcaD
TXqDpTRR4Bfz9IqOgJgFZ8/oTfEomSrjrLYef81Eyxr7ZIMQXEKKEK7V4UXKS0+/
fDsiG/cXidhzt8UbTL9vqXqxM2+IDImyO+FAc/tkBG55LmzxPto1Nq0WbnZzRM/w
Tzrd0I/8NlevxtFbphg4evlHjFNI7+GrqR87ViEwuAJJ9Je5QQjct5YJfFRWiZ5C
MQIDAQAB
-----END PUBLIC KEY-----"""
REQUEST_BODY = (
    '{"appid":"wxd678efh567hg6787","mchid":"1900007291",'
    '"description":"Image形象店-深圳腾大-QQ公仔",'
    '"out_trade_no":"1217752501201407033233368018",'
    '"notify_url":"https://www.weixin.qq.com/wxpay/pay.php",'
    '"amount":{"total":100,"currency":"CNY"},'
    '"payer":{"openid":"oUpF8uMuAJO_M2pxb1Q9zNjWeS6o"}}'
)
REQUEST_SIGNATURE = (
    "jnks4dlrPw3ZX+ozVvSK39oa0t7OMBsg83BHAwd8BRdUFiVaQNTLTvci+wURgP1OQBbKYhFGvt7iqYpDSTQkp7Uq"
    "1sltaQKyncCyrA1g88m5bsKERQfPyT0ahSwKTYJ1CAn9QiJuSJRq1QsQs07eehbU/k9BCS51jTyc1Jpsi2H77HF9"
    "f/BnjXAOP3/sPObg6V5Ee4EzwLox684hhuMuIwHo7D8KFk3LIHOKDcNI4It1aCXydFWNpNK+SG86VUDe5kwoDpw4"
    "Ulqfu9z8OFDGbDs9TCxEv8iqQzbpxOlEVoOe2kalSYM5kApQb3nZcxdUtoE0liJGW3RGUNE0t4v01A=="
)
WECHATS_PUBLIC_KEY = """-----BEGIN PUBLIC KEY-----
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEAwXNI6sdlknHBnK8Fu2U6
Cwor9qY747jP8KAfeBMeveEt1TqaHkLfaSD07trZLhGpfs8/AHqjhgSMO1O10YQW
OrrJ4hjIWPKqxbgrYMkBQc+mwdiWp4W3ByCqxBRagCveCXRWCmuJYovl9H/bsDI0
iGbpVtEOghJtfciisYSgxcLufUDTRkvwxjIBK1pCRjk33jJ5YTBWTHMRtMAOcFLN
F6hdEYdX8SPsgHHeLZ5Lv2T/686w1xtgCHef/sd4uSfWmyzsalQdHG/e4IyYmrhx
+O3VBoNDzE3nx23bFeV/RVNCG7cV6VhmYokJNHa/erIPkEmEFID6A5wQOXuxUkmJ
WwIDAQAB
-----END PUBLIC KEY-----"""
ANSWER = b'{"code_url":"weixin://wxpay/bizpayurl?pr=JyC91EIz1"}'
ANSWERED_AT = dt.datetime.fromtimestamp(1722850421, dt.UTC)
HEADERS = {
    "wechatpay-serial": "PUB_KEY_ID_1",
    "wechatpay-timestamp": "1722850421",
    "wechatpay-nonce": "d824f2e086d3c1df967785d13fcd22ef",
    "wechatpay-signature": (
        "mfI1CPqvBrgcXfgXMFjdNIhBf27ACE2YyeWsWV9ZI7T7RU0vHvbQpu9Z32ogzc+k8ZC5n3kz7h70eWKjgqNdKQF0"
        "eRp8mVKlmfzMLBVHbssB9jEZEDXThOX1XFqX7s7ymia1hoHQxQagPGzkdWxtlZPZ4ZPvr1RiqkgAu6Is8MZgXXrR"
        "oBKqjmSdrP1N7uxzJ/cjfSiis9FiLjuADoqmQ1P7p2N876YPAol7Rn0+GswwAwxldbdLrmVSjfytfSBJFqTMHn4i"
        "tojgxSWWN1byuckQt8hSTEv/Lg97QoeGniYP17T80pJeQyL3b+295FPHSO2AtvCgyIbKMZ0BALilAA=="
    ),
}


@pytest.fixture(autouse=True)
def wechats_key(settings: Any) -> None:
    settings.SECKILL_WECHAT_PUBLIC_KEYS = {"PUB_KEY_ID_1": WECHATS_PUBLIC_KEY}


def test_documented_request_has_its_documented_signature() -> None:
    text = request_text(
        "POST",
        "/v3/pay/transactions/jsapi",
        1554208460,
        "593BEC0C930BF1AFEB40B4A08C8FB242",
        REQUEST_BODY,
    )
    assert is_signed(text, REQUEST_SIGNATURE, MERCHANTS_PUBLIC_KEY)
    assert not is_signed(text + b"\n", REQUEST_SIGNATURE, MERCHANTS_PUBLIC_KEY)


def test_documented_answer_is_accepted() -> None:
    check_signature(HEADERS, ANSWER, ANSWERED_AT)


@pytest.mark.parametrize(
    "changed",
    [
        {"wechatpay-serial": "PUB_KEY_ID_2"},
        {"wechatpay-timestamp": "1722850422"},
        {"wechatpay-nonce": ""},
        {"wechatpay-signature": "WECHATPAY/SIGNTEST/mfI1CPqvBrgc"},
        {"wechatpay-signature": "é"},
    ],
)
def test_changed_header_is_refused(changed: dict[str, str]) -> None:
    with pytest.raises(BadNotification, match="wrong"):
        check_signature({**HEADERS, **changed}, ANSWER, ANSWERED_AT)


@pytest.mark.parametrize("after_s", [-TOLERANCE_S - 1, TOLERANCE_S + 1])
def test_answer_of_another_time_is_refused(after_s: int) -> None:
    with pytest.raises(BadNotification, match="too far from ours"):
        check_signature(HEADERS, ANSWER, ANSWERED_AT + dt.timedelta(seconds=after_s))


@pytest.mark.parametrize("text", ["", "no key", "-----BEGIN PRIVATE KEY-----\nno", "AAAA", "é"])
def test_unreadable_key_raises_without_quoting_it(text: str) -> None:
    for read in (read_private_key, read_public_key):
        with pytest.raises(BadKey) as refused:
            read(text)
        assert not text or text not in str(refused.value)
