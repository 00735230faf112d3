"""W7: a new key while a crowd buys; pages from one web server are sent to the other."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from pytest_django import Settings

from orders.payments.sandbox import SIGNATURE_HEADER, sign
from orders.placing.tokens import PurchaseToken, read_token
from tests.concurrency.sales import crowd_of, make_sale
from tests.faults.history import ACCEPTED, UNKNOWN, History, Outcome
from tests.support.crowd import fire, post
from tests.support.patience import wait_for
from tests.support.stack import Stack, Web
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.slow, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

OLD, NEW = "the-old-key-of-two-servers", "the-new-key-of-two-servers"
BUYERS = 40
AT_A_TIME = 10
ANSWERS_PER_STEP = 100

UNKNOWN_PAYMENT = "no payment none"
"""Why a notification is refused whose signature is right; the log says it, no answer does."""

WHY = re.compile(r"refused a notification of sandbox: (.+)")

TWO_STEPS = [(OLD, [NEW]), (NEW, [OLD])]
ONE_STEP = [(NEW, [OLD])]


@dataclass
class Server:
    """A web server, and the key that it signs with."""

    web: Web
    key: str


class Servers:
    """Two web servers, and a crowd that sends to each what the other has signed."""

    def __init__(self, stack: Stack, settings: Settings, sale: SeckillVoucher) -> None:
        self.stack, self.settings, self.sale = stack, settings, sale
        self.history = History("W7", "key rotation")
        self.webs: list[Web] = []
        self.pair = [Server(self._web(OLD, []), OLD) for _ in range(2)]
        crowd = crowd_of(sale, count=BUYERS)
        self.tokens = [read_token(text, sale_id=sale.pk, now_ms=0) for text in crowd]
        self.first_pages = self.pages(self.tokens, key=OLD)
        self._guard = threading.Lock()
        self._notified: set[tuple[str, str]] = set()

    def rotate(self, steps: Sequence[tuple[str, Sequence[str]]]) -> None:
        """Go through the steps, on one server after the other, while the crowd buys."""
        with self._buying():
            self._wait_for_answers()
            for key, fallbacks in steps:
                for number in range(2):
                    web = self._web(key, fallbacks)
                    with self._guard:
                        before, self.pair[number] = self.pair[number], Server(web, key)
                    before.web.stop()
                    self._wait_for_answers()

    def pages(self, tokens: Sequence[PurchaseToken], *, key: str) -> list[str]:
        """Return these buyers' tokens as a server with this key would write them."""
        self.settings.SECRET_KEY = key
        return [token.sign() for token in tokens]

    def _web(self, key: str, fallbacks: Sequence[str]) -> Web:
        web = self.stack.web(SECRET_KEY=key, SECRET_KEY_FALLBACKS=",".join(fallbacks))
        self.webs.append(web)
        return web

    @contextmanager
    def _buying(self) -> Iterator[None]:
        over = threading.Event()
        thread = threading.Thread(target=self._buy, args=[over])
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _buy(self, over: threading.Event) -> None:
        turn = 0
        while not over.wait(0.02):
            todo = [self.tokens[(turn + number) % BUYERS] for number in range(AT_A_TIME)]
            turn += AT_A_TIME
            with self._guard:  # so that no server ends amid these requests
                for opened, sent in (self.pair, self.pair[::-1]):
                    pages = self.pages(todo, key=opened.key)
                    self.history.fire(self.sale, pages, url=sent.web.url)
                    self._notify(opened.key, url=sent.web.url)

    def _notify(self, key: str, *, url: str) -> None:
        """Notify once as the sandbox of a server with this key would, of no payment.

        Of many refusals the log would leave out the later ones, whatever their reason.
        """
        if (key, url) in self._notified:
            return
        fields = {"reference": "none", "state": "paid", "amount_cents": 1, "trade": "1"}
        body = json.dumps(fields).encode()
        request = post("/payments/sandbox/notify/", fields, {SIGNATURE_HEADER: sign(body, key)})
        [answer] = fire([request], url=url)
        # Or it does not know: on a machine that stood still, Redis was late.
        assert answer.status in {400, 503}
        if answer.status == 400:
            self._notified.add((key, url))

    def why_refused(self) -> set[str]:
        """Return why notifications were refused."""
        return {why for web in self.webs for why in WHY.findall(web.text())}

    def _wait_for_answers(self) -> None:
        wanted = len(self.history.events) + ANSWERS_PER_STEP
        wait_for(lambda: len(self.history.events) >= wanted, what="answers")


@pytest.fixture
def servers(stack: Stack, settings: Settings) -> Servers:
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = OLD, [OLD, NEW]
    stack.worker()
    return Servers(stack, settings, make_sale(stock=BUYERS))


def test_w7_rotation_in_two_steps_refuses_nobody(
    servers: Servers, report: Callable[[Outcome], Any]
) -> None:
    with servers.history.fault():
        servers.rotate(TWO_STEPS)

    for server in servers.pair:  # of a page that has been open all the time
        servers.history.fire(servers.sale, servers.first_pages, url=server.web.url)
    assert servers.history.told().keys() <= {ACCEPTED, UNKNOWN}
    assert servers.why_refused() == {UNKNOWN_PAYMENT}
    servers.history.settle(servers.sale)
    outcome = servers.history.check(servers.sale)
    assert outcome.orders == outcome.accepted == BUYERS
    report(outcome)


def test_w7_rotation_in_one_step_refuses_buyers(servers: Servers) -> None:
    """The control: the first server signs with a key that the second does not know yet."""
    servers.rotate(ONE_STEP)

    refused = [it for it in servers.history.events if it.told not in (ACCEPTED, UNKNOWN)]
    assert {it.answer.status for it in refused} == {403}
    assert servers.why_refused() == {UNKNOWN_PAYMENT, "the signature is wrong"}
