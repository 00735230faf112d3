"""The board of a sale: its figures, with and without Redis, and what reading them costs."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.cache import cache
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from redis import Redis

from backoffice import slow_counts
from backoffice.board import snapshot as module
from backoffice.board.snapshot import Board, read_board
from backoffice.board.texts import board_json
from backoffice.report.figures import report_sale
from orders.fulfilment.worker import fulfil_sale
from orders.models import Notice, OrderStatus, RuleRefusal, VoucherOrder
from tests.support.inspection import redis_commands
from tests.support.notices import make_notice
from tests.support.orders import make_buyer, make_buyers, make_order, make_sale, reserved
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.sale_state import snapshots
from vouchers.inventory.waiting_list import join_waiting
from vouchers.models import AnswerCount, SaleStage, SaleState, SeckillVoucher

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("english")]

NOW = dt.datetime(2026, 11, 11, 12, 30, 10, tzinfo=dt.UTC)
"""The last second that the board shows is then 12:30:08."""


@pytest.fixture
def sale() -> SeckillVoucher:
    return make_sale(stock=100)


def look(sale: SeckillVoucher, now: dt.datetime | None = None) -> Board:
    return read_board(sale_id=sale.pk, now=now or timezone.now())


def shown(sale: SeckillVoucher, now: dt.datetime | None = None) -> dict[str, Any]:
    return board_json(look(sale, now), actions=[])


def texts(sale: SeckillVoucher) -> dict[str, str]:
    return dict(shown(sale)["texts"])


def tallied(ledger: Redis, sale: SeckillVoucher, *counts: tuple[int, str, int]) -> None:
    """Count answers at these seconds before the last one of the board."""
    last = int(NOW.timestamp()) - module.OPEN_S
    for seconds, answer, count in counts:
        ledger.hset(LedgerKeys(sale.pk).tally, f"{last - seconds}:{answer}", count)


# --- A running sale ------------------------------------------------------------------------------


def test_missing_unit_is_a_difference(sale: SeckillVoucher, ledger: Redis) -> None:
    reserved(sale, make_buyers(2))
    ledger.zpopmin(LedgerKeys(sale.pk).pending)
    assert texts(sale)["sum"] == "100 ≠ 98 + 1 + 0"
    assert shown(sale)["verdict"] == {"code": "off", "text": "difference +1"}


def test_order_written_between_reads_is_in_flight(
    sale: SeckillVoucher, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserved(sale, make_buyers(2))
    ask = snapshots

    def then_fulfil(**kwargs: Any) -> Any:
        seen = ask(**kwargs)
        fulfil_sale(sale_id=sale.pk)
        return seen

    monkeypatch.setattr(module, "snapshots", then_fulfil)
    assert shown(sale)["verdict"] == {"code": "in_flight", "text": "2 in flight"}


def test_orders_are_counted_by_status(sale: SeckillVoucher) -> None:
    for status in (OrderStatus.PAID, OrderStatus.PAID, OrderStatus.EXPIRED, OrderStatus.UNPAID):
        make_order(sale, make_buyer(), status=status)
    make_order(make_sale(), make_buyer())
    counts = {it["status"]: it["count"] for it in shown(sale)["statuses"]}
    assert counts == {
        **dict.fromkeys(OrderStatus.values, "0"), "unpaid": "1", "paid": "2", "expired": "1",
    }  # fmt: skip


def test_requests_to_be_told_are_counted(sale: SeckillVoucher) -> None:
    for told_at in (NOW, None, None):
        make_notice(sale, make_buyer(), told_at=told_at)
    make_notice(sale, make_buyer(), Notice.Kind.BACK)
    make_notice(make_sale(), make_buyer())

    assert texts(sale)["notices"] == "start: 3 asked, 1 told · available again: 1 asked, 0 told"


def test_waiting_buyers_are_counted() -> None:
    sale, (buyer, *others) = make_sale(stock=1), make_buyers(3)
    reserved(sale, [buyer])
    for place, other in enumerate(others):
        join_waiting(sale_id=sale.pk, order_id=700 + place, user_id=other.pk, joined_at_ms=place)
    assert texts(sale)["waiting"] == "2"
    assert shown(sale)["state"]["code"] == "sold_out"


def test_large_figures_are_grouped_by_thousands(ledger: Redis) -> None:
    sale = make_sale(stock=1_000_000)
    assert (texts(sale)["left"], texts(sale)["of_total"]) == ("1,000,000", "of 1,000,000")


@pytest.mark.parametrize(
    ("age_ms", "code", "oldest"),
    [
        (900, "", r"oldest \d\.\d s"),
        (2_600, "late", r"oldest \d\.\d s"),
        (31_000, "behind", r"oldest 3\d s"),
    ],
)
def test_late_orders_raise_an_alert(
    sale: SeckillVoucher, ledger: Redis, age_ms: int, code: str, oldest: str
) -> None:
    reserved(sale, [make_buyer()])
    (member,) = map(str, ledger.zrange(LedgerKeys(sale.pk).pending, 0, -1))
    board = look(sale)
    assert board.snapshot
    accepted_at_ms = board.snapshot.now_ms - age_ms
    ledger.zadd(LedgerKeys(sale.pk).pending, {member: accepted_at_ms})

    assert shown(sale)["alert"]["code"] == code
    assert (look(sale).oldest_pending_age_ms or 0) >= age_ms
    assert re.fullmatch(oldest, texts(sale)["oldest"])


def test_state_follows_the_clock_of_redis() -> None:
    sales = {
        SaleState.SCHEDULED: make_sale(begins_in_s=60),
        SaleState.PAUSED: make_sale(paused=True),
        SaleState.ENDED: make_sale(ends_in_s=-1),
    }
    for state, sale in sales.items():
        assert look(sale, NOW).state is state


def test_draft_is_a_draft_at_any_time() -> None:
    sale = make_sale(stage=SaleStage.DRAFT)
    assert shown(sale)["state"] == {"code": "draft", "text": "Draft"}


def test_shadow_sale_is_marked_as_rehearsal() -> None:
    sale = make_sale(stage=SaleStage.REHEARSAL)
    assert shown(sale)["state"]["text"] == "On sale (rehearsal)"


# --- The pace ------------------------------------------------------------------------------------


def test_rates_ignore_unfinished_seconds(sale: SeckillVoucher, ledger: Redis) -> None:
    tallied(ledger, sale, (0, "accepted", 10), (4, "accepted", 5), (4, "sold_out", 20),
            (5, "accepted", 1_000), (-1, "accepted", 1_000))  # fmt: skip

    pace = look(sale, NOW).pace

    assert pace
    assert (pace.accepted_now, pace.requests_now) == (3, 7)
    assert len(pace.requests) == len(pace.accepted) == 120
    assert pace.requests[-6:] == [1_000, 25, 0, 0, 0, 10]
    assert pace.accepted[-6:] == [1_000, 5, 0, 0, 0, 10]
    assert pace.first_s + 119 == NOW.timestamp() - 2
    assert pace.answers == {"accepted": 1_015, "sold_out": 20}


@pytest.mark.parametrize(("rate", "text"), [(0, "0"), (3, "0.6"), (49, "9.8"), (6_000, "1,200")])
def test_low_rate_has_one_decimal(
    sale: SeckillVoucher, ledger: Redis, rate: int, text: str
) -> None:
    tallied(ledger, sale, (0, "accepted", rate))
    found = shown(sale, NOW)["texts"]
    assert (found["accepted"], found["requests"]) == (text, text)
    assert found["requests_label"] == f"Requests per second: {text}"


def test_minute_counts_are_spread_over_their_seconds(sale: SeckillVoucher, ledger: Redis) -> None:
    at = NOW.replace(minute=28, second=0)
    AnswerCount.objects.create(
        seckill_voucher=sale, at=at, answer="sold_out", count=600, seconds=60
    )
    pace = look(sale, NOW).pace
    assert pace
    first = dt.datetime.fromtimestamp(pace.first_s, tz=dt.UTC)
    assert first == NOW.replace(minute=28, second=9)
    assert pace.requests == [10.0] * 51 + [0.0] * 69
    assert pace.answers == {"sold_out": 510}


def test_refusals_are_counted_by_reason_recently_and_overall(
    sale: SeckillVoucher, ledger: Redis
) -> None:
    tallied(ledger, sale, (1, "sold_out", 40), (2, "already_ordered", 10), (900, "sold_out", 5_000),
            (3, "accepted", 70), (3, "a_new_one", 4))  # fmt: skip
    rows = {it["answer"]: it for it in shown(sale, NOW)["refusals"]}
    assert list(rows) == [
        "sold_out", "already_ordered", "not_started", "ended", "paused", "waiting_room",
        "address_limited", "account_limited", "unavailable", "other",
    ]  # fmt: skip
    told = {it: (rows[it]["lately"], rows[it]["ever"], rows[it]["percent"]) for it in rows}
    assert told["sold_out"] == ("40", "5,040", 100)
    assert told["already_ordered"] == ("10", "10", 25)
    assert told["paused"] == ("0", "0", 0)
    assert told["other"] == ("4", "4", 10)


@pytest.mark.parametrize("later_s", [1, 5, 45, 59])
def test_total_includes_answers_after_the_last_count(
    sale: SeckillVoucher, ledger: Redis, monkeypatch: pytest.MonkeyPatch, later_s: int
) -> None:
    """Counts that read every row are kept for up to a minute; the sum of answers is not."""
    tallied(ledger, sale, (1, "sold_out", 40), (900, "sold_out", 5_000))
    monkeypatch.setattr(slow_counts, "CACHE_S", (60.0, 60.0))
    shown(sale, NOW)
    tallied(ledger, sale, (-later_s, "sold_out", 9_000))

    rows = {it["answer"]: it for it in shown(sale, NOW + dt.timedelta(seconds=later_s))["refusals"]}

    assert (rows["sold_out"]["lately"], rows["sold_out"]["ever"]) == ("9,040", "14,040")


def test_total_is_the_report_of_the_sale(sale: SeckillVoucher, ledger: Redis) -> None:
    AnswerCount.objects.create(
        seckill_voucher=sale, at=NOW - dt.timedelta(hours=1), answer="ended", count=7, seconds=60
    )
    tallied(ledger, sale, (1, "sold_out", 40), (200, "sold_out", 3), (900, "accepted", 2))
    assert look(sale, NOW).answers == report_sale(sale_id=sale.pk, now=NOW).answers


def test_chart_has_a_summary(sale: SeckillVoucher, ledger: Redis) -> None:
    tallied(ledger, sale, (1, "accepted", 40), (1, "sold_out", 1_000))
    assert shown(sale, NOW)["chart"]["summary"] == (
        "In the last 2 minutes there were 1,040 requests, of which 40 were "
        "accepted; the peak was 1,040 in one second."
    )


# --- Unknown figures -----------------------------------------------------------------------------


def test_board_without_redis_shows_the_row(
    sale: SeckillVoucher, lose_ledger: Callable[[], None]
) -> None:
    reserved(sale, make_buyers(2))
    fulfil_sale(sale_id=sale.pk)
    lose_ledger()

    found = shown(sale)

    assert found["alert"]["code"] == "away"
    assert found["state"]["code"] == "open"
    assert (found["left"], found["chart"]) == (None, None)
    assert found["texts"]["left_label"] == "Left: – of 100 vouchers"
    assert found["texts"]["sum"] == "100 = – + – + 2"
    assert found["verdict"]["code"] == "unknown"
    assert {it["lately"] for it in found["refusals"]} == {"–"}


def test_last_counts_stay_without_redis(
    sale: SeckillVoucher, lose_ledger: Callable[[], None]
) -> None:
    make_order(sale, make_buyer(), status=OrderStatus.PAID)
    shown(sale)
    lose_ledger()
    counts = {it["status"]: it["count"] for it in shown(sale)["statuses"]}
    assert counts["paid"] == "1"


def test_redis_lost_midway_costs_only_the_pace(
    sale: SeckillVoucher, monkeypatch: pytest.MonkeyPatch, lose_ledger: Callable[[], None]
) -> None:
    ask = snapshots

    def then_lose(**kwargs: Any) -> Any:
        seen = ask(**kwargs)
        lose_ledger()
        return seen

    monkeypatch.setattr(module, "snapshots", then_lose)
    board = look(sale)
    assert board.snapshot
    assert board.pace is None


def test_board_names_an_unloaded_sale() -> None:
    found = shown(make_sale(loaded=False))
    assert found["alert"]["code"] == "unloaded"
    assert found["texts"]["left"] == "–"
    assert found["chart"]


# --- Queries -------------------------------------------------------------------------------------


def statements(sale: SeckillVoucher, now: dt.datetime | None = None) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        look(sale, now)
    return [query["sql"] for query in captured]


def counting(found: list[str]) -> list[str]:
    """Return the statements that count a sale's orders."""
    return [sql for sql in found if "COUNT(" in sql and "orders_voucherorder" in sql]


