"""What all stand-ins of payment providers share: an HTTP server that fails as it is told."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

OPEN_DISPUTES = ("needs_response", "under_review")

Headers = dict[str, str]
Answer = tuple[int, Headers, bytes]


class Fault(Enum):
    """How a provider fails a request; it may have carried it out."""

    SILENCE = "silence"
    ERROR_500 = "error_500"
    LOST = "lost"
    HALF = "half"
    GARBAGE = "garbage"
    FORGED = "forged"


class RefundMode(Enum):
    """What becomes of a refund."""

    DONE = "done"
    PENDING = "pending"
    REFUSED = "refused"


class Request(NamedTuple):
    """A request as it came."""

    method: str
    path: str
    headers: Headers
    body: bytes


@dataclass
class Trade:
    """A charge in a stand-in's books."""

    reference: str
    amount_cents: int
    currency: str = "CNY"
    state: str = "open"
    number: int = 0
    refunded_cents: int = 0
    refund_state: str = ""
    by_hand_cents: int = 0
    is_shared: bool = False
    """Whether it pays several orders, each with a refund of its own number."""

    parts: dict[str, int] = field(default_factory=dict)
    """What our refunds have given back, by number; what they are about to, and what has failed."""

    waiting: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)
    dispute: str = ""
    fields: dict[str, Any] = field(default_factory=dict)


