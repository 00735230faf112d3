"""Faults of the front half: the web process, its line to Redis, its line to the broker.

W5 (200 threads of one buyer, N and 10 N buyers at once, begin and end crossed under load) and W6
(edits, pause, loads in mid-sale) are ``tests/concurrency``: ``test_crowds.py`` and
``test_reserving.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from redis.connection import parse_url

from backoffice.rehearsal.http_client import Address
from orders.placing.tokens import read_token
from seckill_site.front_door.ledger_node import LONGEST_S
from seckill_site.redis.ledger_connection import ledger_connection
from tests.concurrency.sales import crowd_of, make_sale
from tests.faults.conftest import OwnRedis, standing_stack
from tests.faults.history import ACCEPTED, LATE_SECONDS, History, Outcome, Report, get_receipt
from tests.fixtures.processes import add_logs
from tests.support.browsers import session_cookie
from tests.support.crowd import Answer, fire
from tests.support.patience import wait_for
from tests.support.proxy import FaultProxy, redis_server
from tests.support.stack import Stack, Web
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.rebuild import current_run_id
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.slow, pytest.mark.concurrency]

THREADS = 4
BUYERS = 20
LONGEST_ANSWER_S = 1.5 + 1.5
"""The longest that anybody waits for an answer that needs Redis, and what a busy machine adds."""

RESERVE = b"EVALSHA"
"""All that the web process asks Redis for a buyer."""

QUICK: dict[str, Any] = {
    "SECKILL_SWEEP_AGE_MS": "500",
    "SECKILL_KICK_MS": "1000",
    "SECKILL_LEASE_MS": "2000",
    "SECKILL_LOG_LEVEL": "WARNING",
}
"""A quarter of the waits of the default settings, so a quarter of the recovery times."""


@dataclass
class Front:
    """Web servers, of which ``far`` has its lines to Redis and the broker through proxies.

    ``plain`` is as far, and Django alone.
    """

    stack: Stack
    redis: OwnRedis
    ledger_line: FaultProxy
    broker_line: FaultProxy
    near: Web
    far: Web
    plain: Web


@pytest.fixture(scope="module")
def standing(django_db_setup: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """The processes of all tests here, with a ledger of their own that may be killed."""
    with (
        OwnRedis(tmp_path_factory.mktemp("redis")) as redis,
        FaultProxy(("127.0.0.1", redis.port)) as ledger_line,
        FaultProxy(redis_server(settings.CELERY_BROKER_URL)) as broker_line,
        standing_stack(tmp_path_factory) as stack,
    ):
        with stack.together():
            near = stack.web(threads=THREADS, REDIS_URL=redis.url(), **QUICK)
            far, plain = (
                stack.web(
                    threads=THREADS,
                    server=server,
                    REDIS_URL=ledger_line.url(0),
                    CELERY_BROKER_URL=broker_line.url(
                        parse_url(settings.CELERY_BROKER_URL)["db"], like=settings.CELERY_BROKER_URL
                    ),
                    SECKILL_PUBLISH_PAUSE_MS="1",
                    **QUICK,
                )
                for server in ("granian", "wsgi")
            )
            stack.worker("--beat", concurrency=1, REDIS_URL=redis.url(), **QUICK)
        yield Front(stack, redis, ledger_line, broker_line, near, far, plain)


@pytest.fixture
def front(
    transactional_db: None,
    row_locks: None,
    standing: Front,
    use_ledger: Callable[[str], None],
    request: pytest.FixtureRequest,
) -> Iterator[Front]:
    """The standing processes, with an empty ledger and nothing broken."""
    with standing.redis.client() as client:
        client.flushall()
    use_ledger(standing.redis.url())
    yield standing
    standing.ledger_line.heal()
    standing.broker_line.heal()
    add_logs(request.node, standing.stack.processes)


def a_warm_sale(front: Front, history: History) -> SeckillVoucher:
    """Make a sale in which one buyer was served already: scripts are known, connections open."""
    sale = make_sale(stock=10 * BUYERS)
    history.fire(sale, crowd_of(sale, count=THREADS), url=front.far.url)
    history.ask_again(sale, url=front.far.url)
    return sale


def finish(history: History, sale: SeckillVoucher, report: Report) -> Outcome:
    """Wait until all is quiet, hold the history against the invariants, and report."""
    history.settle(sale)
    outcome = history.check(sale)
    report(outcome)
    return outcome


def until_told(history: History, sale: SeckillVoucher, *, url: str) -> None:
    """Let those who were told nothing ask until they are told, as a buyer's page does."""

    history.ask_again(sale, url=url)
    history.recovered()


