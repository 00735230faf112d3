"""WeChat Pay v3: a QR code on a desktop, WeChat's page on a phone (``docs/payments/wechat.md``)."""

import base64
import datetime as dt
import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from django.conf import settings
from django.utils.translation import gettext_lazy

from orders.models import MoneyDirection
from orders.payments.http_calls import LARGEST_ANSWER_BYTES, LARGEST_LIST_BYTES, call
from orders.payments.providers import (
    CURRENCY,
    BadNotification,
    Charge,
    ChargeState,
    ClientKind,
    Movement,
    OpenedCharge,
    ProviderUnavailable,
    Refund,
    RefundRefused,
    Statement,
)
from orders.payments.reading import (
    CHINA,
    LONGEST_ID,
    LONGEST_URL,
    Refused,
    cents_in,
    cents_of,
    check_time,
    currency_in,
    key_problems,
    object_in,
    reference_in,
    refusing_malformed,
    rows_of,
    seconds_of,
    statement_about,
    text_in,
    without_emoji,
)
from orders.payments.rsa_signing import is_signed, sign
from seckill_site.clocks.database import database_now
from seckill_site.http_client import HttpAnswer
from seckill_site.strict_json import read_strict_json

LONGEST_SUBJECT = 40

LINK_VALID_FOR = dt.timedelta(minutes=4)
CODE_VALID_FOR = dt.timedelta(minutes=110)
"""How long an address is shown: WeChat's page opens for 5 minutes, its code works for 2 hours."""

_SCHEME = "WECHATPAY2-SHA256-RSA2048"
_TRANSACTIONS = "/v3/pay/transactions"
_STATES = {
    "SUCCESS": ChargeState.PAID,
    "REFUND": ChargeState.CLOSED,
    "NOTPAY": ChargeState.OPEN,
    "USERPAYING": ChargeState.OPEN,
    "PAYERROR": ChargeState.OPEN,
    "CLOSED": ChargeState.CLOSED,
    "REVOKED": ChargeState.CLOSED,
}
_API_V3_KEY_BYTES = 32


class WeChatPay:
    """A :class:`~orders.payments.providers.PaymentProvider` that lets buyers pay in WeChat."""

    name = "wechat"
    label = gettext_lazy("WeChat Pay")
    acknowledgement = ""
    by_client = True
    code_apps = {"weixin://": gettext_lazy("WeChat")}
    zone = CHINA

    @staticmethod
    def problems() -> Iterator[str]:
        """Yield what is wrong with the settings."""
        for name in ("APP_ID", "MERCHANT_ID", "CERTIFICATE_SERIAL"):
            if not getattr(settings, f"SECKILL_WECHAT_{name}"):
                yield f"SECKILL_WECHAT_{name} is not set."
        keys = settings.SECKILL_WECHAT_PRIVATE_KEY, settings.SECKILL_WECHAT_PUBLIC_KEYS.values()
        yield from key_problems("SECKILL_WECHAT", *keys)
        if len(settings.SECKILL_WECHAT_API_V3_KEY.encode()) != _API_V3_KEY_BYTES:
            yield f"SECKILL_WECHAT_API_V3_KEY does not have {_API_V3_KEY_BYTES} characters."

    def create(self, charge: Charge) -> OpenedCharge:
        """Open a transaction; equal calls open one, each with a new address."""
        content: dict[str, Any] = {
            "appid": settings.SECKILL_WECHAT_APP_ID,
            "mchid": settings.SECKILL_WECHAT_MERCHANT_ID,
            "description": without_emoji(charge.subject)[:LONGEST_SUBJECT],
            "out_trade_no": charge.reference,
            "time_expire": charge.pay_by.astimezone(dt.UTC).isoformat(timespec="seconds"),
            "notify_url": charge.notify_url,
            "amount": {"total": charge.amount_cents, "currency": CURRENCY},
        }
        with refusing_malformed(ProviderUnavailable, "the answer"):
            if charge.client is ClientKind.DESKTOP:
                opened = _ask("POST", f"{_TRANSACTIONS}/native", content)
                return OpenedCharge(text_in(opened, "code_url"), valid_for=CODE_VALID_FOR)
            address = charge.client_address or "127.0.0.1"
            content["scene_info"] = {"payer_client_ip": address, "h5_info": {"type": "Wap"}}
            opened = _ask("POST", f"{_TRANSACTIONS}/h5", content)
            back = quote(charge.return_url, safe="")
            url = f"{text_in(opened, 'h5_url')}&redirect_url={back}"
            return OpenedCharge(url, valid_for=LINK_VALID_FOR)

    def read_notification(
        self, *, headers: Mapping[str, str], body: bytes, now: dt.datetime
    ) -> Statement | None:
        """Return what a notification says about a transaction.

        :raises BadNotification: it is not signed by WeChat Pay, too old, or cannot be read.
        """
        names = {name.lower(): value for name, value in headers.items()}
        with refusing_malformed(BadNotification, "the notification"):
            check_signature(names, body, now)
            content = read_strict_json(body)
            resource = object_in(content, "resource")
            read = _READERS.get(text_in(resource, "original_type"))
            if read is None:
                return None
            sealed = read_strict_json(_decrypted(resource))
            if sealed["mchid"] != settings.SECKILL_WECHAT_MERCHANT_ID:
                raise BadNotification("the notification is for another merchant")
            return read(sealed, notification_id=text_in(content, "id", longest=LONGEST_ID))

    def query(self, reference: str, *, provider_reference: str = "") -> Statement:
        """Return the state of a transaction; one that was never opened is closed."""
        merchant = urlencode({"mchid": settings.SECKILL_WECHAT_MERCHANT_ID})
        target = f"{_TRANSACTIONS}/out-trade-no/{reference}?{merchant}"
        return statement_about(
            reference,
            lambda: _statement(_ask("GET", target)),
            unknown={"ORDER_NOT_EXIST", "ORDERNOTEXIST"},
        )

    def refund(self, refund: Refund) -> bool:
        """Refund money of a paid transaction once."""
        amount = {
            "refund": refund.amount_cents,
            "total": refund.charged_cents,
            "currency": refund.currency,
        }
        content = {
            "out_trade_no": refund.reference,
            "out_refund_no": refund.number,
            "amount": amount,
        }
        status = _ask("POST", "/v3/refund/domestic/refunds", content).get("status")
        if status in ("CLOSED", "ABNORMAL"):
            raise RefundRefused(f"wechat: the refund is {status}")
        return bool(status == "SUCCESS")

    def list_movements(self, day: dt.date) -> Iterator[Movement]:
        """Return the lines of a day's bill, which is there from the next morning on."""
        try:
            with refusing_malformed(ProviderUnavailable, "the bill"):
                yield from _bill(_download(day))
        except Refused as error:
            if error.code != "NO_STATEMENT_EXIST":  # which is a day without transactions
                raise


