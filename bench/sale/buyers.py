"""The buyers of an evening, each a visit of the load generator.

Each loads the purchase page in the last minute but one, and reloads it twice in the last one, at
random times. As the page's script does, it then asks ``live/`` and, in the time that this names,
``me/``, unless it is reloaded before. When the sale starts, all of them press at once, with the
token of their last ``me/``, and whoever gets a unit follows the receipt until the order is written.
"""

import json
import math
import random
import time
from collections.abc import Generator, Sequence
from itertools import pairwise

from bench.sale import generator
from bench.sale.generator import Reply, Step, Visit

PAGE, LIVE, ME, ROOM, ORDER, RECEIPT = "page", "live/", "me/", "room/", "order", "receipt"
RELOADS = 2
QUIET_S = 5.0
"""No page plans to ask ``me/`` as shortly before the start as this."""

RETRY_S = 1.0


def buyers_with_pages(
    sale_id: int, cookies: Sequence[str], opens_at: float, minute_s: int
) -> list[Visit]:
    """Make a visit for each cookie; the sale starts at ``opens_at`` (seconds since 1970)."""
    opens_s, chance = opens_at - time.time(), random.Random(7)  # the same times in every run

    def loads() -> list[float]:
        minutes_before = (1 + chance.random(), *(chance.random() for _ in range(RELOADS)))
        return sorted(opens_s - minute_s * it for it in minutes_before)

    return [load_and_order(sale_id, cookie, loads(), opens_s) for cookie in cookies]


def buyers_with_tokens(sale_id: int, tokens: Sequence[str], opens_at: float) -> list[Visit]:
    """Make a visit for each token, without pages."""
    opens_s = opens_at - time.time()
    return [order(sale_id, token, opens_s) for token in tokens]


def load_and_order(sale_id: int, cookie: str, loads: Sequence[float], opens_s: float) -> Visit:
    """Load the page at these times and press at the start, all in seconds after now."""
    for due_s, reload_s in pairwise([*loads, math.inf]):
        yield Step(PAGE, generator.page_request(sale_id, cookie), due_s)
        live = yield from patiently(Step(LIVE, generator.live_request(sale_id)))
        pace_s = json.loads(live.body)["me_pace_ms"] / 1000
        left_s = opens_s - QUIET_S - live.at_s
        ask_at_s = live.at_s + random.random() * max(0.0, min(pace_s, left_s))
        if ask_at_s < reload_s:
            me = yield from patiently(Step(ME, generator.me_request(sale_id, cookie), ask_at_s))
    yield from order(sale_id, json.loads(me.body)["sale"]["token"], opens_s)


def wait_and_order(sale_id: int, cookie: str, comes_s: float) -> Visit:
    """Load the page at this time, wait in line if need be, and order.

    :raises ValueError: a rule of the sale or the shop refuses the visitor.
    """
    yield from patiently(Step(PAGE, generator.page_request(sale_id, cookie), comes_s))
    while True:
        me = yield from patiently(Step(ME, generator.me_request(sale_id, cookie)))
        sale = json.loads(me.body)["sale"]
        if sale["token"]:
            break
        if rule := sale.get("rule"):
            raise ValueError(f"a rule refuses the visitor: {rule}")
        cookie = yield from _wait(sale_id, cookie)
    yield from order(sale_id, sale["token"])


def _wait(sale_id: int, cookie: str) -> Generator[Step, Reply, str]:
    """Poll the place in line, as its page does, until it is the visitor's turn.

    Return the cookies, with the signed place: a Redis that lost the last moment has it no more.
    """
    due_s = 0.0
    while True:
        reply = yield from patiently(Step(ROOM, generator.room_request(sale_id, cookie), due_s))
        answer = json.loads(reply.body)
        cookie = _kept(cookie, reply)
        if answer["turn"] == "in":
            return cookie
        due_s = reply.at_s + answer["poll_after_ms"] / 1000


def _kept(cookie: str, reply: Reply) -> str:
    """Return these cookies with those of a reply."""
    jar = dict(it.split("=", 1) for it in cookie.split("; "))
    for line in reply.head.decode().split("\r\n"):
        name, _, value = line.partition(": ")
        if name.lower() == "set-cookie":
            cookie_name, _, cookie_value = value.partition(";")[0].partition("=")
            jar[cookie_name] = cookie_value
    return "; ".join("=".join(it) for it in jar.items())


def order(sale_id: int, token: str, due_s: float = 0.0) -> Visit:
    """Order with a token and, if that wins, follow the receipt until the order is written."""
    reply = yield from patiently(
        Step(ORDER, generator.order_request(sale_id, token, attempt=1), due_s)
    )
    if reply.status != 202:
        return
    receipt = json.loads(reply.body)
    request = generator.receipt_request(sale_id, receipt["order_id"], token)
    while receipt["status"] == "queued":
        due_s = reply.at_s + receipt["poll_after_ms"] / 1000
        reply = yield from patiently(Step(RECEIPT, request, due_s))
        receipt = json.loads(reply.body)


def patiently(step: Step) -> Generator[Step, Reply, Reply]:
    """Ask again while the answer is 503."""
    while (reply := (yield step)).status == 503:
        step = step._replace(due_s=reply.at_s + RETRY_S)
    return reply