# --- W1: the web process exits --------------------------------------------------------------------


@pytest.mark.parametrize("point", ["place.read", "place.reserved:5", "place.published"])
def test_w1_retry_at_other_process_gets_the_same_order(
    front: Front, stack: Stack, report: Report, point: str
) -> None:
    history = History("W1", f"web process exits at {point}")
    sale = make_sale(stock=BUYERS)
    dying = stack.web(FAILPOINT=point, REDIS_URL=front.redis.url(), **QUICK)

    with history.fault():
        history.fire(sale, crowd_of(sale, count=BUYERS), url=dying.url, connections=4)

    assert history.not_told(sale), "nobody met the fault"
    history.ask_again(sale, url=front.near.url)
    assert len(history.accepted_ids(sale)) == BUYERS
    assert finish(history, sale, report).orders == BUYERS


# --- W2: the reply of the reserve script ----------------------------------------------------------


@pytest.mark.parametrize("times", [1, 2])
def test_w2_dropped_redis_reply_accepts_buyer_once(
    front: Front, report: Report, times: int
) -> None:
    history = History("W2", f"reply of the reserve script dropped {times} times")
    sale = a_warm_sale(front, history)
    (token,) = crowd_of(sale, count=1)

    with history.fault():
        front.ledger_line.drop_replies(times, matching=RESERVE)
        statuses = [one(history, sale, token, front.far).status for _ in range(times + 1)]

    assert statuses == [503] * times + [202]
    assert front.ledger_line.dropped >= times
    assert finish(history, sale, report).orders == THREADS + 1


@pytest.mark.faults
@pytest.mark.parametrize("all_or_none", [0, 1])
def test_w2_dropped_redis_reply_gives_one_purchase(
    front: Front, report: Report, all_or_none: int
) -> None:
    """Whatever quantity is asked for again, and with nothing of it left in between."""
    history = History("W2", "reply of the reserve script dropped, three units")
    sale = make_sale(stock=THREADS + 3, limit=3)
    history.fire(sale, crowd_of(sale, count=THREADS), url=front.far.url)
    history.ask_again(sale, url=front.far.url)
    tokens = crowd_of(sale, count=1)
    wants = {"quantity": 3, "all_or_none": all_or_none}

    with history.fault():
        front.ledger_line.drop_replies(1, matching=RESERVE)
        (lost,) = history.fire(sale, tokens, url=front.far.url, **wants)
        (told,) = history.fire(sale, tokens, url=front.far.url, quantity=1)
        (again,) = history.fire(sale, tokens, url=front.far.url, **wants)

    assert (lost.status, told.status, again.status) == (503, 202, 202)
    assert finish(history, sale, report).orders == THREADS + 3


@pytest.mark.faults
def test_w2_receipt_tells_when_all_replies_are_dropped(front: Front, report: Report) -> None:
    history = History("W2", "every reply of the reserve script dropped")
    sale = a_warm_sale(front, history)
    tokens = crowd_of(sale, count=BUYERS)

    with history.fault():
        front.ledger_line.drop_replies(None, matching=RESERVE)
        answers = history.fire(sale, tokens, url=front.far.url)
        assert {answer.status for answer in answers} == {503}
        history.settle(sale)
        receipts = [receipt(history, sale, token, front.far) for token in tokens]

    assert {answer.body["status"] for answer in receipts} == {"unpaid"}
    front.ledger_line.heal()
    history.ask_again(sale, url=front.far.url)
    assert finish(history, sale, report).orders == THREADS + BUYERS


def test_w2_late_reply_answers_no_other_request(front: Front, report: Report) -> None:
    history = History("W2", "reply of the reserve script comes after the timeout")
    sale = a_warm_sale(front, history)
    first, *others = crowd_of(sale, count=BUYERS)

    with history.fault():
        front.ledger_line.hold_replies(1, matching=RESERVE)
        assert one(history, sale, first, front.far).status == 503
        front.ledger_line.release()

    answers = history.fire(sale, others, url=front.far.url)
    assert {answer.status for answer in answers} <= {202, 503}  # until it is connected again
    history.ask_again(sale, url=front.far.url)
    assert finish(history, sale, report).orders == THREADS + BUYERS