# --- Requests -------------------------------------------------------------------------------------


def _ask(method: str, target: str, content: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Send a request and return the content of its answer.

    :raises Refused: WeChat Pay understood it and refuses.
    :raises ProviderUnavailable: there was no answer signed by WeChat Pay, or it asks to try again.
    """
    body = "" if content is None else json.dumps(content, ensure_ascii=False)
    answer = _send(method, f"{settings.SECKILL_WECHAT_URL}{target}", body)
    if answer.status >= 500 or answer.status == 429:
        raise ProviderUnavailable(f"wechat: answered {answer.status}")
    try:
        check_signature(answer.headers, answer.body, database_now())
        reply = read_strict_json(answer.body)
    except (BadNotification, ValueError) as error:
        raise ProviderUnavailable(f"wechat: {error}") from error
    if not isinstance(reply, dict):
        raise ProviderUnavailable("wechat: the answer is no object")
    if answer.status != 200:
        code = str(reply.get("code"))
        if code in ("SYSTEM_ERROR", "FREQUENCY_LIMITED", "STATEMENT_CREATING"):
            raise ProviderUnavailable(f"wechat: {code}")
        raise Refused("wechat", code)
    return reply


def _send(
    method: str, url: str, body: str = "", *, largest_bytes: int = LARGEST_ANSWER_BYTES
) -> HttpAnswer:
    parts = urlsplit(url)
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    headers = {
        "Authorization": authorization(method, target, body, now=database_now()),
        "Accept": "application/json",
        "Content-Type": "application/json",
        "User-Agent": "seckill",
        "Wechatpay-Serial": next(iter(settings.SECKILL_WECHAT_PUBLIC_KEYS), ""),
    }
    content = body.encode() or None
    return call(method, url, headers=headers, body=content, largest_bytes=largest_bytes)


def authorization(method: str, target: str, body: str, *, now: dt.datetime, nonce: str = "") -> str:
    """Return the header that signs a request."""
    nonce, timestamp = nonce or secrets.token_hex(16).upper(), int(now.timestamp())
    message = request_text(method, target, timestamp, nonce, body)
    fields = {
        "mchid": settings.SECKILL_WECHAT_MERCHANT_ID,
        "nonce_str": nonce,
        "signature": sign(message, settings.SECKILL_WECHAT_PRIVATE_KEY),
        "timestamp": timestamp,
        "serial_no": settings.SECKILL_WECHAT_CERTIFICATE_SERIAL,
    }
    return f"{_SCHEME} " + ",".join(f'{name}="{value}"' for name, value in fields.items())


def request_text(method: str, target: str, timestamp: int, nonce: str, body: str) -> bytes:
    """Return what the signature of a request is made of."""
    return f"{method}\n{target}\n{timestamp}\n{nonce}\n{body}\n".encode()


def check_signature(headers: Mapping[str, str], body: bytes, now: dt.datetime) -> None:
    """Check that WeChat Pay has signed this body in these minutes.

    :raises BadNotification: it has not.
    """
    timestamp, nonce = headers.get("wechatpay-timestamp", ""), headers.get("wechatpay-nonce", "")
    key = settings.SECKILL_WECHAT_PUBLIC_KEYS.get(headers.get("wechatpay-serial", ""))
    message = f"{timestamp}\n{nonce}\n".encode(errors="replace") + body + b"\n"
    if key is None or not is_signed(message, headers.get("wechatpay-signature", ""), key):
        raise BadNotification("the signature is wrong")
    check_time(seconds_of(timestamp), now)


def _decrypted(resource: Mapping[str, Any]) -> bytes:
    """Return the content of a notification.

    :raises ValueError: it is not encrypted with our key.
    """
    if resource["algorithm"] != "AEAD_AES_256_GCM":
        raise ValueError("unknown algorithm")
    cipher = AESGCM(settings.SECKILL_WECHAT_API_V3_KEY.encode())
    sealed = base64.b64decode(resource["ciphertext"])
    along = str(resource.get("associated_data") or "").encode()
    try:
        return cipher.decrypt(str(resource["nonce"]).encode(), sealed, along)
    except InvalidTag as error:
        raise ValueError("it is not encrypted with our key") from error


def _statement(trade: Mapping[str, Any], *, notification_id: str = "") -> Statement:
    """Return what the fields of a transaction say.

    :raises KeyError: a field is missing.
    :raises ValueError: a field is malformed.
    """
    state = _STATES[text_in(trade, "trade_state")]
    is_paid = state is ChargeState.PAID  # one that is not paid may have neither amount nor id
    amount = object_in(trade if is_paid else {"amount": {}, **trade}, "amount")
    return Statement(
        reference_in(trade, "out_trade_no"),
        state,
        cents_in(amount if is_paid else {"total": 0, **amount}, "total"),
        provider_reference=text_in(trade, "transaction_id") if is_paid else "",
        currency=currency_in(amount, "currency"),
        notification_id=notification_id,
    )


def _refund_statement(refund: Mapping[str, Any], *, notification_id: str) -> Statement:
    """Return what the fields of a refund say. Raises as ``_statement``.

    One that we asked for is asked about until it is done, so only its failure is news. Of several
    that staff made on WeChat Pay's pages each tells its own part, and the bill tells all.
    """
    reference, amount = reference_in(refund, "out_trade_no"), object_in(refund, "amount")
    total, part = cents_in(amount, "total"), cents_in(amount, "refund")
    number = text_in(refund, "out_refund_no")
    is_ours = number.startswith(reference)
    has_failed = text_in(refund, "refund_status") != "SUCCESS"
    gone = None if is_ours else part
    return Statement(
        reference,
        ChargeState.CLOSED if part >= total and not has_failed else ChargeState.PAID,
        total,
        provider_reference=text_in(refund, "transaction_id"),
        refunded_cents=max(total - part, 0) if has_failed else gone,
        refund_failed=has_failed,
        refund_number=number if is_ours else "",
        failed_cents=part if has_failed else 0,
        notification_id=notification_id,
    )


_READERS = {"transaction": _statement, "refund": _refund_statement}
"""What reads a notification, by the type of what it seals."""


# --- Bills ----------------------------------------------------------------------------------------


def _download(day: dt.date) -> str:
    wanted = urlencode({"bill_date": day.isoformat(), "bill_type": "ALL"})
    bill = _ask("GET", f"/v3/bill/tradebill?{wanted}")
    url, sha1 = text_in(bill, "download_url", longest=LONGEST_URL), text_in(bill, "hash_value")
    at, gateway = urlsplit(url), urlsplit(settings.SECKILL_WECHAT_URL)
    if (at.scheme, at.netloc) != (gateway.scheme, gateway.netloc):
        raise ProviderUnavailable("wechat: the bill is on another server")
    answer = _send("GET", url, largest_bytes=LARGEST_LIST_BYTES)
    if answer.status != 200:
        raise ProviderUnavailable(f"wechat: the bill was answered {answer.status}")
    # The protocol's check of a signed answer's file; nothing of ours relies on SHA-1.
    if hashlib.sha1(answer.body, usedforsecurity=False).hexdigest() != sha1.lower():
        raise ProviderUnavailable("wechat: the bill is not the one that was signed")
    return answer.body.decode("utf-8-sig")


def _bill(text: str) -> Iterator[Movement]:
    """Read the table of a bill; totals follow it."""
    for row in rows_of(text.splitlines()):
        if row["交易时间"].startswith("总交易单数"):
            return
        is_refund = row["交易状态"] == "REFUND"
        kind = MoneyDirection.REFUND if is_refund else MoneyDirection.PAYMENT
        currency = currency_in(row, "货币种类")
        cents = cents_of(row["申请退款金额" if is_refund else "订单金额"], currency)
        yield Movement(kind, row["商户订单号"], cents, currency)
