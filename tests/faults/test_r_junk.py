"""R5: mistyped commands leave keys of a wrong type and unreadable entries, during a sale."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

import pytest

from orders.fulfilment.reconcile import reconcile
from orders.placing.tokens import read_token
from seckill_site.redis.ledger_connection import ledger_connection
from tests.concurrency.sales import crowd_of, make_sale
from tests.faults.history import History, Report, get_receipt
from tests.support.patience import wait_for
from tests.support.stack import Shop
from vouchers.inventory.keys import CONTENTS, LedgerKeys
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.slow, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

SIDE_KEYS = ("sale", "kick", "trying", "swept", "backoff", "failures", "sale_lock", "fence")
MENDED_SECONDS = 15.0

BUYERS = 20
"""They come after each broken key."""


def break_keys(sale: SeckillVoucher, *names: str) -> None:
    """Let keys of the sale have a type that they never have, for good."""
    for name in names:
        client, key = ledger_connection(), getattr(LedgerKeys(sale.pk), name)
        client.delete(key)
        client.rpush(key, "a mistyped command")


@contextmanager
def receipts_watched(history: History, sale: SeckillVoucher, url: str) -> Iterator[list[Any]]:
    """Ask for the receipts of accepted orders all the time, and collect those that say *lost*."""
    lost: list[Any] = []
    over = Event()

    def watch() -> None:
        while not over.wait(0.05):
            accepted = [it for it in list(history.events) if it.told == "accepted"]
            for event in accepted[:: max(1, len(accepted) // 10)]:
                answer = get_receipt(sale, event.text, url=url)
                history.note(answer)
                if answer.status == 200 and answer.body["reason"] == "lost":
                    lost.append(answer)

    thread = Thread(target=watch)
    thread.start()
    try:
        yield lost
    finally:
        over.set()
        thread.join(30)


CASES = [[name] for name in (*CONTENTS, *SIDE_KEYS)] + [
    ["loading", "buyers"],
    ["kick", "sale_lock"],
]


def test_r5_keys_of_a_wrong_type_are_repaired(shop: Shop, report: Report) -> None:
    history = History("R5", "each key of a wrong type in turn")
    sale = make_sale(stock=BUYERS * len(CASES))
    with receipts_watched(history, sale, shop.url) as lost:
        for names in CASES:
            break_keys(sale, *names)
            history.fault_is_over()
            history.fire(sale, crowd_of(sale, count=BUYERS), url=shop.url)
            history.ask_again(sale, url=shop.url)
            history.settle(sale)
    outcome = history.check(sale)
    assert (outcome.orders, lost) == (BUYERS * len(CASES), [])
    report(outcome)


def test_r5_sale_is_mended_within_fifteen_seconds_without_any_request(
    shop: Shop, report: Report
) -> None:
    history = History("R5", "all keys of a wrong type, and no request")
    sale = make_sale(stock=2 * BUYERS)
    types = LedgerKeys(sale.pk).types
    history.fire(sale, crowd_of(sale, count=BUYERS), url=shop.url)
    history.settle(sale)
    with history.fault():
        for key in types:
            ledger_connection().delete(key)
            ledger_connection().xadd(key, {"mistyped": "command"})
    wait_for(lambda: not broken_keys(types), what="right types", seconds=MENDED_SECONDS)
    history.settle(sale, seconds=MENDED_SECONDS)
    outcome = history.check(sale, recovery_seconds=MENDED_SECONDS)
    assert outcome.orders == BUYERS
    del types[LedgerKeys(sale.pk).tally]  # the web server may have met it first
    for key in types:
        named = [line for line in shop.worker.text().splitlines() if key in line]
        assert len(named) == 1
    report(outcome)


def broken_keys(types: dict[str, str]) -> list[str]:
    return [
        key for key, right in types.items() if ledger_connection().type(key) not in (right, "none")
    ]


def test_r5_entries_that_cannot_be_parsed_are_put_aside(shop: Shop, report: Report) -> None:
    history = History("R5", "entries that cannot be parsed")
    sale = make_sale(stock=4 * BUYERS)
    client, keys = ledger_connection(), LedgerKeys(sale.pk)
    one, *tokens = crowd_of(sale, count=3 * BUYERS)
    junk = ["junk", "1:2", "a:b:c", b"\xff\xfe", f"{10**19}:1:1", "-1:2:3"]
    members: dict[Any, float] = {member: score for score, member in enumerate(junk)}
    history.fire(sale, tokens[:BUYERS], url=shop.url)
    with history.fault():
        client.zadd(keys.pending, {**members, "7:8:1": float("inf"), "8:9:1": float("-inf")})
        client.hset(keys.buyers, mapping={"x": "y", "7:2": "", b"\xff": b"\xff"})
        client.hset(keys.buyers, f"{read_token(one, sale_id=sale.pk, now_ms=0).user_id}:1", "junk")
        client.hset(keys.tries, mapping={"junk": "junk", "-1": "1 1"})
    history.fire(sale, [one, *tokens[BUYERS:]], url=shop.url)
    history.ask_again(sale, url=shop.url)
    reconcile(sale_id=sale.pk, repair=True)  # beat would do so within 15 s
    history.settle(sale)
    wait_for(lambda: not reconcile(sale_id=sale.pk).difference, what="no difference")
    outcome = history.check(sale)
    assert outcome.orders == 3 * BUYERS
    # The first buyer takes the place of one, unless beat has put that aside before.
    assert client.llen(keys.junk) - len(junk) - 2 in (3, 4)
    report(outcome)
