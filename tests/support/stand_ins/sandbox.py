"""The sandbox in the place of a stand-in: it keeps its books in the shop's own database."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings as django_settings

from orders.models import SandboxTrade
from orders.payments.sandbox import SIGNATURE_HEADER, sign
from tests.support.stand_ins.server import Answer, Headers, Request, StandIn, Trade


class SandboxStandIn(StandIn):
    """The sandbox, with the stand-ins' way to pay and to notify. It has no HTTP to fail."""

    name = "sandbox"
    path = "orders.payments.sandbox.Sandbox"

    def configure(self, settings: Any) -> None:
        """Nothing to set: it is in this process."""

    def answer(self, request: Request) -> Answer:
        raise NotImplementedError

    def forge(self, answer: Answer) -> Answer:
        raise NotImplementedError

    def visit(self, pay_url: str) -> None:
        reference = pay_url.rstrip("/").rpartition("/")[2]
        trade = SandboxTrade.objects.get(reference=reference)
        self.new_trade(reference, trade.amount_cents)

    def pay(
        self, reference: str, *, amount_cents: int | None = None, currency: str | None = None
    ) -> None:
        super().pay(reference, amount_cents=amount_cents, currency=currency)
        self._write(self.trades[reference])

    def end(self, reference: str) -> None:
        super().end(reference)
        self._write(self.trades[reference])

    def _write(self, trade: Trade) -> None:
        books = SandboxTrade.objects.filter(reference=trade.reference)
        books.update(state=trade.state, amount_cents=trade.amount_cents)

    def message(self, reference: str, identity: str = "") -> dict[str, Any]:
        trade = self.trades[reference]
        return {
            "reference": reference,
            "state": trade.state,
            "amount_cents": trade.amount_cents,
            "trade": str(trade.number),
        }

    def signed(
        self, message: dict[str, Any], *, at_s: float, forged: bool = False
    ) -> tuple[Headers, bytes]:
        body = json.dumps(message).encode()
        key = "forged" if forged else django_settings.SECKILL_SANDBOX_KEY
        return {SIGNATURE_HEADER: sign(body, key)}, body
