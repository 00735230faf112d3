"""A stand-in of Alipay: signed pages, the gateway, notifications and bills."""

from __future__ import annotations

import datetime as dt
import io
import json
import zipfile
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from zoneinfo import ZoneInfo

from orders.payments.rsa_signing import is_signed, sign
from tests.support.stand_ins.keys import key_pair
from tests.support.stand_ins.server import Answer, Headers, Request, StandIn, Trade

APP_ID = "2021000000000001"
CHINA = ZoneInfo("Asia/Shanghai")
STATES = {"open": "WAIT_BUYER_PAY", "paid": "TRADE_SUCCESS", "closed": "TRADE_CLOSED"}
PRODUCTS = {
    "alipay.trade.page.pay": "FAST_INSTANT_TRADE_PAY",
    "alipay.trade.wap.pay": "QUICK_WAP_WAY",
}


class AlipayStandIn(StandIn):
    """Alipay as our side sees it: one gateway, forms and answers signed with RSA2."""

    name = "alipay"
    path = "orders.payments.alipay.Alipay"
    repeats_charge = False

    def configure(self, settings: Any) -> None:
        settings.SECKILL_ALIPAY_APP_ID = APP_ID
        settings.SECKILL_ALIPAY_PRIVATE_KEY = key_pair("shop").private
        settings.SECKILL_ALIPAY_PUBLIC_KEYS = [key_pair("next").public, key_pair("alipay").public]
        settings.SECKILL_ALIPAY_URL = f"{self.url}/gateway.do"

    def visit(self, pay_url: str) -> None:
        fields = self._checked(urlsplit(pay_url).query)
        content = json.loads(fields["biz_content"])
        if content["product_code"] != PRODUCTS[fields["method"]]:
            self.violations.append(f"{fields['method']} with {content['product_code']}")
        dt.datetime.strptime(content["time_expire"], "%Y-%m-%d %H:%M:%S")
        if set(content["subject"]) & set("/=&") or max(content["subject"]) > "\uffff":
            self.violations.append(f"refused subject {content['subject']}")
        cents = round(float(content["total_amount"]) * 100)
        trade = self.new_trade(content["out_trade_no"], cents, content=content)
        if trade.fields["content"] != content:
            self.violations.append("ALIN42282: the same number with other parameters")

    def _checked(self, form: str) -> dict[str, str]:
        """Return the fields of a request, whose signature has to be ours."""
        fields = dict(parse_qsl(form, keep_blank_values=True))
        signature = fields.pop("sign", "")
        text = "&".join(f"{name}={fields[name]}" for name in sorted(fields) if fields[name])
        if not is_signed(text.encode(), signature, key_pair("shop").public):
            self.violations.append(f"bad signature of {fields.get('method')}")
        if fields.get("app_id") != APP_ID or fields.get("sign_type") != "RSA2":
            self.violations.append(f"bad fields of {fields.get('method')}")
        return fields

    def answer(self, request: Request) -> Answer:
        if request.method == "GET" and request.path.startswith("/bill"):
            return 200, {}, self._bill()
        fields = self._checked(request.body.decode())
        content = json.loads(fields["biz_content"])
        return self._signed(fields["method"], self._carry_out(fields["method"], content))

    def _carry_out(self, method: str, content: dict[str, str]) -> dict[str, Any]:
        if method == "alipay.data.dataservice.bill.downloadurl.query":
            return _done(bill_download_url=f"{self.url}/bill?day={content['bill_date']}")
        trade = self.trades.get(content["out_trade_no"])
        if trade is None:
            return _refused("ACQ.TRADE_NOT_EXIST")
        if method == "alipay.trade.query":
            return _done(**self._trade(trade))
        if not content["out_request_no"].startswith(trade.reference):
            self.violations.append("another number of the refund")
        if method == "alipay.trade.fastpay.refund.query":
            done = content["out_request_no"] in trade.parts
            return _done(refund_status="REFUND_SUCCESS") if done else _done()
        number = content["out_request_no"]
        before = number in trade.parts
        state = self.refund_trade(trade, round(float(content["refund_amount"]) * 100), number)
        if state == "refused" and trade.by_hand_cents:
            return _refused("ACQ.REFUND_AMT_NOT_EQUAL_TOTAL")
        if state == "refused":
            return _refused("ACQ.SELLER_BALANCE_NOT_ENOUGH")
        return _done(fund_change="Y" if state == "done" and not before else "N")

    def _trade(self, trade: Trade) -> dict[str, Any]:
        found = {
            "out_trade_no": trade.reference,
            "trade_no": f"20261111220014{trade.number:014}",
            "trade_status": STATES[trade.state],
            "total_amount": f"{trade.amount_cents / 100:.2f}",
        }
        return found if trade.currency == "CNY" else found | {"trans_currency": trade.currency}

    def _signed(self, method: str, content: dict[str, Any], owner: str = "alipay") -> Answer:
        text = json.dumps(content, ensure_ascii=False)
        signature = sign(text.encode(), key_pair(owner).private)
        name = f"{method.replace('.', '_')}_response"
        return 200, {}, f'{{"{name}":{text},"sign":"{signature}"}}'.encode()

    def forge(self, answer: Answer) -> Answer:
        return (
            answer[0],
            answer[1],
            answer[2]
            .replace(b"WAIT_BUYER_PAY", b"TRADE_SUCCESS")
            .replace(b'"code": "10000"', b'"code":"10000"'),
        )

    def message(self, reference: str, identity: str = "") -> dict[str, Any]:
        """Return the fields without ``notify_time``."""
        trade = self.trades[reference]
        return {
            **self._trade(trade),
            "app_id": APP_ID,
            "charset": "utf-8",
            "notify_id": identity or f"{trade.number}{trade.state}",
            "notify_type": "trade_status_sync",
            "subject": "双人自助餐 & 茶",
            "version": "1.0",
        }

    def money_message(self, reference: str, identity: str) -> dict[str, Any]:
        trade = self.trades[reference]
        gone = trade.by_hand_cents + trade.refunded_cents
        return self.message(reference, identity) | {
            "trade_status": "TRADE_SUCCESS" if gone < trade.amount_cents else "TRADE_CLOSED",
            "refund_fee": f"{gone / 100:.2f}",
            "gmt_refund": "2026-11-11 12:00:00.123",
            "out_biz_no": "20261111by-hand",
        }

    def signed(
        self, message: dict[str, Any], *, at_s: float, forged: bool = False
    ) -> tuple[Headers, bytes]:
        notified = dt.datetime.fromtimestamp(at_s, CHINA).strftime("%Y-%m-%d %H:%M:%S")
        fields = {"notify_time": notified, **message}
        text = "&".join(f"{name}={fields[name]}" for name in sorted(fields) if fields[name])
        owner = "somebody" if forged else "alipay"
        fields |= {"sign": sign(text.encode(), key_pair(owner).private), "sign_type": "RSA2"}
        return {"Content-Type": "application/x-www-form-urlencoded"}, urlencode(fields).encode()

    def _bill(self) -> bytes:
        rows = ["支付宝交易号,商户订单号,业务类型,商品名称,订单金额（元）,备注"]
        for it in self.trades.values():
            if it.state == "paid":
                rows.append(_row(it, "交易", it.amount_cents))
            if it.by_hand_cents:
                rows.append(_row(it, "退款", -it.by_hand_cents))
            if it.refund_state == "done":
                rows += [_row(it, "退款", -cents) for cents in it.parts.values()]
        table = ["#支付宝业务明细查询", *rows, "#业务明细列表结束"]
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as files:
            files.writestr("2088_20261111_业务明细.csv", "\r\n".join(table).encode("gbk"))
            files.writestr("2088_20261111_业务明细(汇总).csv", "#汇总".encode("gbk"))
        return packed.getvalue()


def _row(trade: Trade, kind: str, cents: int) -> str:
    return f"20261111{trade.number}\t,{trade.reference}\t,{kind},券,{cents / 100:.2f},"


def _done(**content: Any) -> dict[str, Any]:
    return {"code": "10000", "msg": "Success", **content}


def _refused(sub_code: str) -> dict[str, Any]:
    return {"code": "40004", "msg": "Business Failed", "sub_code": sub_code}
