"""The fairness benchmark: what honest buyers and the attacker's program send, and the report."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from bench.fairness.attacker import Attack, do_work, send_all_at
from bench.fairness.attacker import _send as send
from bench.fairness.buyers import from_address, honest_buyers, reaction_s
from bench.fairness.guards import GUARDS, Shares
from bench.sale.generator import Reply, order_request
from bench.sale.plan import FULL
from orders.placing.tokens import PurchaseToken, WorkMissing, check_work

pytestmark = pytest.mark.quick


def reply(status: int, at_s: float, **body: Any) -> Reply:
    return Reply(status, json.dumps(body).encode(), at_s)


def test_each_buyer_has_an_own_address() -> None:
    firsts = [next(visit).request for visit in honest_buyers(5, ["1:a", "2:b"], 0.0)]
    assert b"\r\nX-Forwarded-For: 10.0.0.1\r\n" in firsts[0]
    assert b"\r\nX-Forwarded-For: 10.0.0.2\r\n" in firsts[1]


def test_header_is_all_that_is_added() -> None:
    request = next(from_address(send(5, "1:a", 0.0), "10.0.0.9")).request
    assert request.replace(b"X-Forwarded-For: 10.0.0.9\r\n", b"") == order_request(
        5, "1:a", attempt=1
    )


def test_people_press_within_seconds() -> None:
    chance = random.Random(1)
    times = sorted(reaction_s(chance) for _ in range(2_000))
    assert times[0] > 0.2
    assert 0.9 < times[1_000] < 1.1
    assert times[1_900] < 3


def test_programs_work_is_what_the_shop_asks_for() -> None:
    token = PurchaseToken(7, 1, 5, 0, work=8)
    check_work(token, do_work(token.sign(), token.work))
    with pytest.raises(WorkMissing):
        check_work(token, token.sign())


def test_program_repeats_only_what_came_too_early() -> None:
    visit = send(5, "1:a", 1.0)
    assert next(visit).due_s == 1.0
    assert visit.send(reply(409, 1.5, code="not_started")).due_s > 1.5
    assert visit.send(reply(503, 2.0, code="unavailable")).due_s > 2.0
    with pytest.raises(StopIteration):
        visit.send(reply(429, 2.5, code="rate_limited"))


def test_accounts_share_the_addresses() -> None:
    attack = Attack(1, 5, ["a=b"] * 100, addresses=50, work=0)
    assert len({attack.address(number) for number in range(100)}) == 50
    send_all_at(attack, [], 0.0)  # without tokens there is nothing to send, to no server


def test_report_and_picture_show_each_guard() -> None:
    from bench.fairness.report import draw, report_on_contests

    contests = [Shares(guard, it, [20, 40, 30]) for guard in GUARDS.values() for it in (1, 50)]
    machine = {"cores": 2, "processor": "P", "memory_gib": 1, "kernel": "k"}
    report = report_on_contests(contests, FULL, {"machine": machine})
    assert [row[0] for row in report.rows] == [guard.title for guard in GUARDS.values()]
    assert report.rows[0][1:] == ["30 units, 15% (20–40)"] * 2
    picture = draw(contests, FULL)
    assert picture.count("15%") == len(contests)
    assert all(guard.title in picture for guard in GUARDS.values())
