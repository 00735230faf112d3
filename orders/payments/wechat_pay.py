"""WeChat Pay v3: a QR code on a desktop, WeChat's page on a phone (``docs/payments/wechat.md``)."""

import base64
import csv
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
from orders.payments.http_calls import LARGEST_LIST_BYTES, HttpAnswer, call
from orders.payments.providers import (
    CURRENCY,
    BadNotification,
    Charge,
    ChargeState,
    ClientKind,
    Movement,
    OpenedCharge,
    ProviderUnavailable,
    RefundRefused,
    Statement,
    cents_of,
)
from orders.payments.rsa_signing import BadKey, is_signed, read_private_key, read_public_key, sign
from seckill_site.clocks.database import database_now
from seckill_site.strict_json import read_strict_json

TOLERANCE_S = 300
"""How far the time in a signature may be from ours."""

LONGEST_SUBJECT = 40
CODE_SCHEME = "weixin://"
"""What the address of a QR code starts with: no browser opens it, our own page draws it."""

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


class Refused(Exception):
    """WeChat Pay understood a request and refuses it; ``code`` is its word for the reason."""

    def __init__(self, code: str) -> None:
        super().__init__(f"wechat: {code}")
        self.code = code


class WeChatPay:
    """A :class:`~orders.payments.providers.PaymentProvider` that lets buyers pay in WeChat."""

    name = "wechat"
    label = gettext_lazy("WeChat Pay")
    acknowledgement = ""
    by_client = True

    @staticmethod
    def problems() -> Iterator[str]:
        """Yield what is wrong with the settings."""
        for name in ("APP_ID", "MERCHANT_ID", "CERTIFICATE_SERIAL"):
            if not getattr(settings, f"SECKILL_WECHAT_{name}"):
                yield f"SECKILL_WECHAT_{name} is not set."
        try:
            read_private_key(settings.SECKILL_WECHAT_PRIVATE_KEY)
        except BadKey as error:
            yield f"SECKILL_WECHAT_PRIVATE_KEY: {error}."
        if len(settings.SECKILL_WECHAT_API_V3_KEY.encode()) != _API_V3_KEY_BYTES:
            yield f"SECKILL_WECHAT_API_V3_KEY does not have {_API_V3_KEY_BYTES} characters."
        if not settings.SECKILL_WECHAT_PUBLIC_KEYS:
            yield "SECKILL_WECHAT_PUBLIC_KEYS has no public key of WeChat Pay."
        try:
            for key in settings.SECKILL_WECHAT_PUBLIC_KEYS.values():
                read_public_key(key)
        except BadKey as error:
            yield f"SECKILL_WECHAT_PUBLIC_KEYS: {error}."

    def create(self, charge: Charge) -> OpenedCharge:
        """Open a transaction; equal calls open one."""
        content: dict[str, Any] = {
            "appid": settings.SECKILL_WECHAT_APP_ID,
            "mchid": settings.SECKILL_WECHAT_MERCHANT_ID,
            "description": charge.subject[:LONGEST_SUBJECT],
            "out_trade_no": charge.reference,
            "time_expire": charge.pay_by.astimezone(dt.UTC).isoformat(timespec="seconds"),
            "notify_url": charge.notify_url,
            "amount": {"total": charge.amount_cents, "currency": CURRENCY},
        }
        try:
            if charge.client is ClientKind.DESKTOP:
                opened = _ask("POST", f"{_TRANSACTIONS}/native", content)
                return OpenedCharge(_text(opened, "code_url"))
            address = charge.client_address or "127.0.0.1"
            content["scene_info"] = {"payer_client_ip": address, "h5_info": {"type": "Wap"}}
            opened = _ask("POST", f"{_TRANSACTIONS}/h5", content)
            back = quote(charge.return_url, safe="")
            return OpenedCharge(f"{_text(opened, 'h5_url')}&redirect_url={back}")
        except (Refused, KeyError) as error:
            raise ProviderUnavailable(str(error)) from error

    def read_notification(
        self, *, headers: Mapping[str, str], body: bytes, now: dt.datetime
    ) -> Statement | None:
        """Return what a notification says about a transaction.

        :raises BadNotification: it is not signed by WeChat Pay, too old, or cannot be read.
        """
        names = {name.lower(): value for name, value in headers.items()}
        try:
            check_signature(names, body, now)
            content = read_strict_json(body)
            if content["resource"]["original_type"] != "transaction":
                return None
            trade = read_strict_json(_decrypted(content["resource"]))
            if trade["mchid"] != settings.SECKILL_WECHAT_MERCHANT_ID:
                raise BadNotification("the notification is for another merchant")
            return _statement(trade, notification_id=_text(content, "id")[:128])
        except (KeyError, TypeError, ValueError) as error:
            raise BadNotification(f"wechat: {error}") from error

    def query(self, reference: str, *, provider_reference: str = "") -> Statement:
        """Return the state of a transaction; one that was never opened is closed."""
        merchant = urlencode({"mchid": settings.SECKILL_WECHAT_MERCHANT_ID})
        try:
            trade = _ask("GET", f"{_TRANSACTIONS}/out-trade-no/{reference}?{merchant}")
            found = _statement(trade)
        except Refused as error:
            if error.code in ("ORDER_NOT_EXIST", "ORDERNOTEXIST"):
                return Statement(reference, ChargeState.CLOSED, 0)
            raise ProviderUnavailable(str(error)) from error
        except (KeyError, TypeError, ValueError) as error:
            raise ProviderUnavailable(f"wechat: malformed answer about {reference}") from error
        if found.reference != reference:
            raise ProviderUnavailable(f"wechat answers about {found.reference}, not {reference}")
        return found

    def refund(self, reference: str, *, amount_cents: int, provider_reference: str = "") -> bool:
        """Refund a paid transaction once; the reference is also the number of its only refund."""
        amount = {"refund": amount_cents, "total": amount_cents, "currency": CURRENCY}
        content = {"out_trade_no": reference, "out_refund_no": reference, "amount": amount}
        try:
            status = _ask("POST", "/v3/refund/domestic/refunds", content).get("status")
        except Refused as error:
            raise RefundRefused(str(error)) from error
        if status in ("CLOSED", "ABNORMAL"):
            raise RefundRefused(f"wechat: the refund is {status}")
        return bool(status == "SUCCESS")

    def list_movements(self, day: dt.date) -> Iterator[Movement]:
        """Return the lines of a day's bill, which is there from the next morning on."""
        wanted = urlencode({"bill_date": day.isoformat(), "bill_type": "ALL"})
        try:
            bill = _ask("GET", f"/v3/bill/tradebill?{wanted}")
            yield from _bill(_download(_text(bill, "download_url"), _text(bill, "hash_value")))
        except Refused as error:
            if error.code != "NO_STATEMENT_EXIST":  # a day without transactions
                raise ProviderUnavailable(str(error)) from error
        except (KeyError, ValueError) as error:
            raise ProviderUnavailable(f"wechat: the bill cannot be read: {error!r}") from error


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
        found = read_strict_json(answer.body)
    except (BadNotification, ValueError) as error:
        raise ProviderUnavailable(f"wechat: {error}") from error
    if not isinstance(found, dict):
        raise ProviderUnavailable("wechat: the answer is no object")
    if answer.status != 200:
        code = str(found.get("code"))
        if code in ("SYSTEM_ERROR", "FREQUENCY_LIMITED", "STATEMENT_CREATING"):
            raise ProviderUnavailable(f"wechat: {code}")
        raise Refused(code)
    return found


