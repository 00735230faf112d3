"""A stand-in of WeChat Pay v3: transactions, refunds, sealed notifications, bills."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from orders.payments.rsa_signing import is_signed, sign
from tests.support.stand_ins.keys import key_pair
from tests.support.stand_ins.server import Answer, Headers, Request, StandIn, Trade

APP_ID, MERCHANT, SERIAL, KEY_ID = "wx0001", "1900000001", "5157F09EFDC096DE", "PUB_KEY_ID_0001"
API_V3_KEY = "0123456789abcdef0123456789abcdef"
STATES = {"open": "NOTPAY", "paid": "SUCCESS", "closed": "CLOSED"}
REFUNDS = {"done": "SUCCESS", "pending": "PROCESSING"}


class WeChatStandIn(StandIn):
    """WeChat Pay as our side sees it: JSON, with signatures on both ways."""

    name = "wechat"
    path = "orders.payments.wechat_pay.WeChatPay"
    given = 0
    """The number of links given out."""

    def configure(self, settings: Any) -> None:
        settings.SECKILL_WECHAT_APP_ID = APP_ID
        settings.SECKILL_WECHAT_MERCHANT_ID = MERCHANT
        settings.SECKILL_WECHAT_CERTIFICATE_SERIAL = SERIAL
        settings.SECKILL_WECHAT_PRIVATE_KEY = key_pair("shop").private
        settings.SECKILL_WECHAT_API_V3_KEY = API_V3_KEY
        settings.SECKILL_WECHAT_PUBLIC_KEYS = {KEY_ID: key_pair("wechat").public}
        settings.SECKILL_WECHAT_URL = self.url

    def answer(self, request: Request) -> Answer:
        self._check(request)
        parts = urlsplit(request.path)
        query = dict(parse_qsl(parts.query))
        content = json.loads(request.body) if request.body else {}
        match request.method, parts.path.strip("/").split("/"):
            case "POST", ["v3", "pay", "transactions", ("native" | "h5") as kind]:
                return self._open(kind, content)
            case "GET", ["v3", "pay", "transactions", "out-trade-no", reference]:
                trade = self.trades.get(reference)
                if query.get("mchid") != MERCHANT:
                    self.violations.append("a query without the merchant")
                return _signed(self._trade(trade)) if trade else _refused(404, "ORDER_NOT_EXIST")
            case "POST", ["v3", "refund", "domestic", "refunds"]:
                return self._refund(content)
            case "GET", ["v3", "bill", "tradebill"]:
                url = f"{self.url}/v3/billdownload/file?token=t"
                sha1 = hashlib.sha1(self._bill(), usedforsecurity=False).hexdigest()
                return _signed({"download_url": url, "hash_type": "SHA1", "hash_value": sha1})
            case "GET", ["v3", "billdownload", "file"]:
                return 200, {}, self._bill()
        self.violations.append(f"{request.method} {request.path}")
        return _refused(404, "NOT_FOUND")

    def _check(self, request: Request) -> None:
        scheme, _, fields = request.headers.get("authorization", "").partition(" ")
        said = dict(re.findall(r'(\w+)="([^"]*)"', fields))
        text = (
            f"{request.method}\n{request.path}\n{said.get('timestamp')}\n"
            f"{said.get('nonce_str')}\n{request.body.decode()}\n"
        )
        signed = is_signed(text.encode(), said.get("signature", ""), key_pair("shop").public)
        if scheme != "WECHATPAY2-SHA256-RSA2048" or not signed or said.get("mchid") != MERCHANT:
            self.violations.append(f"bad signature of {request.method} {request.path}")
        if said.get("serial_no") != SERIAL or request.headers.get("wechatpay-serial") != KEY_ID:
            self.violations.append("another key")

    def _open(self, kind: str, content: dict[str, Any]) -> Answer:
        if content["appid"] != APP_ID or content["mchid"] != MERCHANT:
            self.violations.append("another application")
        if kind == "h5" and content["scene_info"]["h5_info"]["type"] != "Wap":
            self.violations.append("H5 without its scene")
        if max(content["description"]) > "\uffff":
            return _refused(400, "PARAM_ERROR")
        if self.charge_refusal:
            return _refused(400, self.charge_refusal)
        sent = {"kind": kind, "content": content}
        trade = self.new_trade(content["out_trade_no"], content["amount"]["total"], **sent)
        if trade.fields != sent:
            return _refused(403, "OUT_TRADE_NO_USED")
        self.given += 1
        if kind == "native":
            self.links.append(f"weixin://wxpay/bizpayurl?pr={self.given}")
            return _signed({"code_url": self.links[-1]})
        page = f"{self.url}/cgi-bin/mmpayweb-bin/checkmweb"
        self.links.append(f"{page}?prepay_id={self.given}")
        return _signed({"h5_url": self.links[-1]})

    def visit(self, pay_url: str) -> None:
        if not any(pay_url.startswith(link) for link in self.links):
            self.violations.append("the link has ended")

    def _refund(self, content: dict[str, Any]) -> Answer:
        trade = self.trades[content["out_trade_no"]]
        if not content["out_refund_no"].startswith(trade.reference):
            self.violations.append("another number of the refund")
        if content["out_refund_no"] in trade.lost:
            return _signed({"refund_id": f"5030{trade.number}", "status": "ABNORMAL"})
        if content["amount"]["total"] != trade.amount_cents:
            self.violations.append("another total")
        state = self.refund_trade(trade, content["amount"]["refund"], content["out_refund_no"])
        if state == "refused" and trade.by_hand_cents:
            return _refused(400, "INVALID_REQUEST")
        if state == "refused":
            return _refused(403, "NOT_ENOUGH")
        return _signed({"refund_id": f"5030{trade.number}", "status": REFUNDS[state]})

    def _trade(self, trade: Trade) -> dict[str, Any]:
        has_refund = trade.refund_state == "done" or trade.by_hand_cents
        return {
            "appid": APP_ID,
            "mchid": MERCHANT,
            "out_trade_no": trade.reference,
            "transaction_id": f"4200{trade.number:024}",
            "trade_state": "REFUND" if has_refund else STATES[trade.state],
            "amount": {"total": trade.amount_cents, "currency": trade.currency},
        }

    def forge(self, answer: Answer) -> Answer:
        return answer[0], answer[1], answer[2] + b" "

    def message(self, reference: str, identity: str = "") -> dict[str, Any]:
        """Return an event; what it seals is ``plain`` in its resource."""
        trade = self.trades[reference]
        return {
            "id": identity or f"event-{trade.number}-{trade.state}",
            "event_type": "TRANSACTION.SUCCESS",
            "resource_type": "encrypt-resource",
            "resource": {
                "original_type": "transaction",
                "algorithm": "AEAD_AES_256_GCM",
                "plain": self._trade(trade),
                "associated_data": "transaction",
                "nonce": "sealed012345",
            },
        }

    def money_message(self, reference: str, identity: str) -> dict[str, Any]:
        trade = self.trades[reference]
        has_failed = trade.refund_state == "failed"
        lost = list(trade.lost.items())[-1] if has_failed else ("by-hand", 0)
        part_cents = lost[1] or trade.by_hand_cents or trade.amount_cents
        message = self.message(reference, identity)
        message["event_type"] = "REFUND.ABNORMAL" if has_failed else "REFUND.SUCCESS"
        message["resource"] |= {
            "original_type": "refund",
            "plain": {
                "mchid": MERCHANT,
                "out_trade_no": reference,
                "transaction_id": f"4200{trade.number:024}",
                "out_refund_no": lost[0],
                "refund_id": f"5030{trade.number}",
                "refund_status": "ABNORMAL" if has_failed else "SUCCESS",
                "amount": {
                    "total": trade.amount_cents,
                    "refund": part_cents,
                    "payer_total": trade.amount_cents,
                    "payer_refund": part_cents,
                },
            },
        }
        return message

    def signed(
        self, message: dict[str, Any], *, at_s: float, forged: bool = False
    ) -> tuple[Headers, bytes]:
        resource = message.get("resource")
        if isinstance(resource, dict) and "plain" in resource:
            sealed = AESGCM(API_V3_KEY.encode()).encrypt(
                b"sealed012345", json.dumps(resource["plain"]).encode(), b"transaction"
            )
            ciphertext = base64.b64encode(sealed).decode()
            message = {**message, "resource": {"ciphertext": ciphertext, **resource}}
            del message["resource"]["plain"]
        body = json.dumps(message).encode()
        return _headers(body, "somebody" if forged else "wechat", at_s), body

    def _bill(self) -> bytes:
        rows = [
            "交易时间,商户号,微信订单号,商户订单号,交易状态,货币种类,订单金额,申请退款金额,商品名称"
        ]
        for it in self.trades.values():
            yuan = f"{it.amount_cents / 100:.2f}"
            start = f"`2026-11-11 12:00:00,`{MERCHANT},`4200,`{it.reference}"
            if it.state == "paid":
                rows.append(f"{start},`SUCCESS,`{it.currency},`{yuan},`0.00,`券")
            for cents in (it.by_hand_cents, *(it.parts.values() or [it.refunded_cents])):
                if cents:
                    back = f"{cents / 100:.2f}"
                    rows.append(f"{start},`REFUND,`{it.currency},`0.00,`{back},`券")
        rows += ["总交易单数,应结订单总金额,退款总金额", "`1,`1.00,`0.00"]
        return "\r\n".join(rows).encode("utf-8-sig")


def _headers(body: bytes, owner: str, at_s: float) -> Headers:
    timestamp, nonce = str(int(at_s)), "c5ac7061fccab6bf"
    message = f"{timestamp}\n{nonce}\n".encode() + body + b"\n"
    return {
        "Wechatpay-Timestamp": timestamp,
        "Wechatpay-Nonce": nonce,
        "Wechatpay-Serial": KEY_ID,
        "Wechatpay-Signature": sign(message, key_pair(owner).private),
    }


def _signed(content: dict[str, Any], status: int = 200) -> Answer:
    body = json.dumps(content).encode()
    return status, _headers(body, "wechat", time.time()), body


def _refused(status: int, code: str) -> Answer:
    return _signed({"code": code, "message": code}, status)