def test_board_query_count_is_constant(ledger: Redis) -> None:
    def cost(sale: SeckillVoucher) -> tuple[int, list[str]]:
        cache.clear()
        with redis_commands() as sent:
            asked = statements(sale, NOW)
        database = ledger.connection_pool.connection_kwargs["db"]
        return len(asked), [text.split()[0] for db, text in sent if db == database]

    small, large = make_sale(), make_sale(stock=100_000)
    reserved(small, [make_buyer()])
    tallied(ledger, small, (1, "sold_out", 1))
    reserved(large, make_buyers(60))
    fulfil_sale(sale_id=large.pk)
    reserved(large, make_buyers(30))
    tallied(ledger, large, *((s, it, 9) for s in range(100) for it in ("accepted", "sold_out")))
    AnswerCount.objects.bulk_create(
        AnswerCount(seckill_voucher=large, at=NOW - dt.timedelta(minutes=m), answer="ended",
                    count=1, seconds=60) for m in range(3, 300)
    )  # fmt: skip

    assert cost(large) == cost(small)
    # The row, the last minutes' answers, and what is kept: orders by status, all answers, whom
    # rules refused, notices.
    assert cost(large)[0] == 6
    # Then the clocks, and who is limited.
    assert cost(large)[1] == ["EVALSHA", "HGETALL", "HGETALL", "TIME", "HGETALL", "ZREVRANGE"]


