"""Alipay: its page on a desktop, its mobile page on a phone (``docs/payments/alipay.md``).

A charge is an address that we sign: Alipay knows nothing of it before its buyer opens the page. So
one that Alipay does not know is still open here.
"""

import datetime as dt
import io
import json
import re
import string
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from django.conf import settings
from django.utils.translation import gettext_lazy

from orders.models import MoneyDirection
from orders.payments.http_calls import LARGEST_LIST_BYTES, call
from orders.payments.providers import (
    BadNotification,
    Charge,
    ChargeState,
    ClientKind,
    Movement,
    OpenedCharge,
    ProviderUnavailable,
    Refund,
    Statement,
)
from orders.payments.reading import (
    CHINA,
    LONGEST_ID,
    LONGEST_URL,
    Refused,
    cents_of,
    check_time,
    currency_in,
    key_problems,
    reference_in,
    refusing_malformed,
    rows_of,
    statement_about,
    text_in,
    without_emoji,
)
from orders.payments.rsa_signing import is_signed, sign
from seckill_site.clocks.database import database_now
from seckill_site.formatting import plain_money

REPEATED_FOR_S = 26 * 3600
"""Alipay repeats a notification for 25 hours, and does not promise to renew its time."""

LONGEST_SUBJECT = 60
_SUBJECT = {ord(it): ord(it) + 0xFEE0 for it in string.punctuation if it not in "-._"}
"""Alipay refuses ``/``, ``=``, ``&`` "and the like" in a subject: they become full-width."""

_TIME = "%Y-%m-%d %H:%M:%S"
_STATES = {
    "WAIT_BUYER_PAY": ChargeState.OPEN,
    "TRADE_CLOSED": ChargeState.CLOSED,
    "TRADE_SUCCESS": ChargeState.PAID,
    "TRADE_FINISHED": ChargeState.PAID,
}
_KINDS = {"交易": MoneyDirection.PAYMENT, "退款": MoneyDirection.REFUND}
_DONE = "10000"
_NO_TRADE, _NO_BILL = "ACQ.TRADE_NOT_EXIST", "isp.bill_not_exist"
_TRANSIENT = re.compile(r"(ACQ|isp|aop)\.(ACQ\.)?(SYSTEM_ERROR|system-error|unknow-error|.*LIMIT)")


