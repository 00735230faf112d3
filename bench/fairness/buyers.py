"""Honest buyers: each has an address of their own, and presses once after the start."""

import random
import time
from collections.abc import Sequence
from ipaddress import IPv4Address

from bench.sale.buyers import order
from bench.sale.generator import Reply, Visit

LEAST_S, MEDIAN_S, SPREAD = 0.2, 0.8, 0.7
"""Press after 0.2 s, the fastest a hand follows an eye, and a time of a log-normal distribution.

An assumption, not a measurement: half press within a second, nineteen of twenty within 2.7 s.
"""

FIRST_ADDRESS = int(IPv4Address("10.0.0.1"))


def honest_buyers(sale_id: int, tokens: Sequence[str], opens_at: float) -> list[Visit]:
    """Make a buyer for each token; the sale starts at ``opens_at`` (seconds since 1970)."""
    opens_s, chance = opens_at - time.time(), random.Random(7)  # the same times in every run
    presses = [opens_s + reaction_s(chance) for _ in tokens]
    return [
        from_address(order(sale_id, token, due_s), str(IPv4Address(FIRST_ADDRESS + number)))
        for number, (token, due_s) in enumerate(zip(tokens, presses, strict=True))
    ]


def reaction_s(chance: random.Random) -> float:
    """Return how long after the start somebody presses."""
    return LEAST_S + MEDIAN_S * chance.lognormvariate(0, SPREAD)


def from_address(visit: Visit, address: str) -> Visit:
    """Let a visit come from an address, as the trusted proxy would name it."""
    header = f"X-Forwarded-For: {address}".encode()
    try:
        step = next(visit)
        while True:
            line, _, rest = step.request.partition(b"\r\n")
            reply: Reply = yield step._replace(request=b"\r\n".join([line, header, rest]))
            step = visit.send(reply)
    except StopIteration:
        return