class StandIn(ABC):
    """A provider over HTTP, and its buyers: it speaks the documented protocol and checks ours."""

    name: str
    path: str
    """The class of our side, for ``SECKILL_PAYMENT_PROVIDERS``."""

    repeats_charge = True
    """Whether two equal calls that open a charge reach the provider."""

    def __init__(self) -> None:
        self.trades: dict[str, Trade] = {}
        self.faults: deque[Fault | None] = deque()
        """The faults of the next requests; None is one that succeeds."""

        self.requests: list[Request] = []
        self.violations: list[str] = []
        self.charge_refusal = ""
        """The code with which charges are refused, until it is empty."""

        self.links: list[str] = []
        """The addresses given out so far that end before their charge."""

        self.refund_mode = RefundMode.DONE
        self.refund_calls = 0
        self._released = threading.Event()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.stand_in = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._released.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @abstractmethod
    def configure(self, settings: Any) -> None:
        """Point our settings at this server."""

    @abstractmethod
    def answer(self, request: Request) -> Answer:
        """Carry a request out and answer it."""

    @abstractmethod
    def forge(self, answer: Answer) -> Answer:
        """Return an answer as somebody without the provider's key would write it."""

    def visit(self, pay_url: str) -> None:  # noqa: B027 (most have nothing to do)
        """Open the provider's page, as the buyer's browser does."""

    def let_links_end(self) -> None:
        """Let everything that was opened so far reach the end of its life, unpaid."""
        self.links.clear()

    def pay(
        self, reference: str, *, amount_cents: int | None = None, currency: str | None = None
    ) -> None:
        """Pay, perhaps another amount or in another currency."""
        trade = self.trades[reference]
        trade.state = "paid"
        trade.amount_cents = amount_cents or trade.amount_cents
        trade.currency = currency or trade.currency

    def end(self, reference: str) -> None:
        """Close a charge unpaid."""
        self.trades[reference].state = "closed"

    def refund_by_hand(self, reference: str, amount_cents: int) -> None:
        """Refund a part on the provider's own pages, as staff do."""
        self.trades[reference].by_hand_cents += amount_cents

    def fail_refund(self, reference: str, number: str = "") -> None:
        """Let a refund fail that had succeeded: the last one, or that of this number."""
        trade = self.trades[reference]
        number = number or list(trade.parts)[-1]
        trade.lost[number] = trade.parts.pop(number)
        trade.refund_state = "failed"
        trade.refunded_cents -= trade.lost[number]

    def money_message(self, reference: str, identity: str) -> dict[str, Any]:
        """Return what a notification says about money that went back, or is disputed."""
        raise NotImplementedError

    @abstractmethod
    def message(self, reference: str, identity: str = "") -> dict[str, Any]:
        """Return what a notification of a charge's state says."""

    @abstractmethod
    def signed(
        self, message: dict[str, Any], *, at_s: float, forged: bool = False
    ) -> tuple[Headers, bytes]:
        """Return the headers and the body of a notification that says this, or anything else."""

    def notification(
        self, reference: str, *, at_s: float, identity: str = "", forged: bool = False
    ) -> tuple[Headers, bytes]:
        """Return the headers and the body of a notification of a charge's state."""
        return self.signed(self.message(reference, identity), at_s=at_s, forged=forged)

    def finish_refund(self, reference: str) -> None:
        """Let pending refunds arrive."""
        trade = self.trades[reference]
        trade.refund_state = "done"
        trade.parts |= trade.waiting
        trade.refunded_cents += sum(trade.waiting.values())
        trade.waiting.clear()

    def let_an_hour_pass(self) -> None:  # noqa: B027 (most forget nothing)
        """Forget what the provider remembers for a while."""

    def refund_trade(self, trade: Trade, amount_cents: int, number: str) -> str:
        """Refund money of a trade once for each number, as told; return the state of that."""
        self.refund_calls += 1
        if trade.state != "paid" and not trade.refund_state:
            self.violations.append(f"refund of {trade.reference}, which is {trade.state}")
        if number in trade.parts:
            return "done"
        others = sum(cents for it, cents in trade.waiting.items() if it != number)
        rest_cents = trade.amount_cents - trade.by_hand_cents - trade.refunded_cents - others
        if amount_cents > rest_cents or trade.dispute in OPEN_DISPUTES:
            return "refused"
        if amount_cents != rest_cents and not trade.is_shared:
            self.violations.append(f"refund of {amount_cents}, left were {rest_cents}")
        trade.refund_state = self.refund_mode.value
        if trade.refund_state == "done":
            trade.waiting.pop(number, None)
            trade.parts[number] = amount_cents
            trade.refunded_cents += amount_cents
        elif trade.refund_state == "pending":
            trade.waiting[number] = amount_cents
        return trade.refund_state

    def new_trade(self, reference: str, amount_cents: int, **fields: Any) -> Trade:
        """Open a charge, once; the caller checks whether its other fields are the same again."""
        trade = self.trades.get(reference)
        if trade is None:
            number = len(self.trades) + 1
            trade = Trade(reference, amount_cents, number=number, fields=fields)
            self.trades[reference] = trade
        elif trade.amount_cents != amount_cents and trade.state == "open":
            self.violations.append(f"{reference} opened again with {amount_cents}")
        return trade

    # --- Serving ----------------------------------------------------------------------------------

    def serve(self, request: Request, handler: BaseHTTPRequestHandler) -> None:
        """Answer a request, or fail it in the next way that was told."""
        with self._lock:
            self.requests.append(request)
            fault = self.faults.popleft() if self.faults else None
            if fault is Fault.SILENCE:
                answer: Answer = (504, {}, b"")
            elif fault is Fault.ERROR_500:
                answer = (500, {}, b'{"error": {"type": "api_error"}}')
            elif fault is Fault.GARBAGE:
                answer = (200, {"Content-Type": "text/html"}, b"<html>maintenance</html>")
            else:
                answer = self.answer(request)
        if fault is Fault.SILENCE:
            self._released.wait(30)
            return
        if fault is Fault.LOST:
            return
        if fault is Fault.FORGED:
            answer = self.forge(answer)
        status, headers, body = answer
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: len(body) // 2] if fault is Fault.HALF else body)


class _Handler(BaseHTTPRequestHandler):
    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = Request(self.command, self.path, headers, body)
        stand_in: StandIn = self.server.stand_in  # type: ignore[attr-defined]
        with suppress(OSError):  # the shop has given up
            stand_in.serve(request, self)
        self.close_connection = True

    do_GET = do_POST = _serve

    def log_message(self, *args: Any) -> None:
        """Print nothing."""