# --- W3: Redis ------------------------------------------------------------------------------------


@pytest.mark.parametrize("alone", [False, True], ids=["front-door", "wsgi"])
def test_w3_refusing_redis_returns_quick_503_and_recovers(
    front: Front, report: Report, alone: bool
) -> None:
    if alone:
        front = replace(front, far=front.plain)
    history = History("W3", f"Redis refuses connections{', Django alone' if alone else ''}")
    sale = a_warm_sale(front, history)

    with history.fault():
        front.ledger_line.refuse()
        front.ledger_line.cut()
        answers = history.fire(sale, crowd_of(sale, count=5 * BUYERS), url=front.far.url)
        assert {answer.status for answer in answers} == {503}
        front.ledger_line.heal()

    assert_all_are_told_soon(front, history, sale)
    assert finish(history, sale, report).orders == THREADS + 5 * BUYERS


def test_w3_silent_redis_costs_its_timeout_only(front: Front, report: Report) -> None:
    history = History("W3", "Redis unreachable without a reset")
    sale = a_warm_sale(front, history)
    before = connections_to(front.redis)

    with history.fault():
        front.ledger_line.stall()
        answers = history.fire(
            sale, crowd_of(sale, count=3 * THREADS), url=front.far.url, connections=3 * THREADS
        )
        assert {answer.status for answer in answers} == {503}
        front.ledger_line.heal()

    assert_all_are_told_soon(front, history, sale)
    wait_for(lambda: connections_to(front.redis) <= before + THREADS, what="as few connections")
    assert finish(history, sale, report).orders == THREADS + 3 * THREADS