def test_counts_are_cached(sale: SeckillVoucher) -> None:
    make_order(sale, make_buyer())
    now = timezone.now()

    assert len(counting(statements(sale, now))) == 1
    assert counting(statements(sale, now + dt.timedelta(seconds=0.9))) == []
    assert len(counting(statements(sale, now + dt.timedelta(seconds=61)))) == 1


def test_slow_counts_are_cached_longer(
    sale: SeckillVoucher, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count(0, 2)  # counting takes two seconds by this one
    monkeypatch.setattr(slow_counts, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    now = timezone.now()

    assert counting(statements(sale, now))
    assert not counting(statements(sale, now + dt.timedelta(seconds=39)))
    assert counting(statements(sale, now + dt.timedelta(seconds=41)))


def test_one_viewer_counts_and_others_see_the_last_counts(sale: SeckillVoucher) -> None:
    now = timezone.now()
    assert look(sale, now).counts
    make_order(sale, make_buyer())
    cache.add(f"board:{sale.pk}:counts:counting", 1, timeout=30)

    later = look(sale, now + dt.timedelta(seconds=100))

    assert later.counts
    assert later.counts.statuses["unpaid"] == 0


def test_first_viewers_see_no_counts_while_one_counts(sale: SeckillVoucher) -> None:
    cache.add(f"board:{sale.pk}:counts:counting", 1, timeout=30)
    found = shown(sale)
    assert {it["count"] for it in found["statuses"]} == {"–"}
    assert found["texts"]["counted"] == "being counted"


def test_failed_count_leaves_next_board_without_counts(
    sale: SeckillVoucher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_slow(*args: Any) -> None:
        raise OperationalError(2013, "Lost connection to server during query")

    monkeypatch.setattr(module, "_count", too_slow)
    with pytest.raises(OperationalError):
        look(sale)
    assert look(sale).counts is None


def test_orders_are_counted_in_one_pass_without_sorting(sale: SeckillVoucher) -> None:
    buyers = make_buyers(3)
    VoucherOrder.objects.bulk_create(
        VoucherOrder(id=100 + n, user=buyer, seckill_voucher=sale, unit=1, status="unpaid",
                     price_cents=1, accepted_at=NOW) for n, buyer in enumerate(buyers)
    )  # fmt: skip
    (sql,) = counting(statements(sale))
    assert "GROUP BY" not in sql
    assert "ORDER BY" not in sql


def test_board_says_whom_rules_refused(sale: SeckillVoucher) -> None:
    for buyer in make_buyers(3):
        RuleRefusal.objects.create(seckill_voucher=sale, rule="code", user=buyer)
    board = look(sale)
    assert board.counts
    assert board.counts.refused_by_rules == {"code": 3}
    assert board_json(board, actions=[])["texts"]["rules"] == "no invitation code: 3"