def _send(method: str, url: str, body: str = "", *, largest_bytes: int = 0) -> HttpAnswer:
    parts = urlsplit(url)
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    headers = {
        "Authorization": authorization(method, target, body, now=database_now()),
        "Accept": "application/json",
        "Content-Type": "application/json",
        "User-Agent": "seckill",
        "Wechatpay-Serial": next(iter(settings.SECKILL_WECHAT_PUBLIC_KEYS), ""),
    }
    limit = {"largest_bytes": largest_bytes} if largest_bytes else {}
    return call(method, url, headers=headers, body=body.encode() or None, **limit)


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
    if not timestamp.isdecimal() or abs(now.timestamp() - int(timestamp)) > TOLERANCE_S:
        raise BadNotification("the signature is too old")


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
    state, amount = _STATES[_text(trade, "trade_state")], trade.get("amount", {})
    total = amount.get("total", 0)
    if type(total) is not int or total < 0 or (state is ChargeState.PAID and not total):
        raise ValueError("the amount is malformed")
    return Statement(
        _text(trade, "out_trade_no"),
        state,
        total,
        provider_reference=str(trade.get("transaction_id") or ""),
        currency=str(amount.get("currency") or CURRENCY),
        notification_id=notification_id,
    )


def _text(content: Mapping[str, Any], name: str) -> str:
    value = content[name]
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is malformed")
    return value


# --- Bills ----------------------------------------------------------------------------------------


def _download(url: str, sha1: str) -> str:
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
    """Read the table of a bill, whose values start with a backtick; totals follow it."""
    for row in csv.DictReader(text.splitlines()):
        fields = {(key or "").strip(): str(value).strip().lstrip("`") for key, value in row.items()}
        if fields["交易时间"].startswith("总交易单数"):
            return
        is_refund = fields["交易状态"] == "REFUND"
        kind = MoneyDirection.REFUND if is_refund else MoneyDirection.PAYMENT
        cents = cents_of(fields["申请退款金额" if is_refund else "订单金额"])
        yield Movement(kind, fields["商户订单号"], cents, fields["货币种类"])
