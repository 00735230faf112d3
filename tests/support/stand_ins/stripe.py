"""A stand-in of Stripe: Checkout Sessions, refunds, charges, events."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import stripe

from tests.support.stand_ins.server import (
    OPEN_DISPUTES,
    Answer,
    Headers,
    Request,
    StandIn,
    Trade,
)

KEY = "sk_test_standin"
SECRET = "whsec_standin"


class StripeStandIn(StandIn):
    """Stripe as our side sees it: bearer keys, forms, JSON, idempotency keys, signed events."""

    name = "stripe"
    path = "orders.payments.stripe_checkout.StripeCheckout"

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[str, tuple[bytes, Answer]] = {}

    def configure(self, settings: Any) -> None:
        settings.SECKILL_STRIPE_SECRET_KEY = KEY
        settings.SECKILL_STRIPE_WEBHOOK_SECRETS = ["whsec_next", SECRET]
        settings.SECKILL_STRIPE_URL = self.url

    def answer(self, request: Request) -> Answer:
        if request.headers.get("authorization") != f"Bearer {KEY}":
            self.violations.append("no key")
            return _error(401, "invalid_request_error", "api_key")
        key = request.headers.get("idempotency-key", "")
        if key in self.kept:
            body, answer = self.kept[key]
            if body != request.body:
                return _error(400, "idempotency_error", "")
            return answer
        try:
            answer = self._carry_out(request)
        except ValueError:  # an id of nothing
            return _error(404, "invalid_request_error", "resource_missing")
        if key and request.method == "POST":
            self.kept[key] = request.body, answer
        return answer

    def let_an_hour_pass(self) -> None:
        """Our side uses another idempotency key for a refund."""
        self.kept.clear()

    def _carry_out(self, request: Request) -> Answer:
        parts = urlsplit(request.path)
        fields = dict(parse_qsl(request.body.decode() or parts.query))
        match request.method, parts.path.strip("/").split("/"):
            case "POST", ["v1", "checkout", "sessions"]:
                return self._open(fields)
            case "GET", ["v1", "checkout", "sessions", session_id]:
                return _json(self._session(self._by_number(session_id)))
            case "POST", ["v1", "refunds"]:
                return self._make_refund(self._by_number(fields["payment_intent"]), fields)
            case "GET", ["v1", "payment_intents", intent]:
                return _json(self._intent(self._by_number(intent)))
            case "GET", ["v1", ("charges" | "refunds" | "disputes") as kind]:
                return self._listed(kind, parts.path, fields)
        self.violations.append(f"{request.method} {request.path}")
        return _error(404, "invalid_request_error", "resource_missing")

    def let_links_end(self) -> None:
        for trade in self.trades.values():
            trade.state = "closed" if trade.state == "open" else trade.state

    def _listed(self, kind: str, path: str, fields: dict[str, str]) -> Answer:
        if "payment_intent" in fields:
            return _list(self._items(kind, self._by_number(fields["payment_intent"])))
        items = [item for it in self._paid() for item in self._items(kind, it)]
        if fields.get("expand[0]") == "data.charge":
            for it in items:
                it["charge"] = self._charge(self._by_number(it["charge"]))
        return self._page(path, fields, items)

    def _items(self, kind: str, trade: Trade) -> list[dict[str, Any]]:
        if kind == "charges":
            return [self._charge(trade)]
        if kind == "disputes":
            return [self._dispute(trade)] if trade.dispute else []
        return self._refunds(trade)

    def _make_refund(self, trade: Trade, fields: dict[str, str]) -> Answer:
        if fields["metadata[reference]"] != trade.reference:
            self.violations.append("a refund without the reference")
        number, cents = fields["metadata[number]"], int(fields["amount"])
        state = self.refund_trade(trade, cents, number)
        if state == "refused":
            trade.refund_state = ""
            return _error(400, "invalid_request_error", "insufficient_funds")
        status = "succeeded" if state == "done" else "pending"
        return _json(self._refund(trade, number, cents, status))

    def _open(self, fields: dict[str, str]) -> Answer:
        if self.charge_refusal:
            return _error(400, "invalid_request_error", self.charge_refusal)
        ends_s = int(fields.get("expires_at", time.time() + 86400))
        if not 30 * 60 <= ends_s - time.time() <= 24 * 3600 + 60:
            return _error(400, "invalid_request_error", "expires_at")
        reference = fields["client_reference_id"]
        if reference != fields["payment_intent_data[metadata][reference]"]:
            self.violations.append("the charge would not carry the reference")
        amount_cents = int(fields["line_items[0][price_data][unit_amount]"])
        trade = self.new_trade(reference, amount_cents)
        trade.currency = fields["line_items[0][price_data][currency]"].upper()
        return _json(self._session(trade))

    def _session(self, trade: Trade) -> dict[str, Any]:
        status = {"open": "open", "paid": "complete", "closed": "expired"}[trade.state]
        return {
            "id": f"cs_test_{'a' * 50}{trade.number:08}",
            "object": "checkout.session",
            "client_reference_id": trade.reference,
            "amount_total": trade.amount_cents,
            "currency": trade.currency.lower(),
            "status": status,
            "payment_status": "paid" if trade.state == "paid" else "unpaid",
            "payment_intent": f"pi_{trade.number:08}" if trade.state == "paid" else None,
            "url": f"{self.url}/c/pay/{trade.number}" if trade.state == "open" else None,
        }

    def _refunds(self, trade: Trade) -> list[dict[str, Any]]:
        made = {"succeeded": trade.parts, "pending": trade.waiting, "failed": trade.lost}
        ours = [
            self._refund(trade, number, cents, status)
            for status, refunds in made.items()
            for number, cents in refunds.items()
        ]
        return [*ours, *([self._refund_by_hand(trade)] if trade.by_hand_cents else [])]

    def _refund(self, trade: Trade, number: str, cents: int, status: str) -> dict[str, Any]:
        return {
            "id": f"re_{number}",
            "object": "refund",
            "amount": cents,
            "currency": trade.currency.lower(),
            "status": status,
            "payment_intent": f"pi_{trade.number:08}",
            "charge": f"ch_{trade.number:08}",
            "metadata": {"reference": trade.reference, "number": number},
        }

    def _refund_by_hand(self, trade: Trade) -> dict[str, Any]:
        return {
            "id": f"re_by_hand_{trade.number:08}",
            "object": "refund",
            "amount": trade.by_hand_cents,
            "currency": trade.currency.lower(),
            "status": trade.fields.get("by_hand", "succeeded"),
            "payment_intent": f"pi_{trade.number:08}",
            "charge": f"ch_{trade.number:08}",
            "metadata": {},
        }

    def _intent(self, trade: Trade) -> dict[str, Any]:
        return {
            "id": f"pi_{trade.number:08}",
            "object": "payment_intent",
            "amount_received": trade.amount_cents,
            "currency": trade.currency.lower(),
            "metadata": {"reference": trade.reference},
        }

    def _dispute(self, trade: Trade) -> dict[str, Any]:
        return {
            "id": f"du_{trade.number:08}",
            "object": "dispute",
            "amount": trade.amount_cents,
            "currency": trade.currency.lower(),
            "charge": f"ch_{trade.number:08}",
            "payment_intent": f"pi_{trade.number:08}",
            "status": trade.dispute,
            "metadata": {},
        }

    def _charge(self, trade: Trade) -> dict[str, Any]:
        return {
            "id": f"ch_{trade.number:08}",
            "object": "charge",
            "amount": trade.amount_cents,
            "currency": trade.currency.lower(),
            "paid": True,
            "payment_intent": f"pi_{trade.number:08}",
            "amount_refunded": trade.by_hand_cents + trade.refunded_cents,
            "metadata": {"reference": trade.reference},
        }

    def _paid(self) -> list[Trade]:
        return [it for it in self.trades.values() if it.state == "paid"]

    def _page(self, path: str, fields: dict[str, str], items: list[dict[str, Any]]) -> Answer:
        """Return one item at a time, so that our side has to ask for the next page."""
        if "created[gte]" not in fields or "created[lt]" not in fields:
            self.violations.append("a list without its day")
        ids = [it["id"] for it in items]
        first = ids.index(fields["starting_after"]) + 1 if "starting_after" in fields else 0
        return _list(items[first : first + 1], more=first + 1 < len(items), path=path)

    def _by_number(self, text: str) -> Trade:
        (trade,) = (it for it in self.trades.values() if it.number == int(text[-8:]))
        return trade

    def forge(self, answer: Answer) -> Answer:
        """Stripe signs no answers: TLS does. So this is somebody else's session."""
        body = answer[2].replace(b'"client_reference_id": "', b'"client_reference_id": "x')
        return answer[0], answer[1], body

    def message(self, reference: str, identity: str = "") -> dict[str, Any]:
        trade = self.trades[reference]
        kind = {"paid": "completed", "closed": "expired", "open": "completed"}[trade.state]
        return {
            "id": identity or f"evt_{trade.number}_{trade.state}",
            "object": "event",
            "type": f"checkout.session.{kind}",
            "data": {"object": self._session(trade)},
        }

    def money_message(self, reference: str, identity: str) -> dict[str, Any]:
        trade = self.trades[reference]
        kind, subject = "charge.refunded", self._charge(trade)
        if trade.refund_state == "failed":
            number, cents = list(trade.lost.items())[-1]
            kind, subject = "refund.failed", self._refund(trade, number, cents, "failed")
        elif trade.dispute:
            is_open = trade.dispute in OPEN_DISPUTES
            kind = f"charge.dispute.{'created' if is_open else 'closed'}"
            subject = self._dispute(trade)
        return {"id": identity, "object": "event", "type": kind, "data": {"object": subject}}

    def signed(
        self, message: dict[str, Any], *, at_s: float, forged: bool = False
    ) -> tuple[Headers, bytes]:
        body = json.dumps(message)
        secret = "whsec_forged" if forged else SECRET
        signature = stripe.WebhookSignature.generate_signature_header(body, secret, int(at_s))
        return {"Stripe-Signature": signature}, body.encode()


def _json(content: Any) -> Answer:
    return 200, {"Content-Type": "application/json"}, json.dumps(content).encode()


def _list(items: list[dict[str, Any]], *, more: bool = False, path: str = "/v1/refunds") -> Answer:
    return _json({"object": "list", "data": items, "has_more": more, "url": path})


def _error(status: int, kind: str, code: str) -> Answer:
    content = {"error": {"type": kind, "code": code, "message": f"{code} of {KEY}"}}
    return status, {"Content-Type": "application/json"}, json.dumps(content).encode()