def test_w3_silent_redis_keeps_no_crowd_waiting(front: Front, report: Report) -> None:
    """After one timeout the others are told at once, whatever they ask; nobody is left out."""
    history = History("W3", "Redis silent, a crowd of 422")
    sale = a_warm_sale(front, history)
    tokens = crowd_of(sale, count=150)
    pages = [get(f"/vouchers/{sale.pk}/", Accept="text/html"), get(f"/vouchers/{sale.pk}/live/")]
    some = [*(it.text for it in history.events if it.told == ACCEPTED), *tokens[: 2 * THREADS]]
    personal = [it for text in some for it in personal_requests(sale, text)]
    warm = fire(personal, url=front.far.url, connections=8)
    assert {answer.status for answer in warm} <= {200, 404}

    with history.fault():
        front.ledger_line.stall()
        others = fire([*personal * 2, *pages * 100], url=front.far.url, connections=len(personal))
        answers = history.fire(sale, tokens, url=front.far.url, connections=150)
        assert {answer.status for answer in others} == {200, 503}
        assert {answer.status for answer in answers} == {503}
        told_nothing = [answer for answer in (*others, *answers) if answer.status == 503]
        assert {answer.headers["retry-after"] for answer in told_nothing} == {"1"}
        stalled_s = history.stalls.seconds()
        longest_s = max(answer.seconds for answer in (*others, *answers))
        assert longest_s < LONGEST_ANSWER_S + stalled_s
        # Those who came first waited for one timeout, and nobody for a second one after it.
        first_s = min(answer.seconds for answer in others[: len(personal) : 3])
        assert first_s < 2 * LONGEST_S + stalled_s
        seconds = sorted(answer.seconds for answer in answers)
        # Most of them came after somebody's timeout.
        assert seconds[len(seconds) // 2] < LONGEST_S + stalled_s
        front.ledger_line.heal()

    until_told(history, sale, url=front.far.url)
    assert finish(history, sale, report).orders == THREADS + 150


def get(path: str, **headers: str) -> bytes:
    return Address.of("http://localhost").request("GET", path, headers=headers)


def personal_requests(sale: SeckillVoucher, text: str) -> list[bytes]:
    """Return what the page of a token's buyer asks: the receipt, who is there, another token."""
    token = read_token(text, sale_id=sale.pk, now_ms=0)
    cookie = session_cookie(User.objects.get(pk=token.user_id))
    return [
        get(f"/vouchers/{sale.pk}/orders/{token.order_id}/", **{"Purchase-Token": text}),
        get(f"/me/?sale={sale.pk}", Cookie=cookie),
        get(f"/vouchers/{sale.pk}/token/", Cookie=cookie),
    ]


def test_w3_redis_out_of_memory_accepts_nothing_partially(front: Front, report: Report) -> None:
    history = History("W3", "Redis out of memory")
    sale = a_warm_sale(front, history)
    history.settle(sale)

    tokens = crowd_of(sale, count=BUYERS)
    with history.fault(), out_of_memory(front.redis):
        answers = history.fire(sale, tokens, url=front.far.url)
        assert {answer.status for answer in answers} == {503}
        assert snapshot(sale_id=sale.pk).taken == THREADS

    assert_all_are_told_soon(front, history, sale)
    assert finish(history, sale, report).orders == THREADS + BUYERS


def test_w3_redis_restarted_under_load_forgets_nobody(front: Front, report: Report) -> None:
    history = History("W3", "Redis killed and restarted under load")
    sale = a_warm_sale(front, history)

    with history.buying(sale, crowd_of(sale, count=150), url=front.far.url):
        wait_for(lambda: len(history.events) > 20, what="load")
        with history.fault():
            front.redis.kill()
            front.redis.start()

    until_told(history, sale, url=front.far.url)
    # The watch closes the sale once more, and builds its ledger anew.
    wait_for(lambda: run_of(sale) == current_run_id(), what="watch over Redis")
    assert finish(history, sale, report).orders == THREADS + 150


def test_w3_flushed_scripts_are_sent_again_under_load(front: Front, report: Report) -> None:
    history = History("W3", "SCRIPT FLUSH under load")
    sale = a_warm_sale(front, history)
    tokens = crowd_of(sale, count=150)

    with front.redis.client() as client, history.fault():
        with history.buying(sale, tokens, url=front.far.url) as thread:
            flushes = 0
            while thread.is_alive():
                client.script_flush()
                flushes += 1
        assert flushes > 10

    assert history.told()["unknown"] == 0 or history.stalls.seconds() > LATE_SECONDS
    history.ask_again(sale, url=front.far.url)
    assert finish(history, sale, report).orders == THREADS + 150


# --- W4: the broker -------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["refused", "stalled"])
def test_w4_missing_broker_delays_buyer_under_a_second(
    front: Front, report: Report, how: str
) -> None:
    history = History("W4", f"broker {how} at the publish")
    buyers = 9  # of both cases together, the log writes each line
    sale = make_sale(stock=buyers)
    log_lines = front.far.text().count("not sent, it will be swept")

    with history.fault():
        if how == "stalled":
            front.broker_line.stall()
        else:
            front.broker_line.refuse()
            front.broker_line.cut()
        answers = [one(history, sale, token, front.far) for token in crowd_of(sale, count=buyers)]
        history.settle(sale)  # while the broker is still away for the web process

    assert {answer.status for answer in answers} == {202}
    assert max(answer.seconds for answer in answers) < 1 + history.stalls.seconds()
    assert front.far.text().count("not sent, it will be swept") > log_lines
    assert finish(history, sale, report).orders == buyers


# --- What they have in common ---------------------------------------------------------------------


def one(history: History, sale: SeckillVoucher, token: str, web: Web) -> Answer:
    """Send one order request."""
    (answer,) = history.fire(sale, [token], url=web.url)
    return answer


def receipt(history: History, sale: SeckillVoucher, token: str, web: Web) -> Answer:
    """Ask for the receipt of a token's order, as its owner."""
    answer = get_receipt(sale, token, url=web.url)
    history.note(answer)
    return answer


@contextmanager
def out_of_memory(redis: OwnRedis) -> Iterator[None]:
    with redis.client() as client:
        client.config_set("maxmemory", 1)
        try:
            yield
        finally:
            client.config_set("maxmemory", 0)


def assert_all_are_told_soon(front: Front, history: History, sale: SeckillVoucher) -> None:
    """Those who were told nothing are told once an attempt has found Redis well, which is soon."""
    until_told(history, sale, url=front.far.url)
    assert max(history.recoveries) < 3


def run_of(sale: SeckillVoucher) -> object:
    """Return the run of Redis that the ledger of a sale was built on."""
    return ledger_connection().hget(LedgerKeys(sale.pk).sale, "run_id")


def connections_to(redis: OwnRedis) -> int:
    with redis.client() as client:
        return len(client.client_list())
