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

from bench.sale.generator import (
    Reply,
    Step,
    Visit,
    live_request,
    me_request,
    order_request,
    page_request,
    receipt_request,
)

PAGE, LIVE, ME, ORDER, RECEIPT = "page", "live/", "me/", "order", "receipt"
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
        yield Step(PAGE, page_request(sale_id, cookie), due_s)
        live = yield from patiently(Step(LIVE, live_request(sale_id)))
        pace_s = json.loads(live.body)["me_pace_ms"] / 1000
        left_s = opens_s - QUIET_S - live.at_s
        ask_at_s = live.at_s + random.random() * max(0.0, min(pace_s, left_s))
        if ask_at_s < reload_s:
            me = yield from patiently(Step(ME, me_request(sale_id, cookie), ask_at_s))
    yield from order(sale_id, json.loads(me.body)["sale"]["token"], opens_s)


def order(sale_id: int, token: str, due_s: float = 0.0) -> Visit:
    """Order with a token and, if that wins, follow the receipt until the order is written."""
    reply = yield from patiently(Step(ORDER, order_request(sale_id, token, attempt=1), due_s))
    if reply.status != 202:
        return
    receipt = json.loads(reply.body)
    request = receipt_request(sale_id, receipt["order_id"], token)
    while receipt["status"] == "queued":
        due_s = reply.at_s + receipt["poll_after_ms"] / 1000
        reply = yield from patiently(Step(RECEIPT, request, due_s))
        receipt = json.loads(reply.body)


def patiently(step: Step) -> Generator[Step, Reply, Reply]:
    """Ask again while the answer is 503."""
    while (reply := (yield step)).status == 503:
        step = step._replace(due_s=reply.at_s + RETRY_S)
    return reply