class Alipay:
    """A :class:`~orders.payments.providers.PaymentProvider` that sends buyers to Alipay."""

    name = "alipay"
    label = gettext_lazy("Alipay")
    acknowledgement = "success"
    by_client = True
    code_apps: Mapping[str, str] = {}
    zone = CHINA

    @staticmethod
    def problems() -> Iterator[str]:
        """Yield what is wrong with the settings."""
        if not settings.SECKILL_ALIPAY_APP_ID.isdigit():
            yield "SECKILL_ALIPAY_APP_ID is not the number of an application."
        keys = settings.SECKILL_ALIPAY_PRIVATE_KEY, settings.SECKILL_ALIPAY_PUBLIC_KEYS
        yield from key_problems("SECKILL_ALIPAY", *keys)

    def create(self, charge: Charge) -> OpenedCharge:
        """Return the address of a charge; nothing is sent."""
        is_phone = charge.client is ClientKind.PHONE
        content = {
            "out_trade_no": charge.reference,
            "total_amount": plain_money(charge.amount_cents),
            "subject": without_emoji(charge.subject).translate(_SUBJECT)[:LONGEST_SUBJECT],
            "product_code": "QUICK_WAP_WAY" if is_phone else "FAST_INSTANT_TRADE_PAY",
            "time_expire": charge.pay_by.astimezone(CHINA).strftime(_TIME),
        }
        if is_phone:
            content["quit_url"] = charge.return_url
        method = "alipay.trade.wap.pay" if is_phone else "alipay.trade.page.pay"
        addresses = {"return_url": charge.return_url, "notify_url": charge.notify_url}
        fields = _signed(method, content, charge.opened_at, **addresses)
        return OpenedCharge(f"{settings.SECKILL_ALIPAY_URL}?{urlencode(fields)}")

    def read_notification(
        self, *, headers: Mapping[str, str], body: bytes, now: dt.datetime
    ) -> Statement:
        """Return what a notification says.

        :raises BadNotification: it is not signed by Alipay, not for us, or not of these hours.
        """
        with refusing_malformed(BadNotification, "the notification"):
            pairs = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100)
            fields = dict(pairs)
            signature = fields.pop("sign", "")
            is_rsa2 = fields.pop("sign_type", "") == "RSA2"
            is_whole = is_rsa2 and len(fields) + 2 == len(pairs)
            if not is_whole or not _is_alipays(_text(fields).encode(), signature):
                raise BadNotification("the signature is wrong")
            if fields.get("app_id") != settings.SECKILL_ALIPAY_APP_ID:
                raise BadNotification("the notification is for another application")
            sent_at = dt.datetime.strptime(fields["notify_time"], _TIME).replace(tzinfo=CHINA)
            check_time(sent_at.timestamp(), now, repeated_for_s=REPEATED_FOR_S)
            return _statement(
                fields, notification_id=text_in(fields, "notify_id", longest=LONGEST_ID)
            )

    def query(self, reference: str, *, provider_reference: str = "") -> Statement:
        """Return the state of a charge; its buyer may not have opened it yet."""
        return statement_about(
            reference,
            lambda: _statement(_ask("alipay.trade.query", {"out_trade_no": reference})),
            unknown={_NO_TRADE},
            if_unknown=ChargeState.OPEN,
        )

    def refund(self, refund: Refund) -> bool:
        """Refund money of a paid charge once."""
        content = {
            "out_trade_no": refund.reference,
            "out_request_no": refund.number,
            "refund_amount": plain_money(refund.amount_cents, refund.currency),
        }
        if _ask("alipay.trade.refund", content).get("fund_change") == "Y":
            return True
        del content["refund_amount"]  # nothing moved by this call: it may have by an earlier
        found = _ask("alipay.trade.fastpay.refund.query", content)
        return found.get("refund_status") == "REFUND_SUCCESS"

    def list_movements(self, day: dt.date) -> Iterator[Movement]:
        """Return the lines of a day's bill, which is there from the next morning on."""
        try:
            with refusing_malformed(ProviderUnavailable, "the bill"):
                yield from _bill(_download(day))
        except Refused as error:
            if error.code != _NO_BILL:  # which is a day without transactions
                raise


# --- Requests -------------------------------------------------------------------------------------


def _signed(
    method: str, content: Mapping[str, str], now: dt.datetime, **addresses: str
) -> dict[str, str]:
    """Return the signed fields of a request."""
    fields = {
        "app_id": settings.SECKILL_ALIPAY_APP_ID,
        "method": method,
        "format": "JSON",
        "charset": "utf-8",
        "sign_type": "RSA2",
        "timestamp": now.astimezone(CHINA).strftime(_TIME),
        "version": "1.0",
        **addresses,
        "biz_content": json.dumps(content, ensure_ascii=False, separators=(",", ":")),
    }
    signature = sign(_text(fields).encode(), settings.SECKILL_ALIPAY_PRIVATE_KEY)
    return {**fields, "sign": signature}


def _text(fields: Mapping[str, str]) -> str:
    """Return what is signed: all fields with a value, by name."""
    return "&".join(f"{name}={value}" for name, value in sorted(fields.items()) if value)


def _is_alipays(text: bytes, signature: str) -> bool:
    return any(is_signed(text, signature, key) for key in settings.SECKILL_ALIPAY_PUBLIC_KEYS)


def _ask(method: str, content: Mapping[str, str]) -> dict[str, Any]:
    """Send a request and return the content of its answer.

    :raises Refused: Alipay understood it and refuses.
    :raises ProviderUnavailable: there was no answer signed by Alipay, or it asks to try again.
    """
    fields = _signed(method, content, database_now())
    answer = call(
        "POST",
        f"{settings.SECKILL_ALIPAY_URL}?charset=utf-8",
        headers={"Content-Type": "application/x-www-form-urlencoded;charset=utf-8"},
        body=urlencode(fields).encode(),
    )
    if answer.status != 200:
        raise ProviderUnavailable(f"alipay: {method} was answered {answer.status}")
    reply = _verified(answer.body, f"{method.replace('.', '_')}_response")
    code, why = reply.get("code"), str(reply.get("sub_code") or reply.get("code"))
    if code == _DONE:
        return reply
    if code == "20000" or _TRANSIENT.fullmatch(why):
        raise ProviderUnavailable(f"alipay: {why}")
    raise Refused("alipay", why)


def _verified(body: bytes, name: str) -> dict[str, Any]:
    """Return the content of an answer; signed are its very characters, not what they mean.

    :raises ProviderUnavailable: it is not signed by Alipay, or cannot be read.
    """
    try:
        text = body.decode()
        start = text.index(f'"{name}":') + len(name) + 3
        while text[start : start + 1].isspace():
            start += 1
        content, end = json.JSONDecoder().raw_decode(text, start)
        signature = json.loads(text)["sign"]
    except (ValueError, KeyError, TypeError) as error:
        raise ProviderUnavailable(f"alipay: no signed {name}") from error
    if not isinstance(signature, str) or not _is_alipays(text[start:end].encode(), signature):
        raise ProviderUnavailable(f"alipay: the signature of {name} is wrong")
    if not isinstance(content, dict):
        raise ProviderUnavailable(f"alipay: {name} is no object")
    return content


def _statement(content: Mapping[str, Any], *, notification_id: str = "") -> Statement:
    """Return what the fields of a trade say.

    :raises KeyError: a field is missing.
    :raises ValueError: a field is malformed.
    """
    currency, gone = currency_in(content, "trans_currency"), None
    if "refund_fee" in content:  # the sum of all refunds until now
        gone = cents_of(text_in(content, "refund_fee"), currency)
    return Statement(
        reference_in(content, "out_trade_no"),
        _STATES[text_in(content, "trade_status")],
        cents_of(text_in(content, "total_amount"), currency),
        provider_reference=text_in(content, "trade_no"),
        currency=currency,
        notification_id=notification_id,
        refunded_cents=gone,
    )


# --- Bills ----------------------------------------------------------------------------------------


def _download(day: dt.date) -> bytes:
    wanted = {"bill_type": "trade", "bill_date": day.isoformat()}
    answer = _ask("alipay.data.dataservice.bill.downloadurl.query", wanted)
    url = text_in(answer, "bill_download_url", longest=LONGEST_URL)
    at, gateway = urlsplit(url), urlsplit(settings.SECKILL_ALIPAY_URL)
    if at.scheme != "https" and at.netloc != gateway.netloc:
        raise ProviderUnavailable("alipay: the address of the bill is not on HTTPS")
    bill = call("GET", url, headers={}, largest_bytes=LARGEST_LIST_BYTES)
    if bill.status != 200:
        raise ProviderUnavailable(f"alipay: the bill was answered {bill.status}")
    return bill.body


def _bill(packed: bytes) -> Iterator[Movement]:
    """Read the details in a zip of tables; lines around the table start with #."""
    with zipfile.ZipFile(io.BytesIO(packed), metadata_encoding="gbk") as tables:
        (name,) = (it for it in tables.namelist() if "明细" in it and "汇总" not in it)
        lines = tables.read(name).decode("gbk").splitlines()
    for row in rows_of(line for line in lines if line and not line.startswith("#")):
        cents = cents_of(row["订单金额（元）"].removeprefix("-"))
        yield Movement(_KINDS[row["业务类型"]], row["商户订单号"], cents)
