"""Request statistics: counted by many processes, added once, stored once."""

from __future__ import annotations

import datetime as dt
import logging
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.db import connection
from django.test import Client, override_settings

from orders.placing.tokens import issue_tokens
from seckill_site.failpoints import FailpointReached, armed
from seckill_site.process_memory import Buffer
from seckill_site.redis.ledger_connection import ledger_connection
from tests.fixtures.site import RedisGone
from tests.support.passes import cut_after_one
from tests.support.patience import wait_for
from tests.support.proxy import FaultProxy, redis_server
from tests.support.sales import make_loaded_sale, make_sale, make_user
from tests.support.tiers import slow_after
from vouchers.catalogue.sales import delete_sale
from vouchers.inventory import request_stats as module
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.request_stats import (
    RETENTION,
    RequestCount,
    count_request,
    flush_request_counts,
    read_request_counts,
    read_stored_counts,
    store_request_counts,
)
from vouchers.models import AnswerCount, SeckillVoucher

NOON = dt.datetime(2026, 11, 11, 12, tzinfo=dt.UTC)
"""The start of the sales in these tests."""

Clock = Callable[[dt.datetime], None]
Count = Callable[..., None]

HOUR = dt.timedelta(hours=1)
MUCH_LATER = NOON + 3 * HOUR


def at(seconds: float) -> dt.datetime:
    """Return the moment this long after the start."""
    return NOON + dt.timedelta(seconds=seconds)


def make_noon_sale(**fields: Any) -> SeckillVoucher:
    return make_sale(**{"begins_at": NOON, "ends_at": NOON + 2 * HOUR, **fields})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return a function that sets the moment at which answers are counted."""
    now = [NOON.timestamp()]
    monkeypatch.setattr(module, "ledger_now_ms", lambda **_: round(now[0] * 1000))

    def set_to(moment: dt.datetime) -> None:
        now[0] = moment.timestamp()

    return set_to


@pytest.fixture
def count(clock: Clock) -> Count:
    """Return a function that counts answers this long after noon, and flushes them."""

    def counted(sale: SeckillVoucher, seconds: float, answer: str = "accepted", n: int = 1) -> None:
        clock(at(seconds))
        for _ in range(n):
            count_request(sale_id=sale.pk, answer=answer)
        flush_request_counts()

    return counted


def read_redis_counts(sale_id: int) -> dict[str, int]:
    """Return the counts of a sale in Redis by answer, over all seconds."""
    sums: Counter[str] = Counter()
    for field, number in ledger_connection().hgetall(LedgerKeys(sale_id).tally).items():
        sums[field.partition(":")[2]] += int(number)
    return dict(sums)


def read_rows(sale: SeckillVoucher) -> list[tuple[float, int, str, int]]:
    """Return the stored rows: seconds after noon, length, answer, count."""
    return [
        ((row.at - NOON).total_seconds(), row.seconds, row.answer, row.count)
        for row in read_stored_counts(sale=sale)
    ]


def total(counts: list[RequestCount]) -> int:
    return sum(it.count for it in counts)


def run_processes(code: str, *, times: int = 1, **environ: str) -> list[int]:
    """Run this code in processes of the shop at once; return their exit codes."""
    database = os.environ["DATABASE_URL"].partition("?")
    url = database[0].rpartition("/")[0] + f"/{connection.settings_dict['NAME']}"
    own = {
        "DATABASE_URL": "".join([url, *database[1:]]),
        "DJANGO_SETTINGS_MODULE": "seckill_site.settings",
        **environ,
    }
    command = [sys.executable, "-c", f"import django; django.setup()\n{code}"]
    running = [
        subprocess.Popen(command, env={**os.environ, **own}, cwd=django_settings.BASE_DIR)
        for _ in range(times)
    ]
    return [process.wait(timeout=60) for process in running]


# --- counting -------------------------------------------------------------------------------------


def test_answers_are_counted_per_sale_and_second(clock: Clock) -> None:
    for second, sale_id, answer in [(0, 1, "accepted"), (0, 1, "accepted"), (1, 1, "sold_out")]:
        clock(at(second))
        count_request(sale_id=sale_id, answer=answer)
    count_request(sale_id=2, answer="ended")
    flush_request_counts()
    begin = int(NOON.timestamp())
    fields = ledger_connection().hgetall(LedgerKeys(1).tally)
    assert fields == {f"{begin}:accepted": "2", f"{begin + 1}:sold_out": "1"}
    assert read_redis_counts(2) == {"ended": 1}


def test_counting_costs_no_round_trip_and_flush_one(ledger_trips: list[int]) -> None:
    count_request(sale_id=1, answer="accepted")
    flush_request_counts()  # make the script known to Redis
    ledger_trips.clear()
    for sale_id in range(1, 6):
        count_request(sale_id=sale_id, answer="accepted")
    assert ledger_trips == []
    flush_request_counts()
    assert len(ledger_trips) == 1
    flush_request_counts()
    assert len(ledger_trips) == 1, "nothing to add"


@pytest.fixture
def timer(monkeypatch: pytest.MonkeyPatch, flush_timer: Callable[..., None]) -> None:
    """Let this process flush its counts by itself, soon."""
    monkeypatch.setattr(Buffer, "_flush_in", flush_timer)
    monkeypatch.setattr(module._counts, "every_s", 0.001)
    monkeypatch.setattr(module._counts, "retry_s", 0.001)


@pytest.mark.usefixtures("timer")
def test_counts_are_flushed_by_timer() -> None:
    count_request(sale_id=1, answer="accepted")
    wait_for(lambda: read_redis_counts(1) == {"accepted": 1})
    count_request(sale_id=1, answer="accepted")
    wait_for(lambda: read_redis_counts(1) == {"accepted": 2})


def test_threads_lose_no_count() -> None:
    def work() -> None:
        for number in range(500):
            count_request(sale_id=1, answer="accepted")
            if number % 50 == 0:
                flush_request_counts()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    flush_request_counts()
    assert read_redis_counts(1) == {"accepted": 4_000}


COUNT_THREE = """
from vouchers.inventory.request_stats import count_request
for _ in range(3):
    count_request(sale_id=1, answer="accepted")
"""


@pytest.mark.slow
@pytest.mark.django_db
def test_processes_add_up_and_flush_before_exit() -> None:
    assert run_processes(COUNT_THREE, times=2) == [0, 0]
    count_request(sale_id=1, answer="accepted")
    flush_request_counts()
    assert read_redis_counts(1) == {"accepted": 7}


FORKED = """
import os
from vouchers.inventory.request_stats import count_request, flush_request_counts
count_request(sale_id=1, answer="accepted")
child = os.fork()
count_request(sale_id=1, answer="sold_out")
flush_request_counts()
if child:
    os.waitpid(child, 0)
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.django_db
def test_forked_process_adds_only_its_own_counts() -> None:
    assert run_processes(FORKED) == [0]
    assert read_redis_counts(1) == {"accepted": 1, "sold_out": 2}


# --- Redis away -----------------------------------------------------------------------------------


def test_counts_are_kept_while_redis_is_away(redis_gone: RedisGone) -> None:
    with redis_gone():
        for _ in range(3):
            count_request(sale_id=1, answer="unavailable")
            flush_request_counts()
    count_request(sale_id=1, answer="accepted")
    flush_request_counts()
    flush_request_counts()
    assert read_redis_counts(1) == {"unavailable": 3, "accepted": 1}


@pytest.mark.usefixtures("timer")
def test_counts_are_retried_without_further_requests(redis_gone: RedisGone) -> None:
    with redis_gone():
        count_request(sale_id=1, answer="unavailable")
        flush_request_counts()
    wait_for(lambda: read_redis_counts(1) == {"unavailable": 1})


@pytest.mark.usefixtures("impatient_redis")
@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_batch_with_lost_reply_is_added_once(
    guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis has added it and the process does not know: the batch number shows it."""
    ledger = ledger_connection()
    with FaultProxy(redis_server(django_settings.REDIS_URL)) as proxy:
        database = int(django_settings.REDIS_URL.rpartition("/")[2])
        caches = django_settings.CACHES
        through = {
            **caches["ledger"],
            "LOCATION": proxy.url(database, like=django_settings.REDIS_URL),
        }
        with override_settings(CACHES={**caches, "ledger": through}):
            count_request(sale_id=1, answer="accepted")
            flush_request_counts()
            proxy.drop_replies(matching=b"EVALSHA")
            count_request(sale_id=1, answer="accepted")
            flush_request_counts()
            proxy.wait_for_fault()
            if not guarded:
                ledger.delete(*ledger.scan_iter(f"{LedgerKeys(1).tally}:*"))
            count_request(sale_id=1, answer="accepted")
            flush_request_counts()
    assert read_redis_counts(1) == {"accepted": 3 if guarded else 4}


def test_too_many_counts_are_dropped(
    redis_gone: RedisGone, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module._counts, "most", 5)
    with redis_gone():
        flush_request_counts()
        for sale_id in range(1, 100):
            count_request(sale_id=sale_id, answer="unavailable")
            flush_request_counts()
    assert len(module._counts._waiting) + len(module._counts._batch) <= 6
    assert "are dropped" in caplog.text
    flush_request_counts()
    count_request(sale_id=100, answer="accepted")
    flush_request_counts()
    assert read_redis_counts(100) == {"accepted": 1}


@pytest.mark.usefixtures("timer")
def test_failed_timer_start_is_retried_by_next_request(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(timer: threading.Timer) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Timer, "start", no_thread)
        count_request(sale_id=1, answer="accepted")
    count_request(sale_id=1, answer="accepted")
    wait_for(lambda: read_redis_counts(1) == {"accepted": 2})


def test_refused_counts_of_one_sale_leave_others_intact(
    ledger: Any, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    ledger.hset(LedgerKeys(1).tally, f"{int(NOON.timestamp())}:accepted", "many")
    ledger.set(LedgerKeys(2).tally, "no hash")
    for sale_id in (1, 2, 3):
        count_request(sale_id=sale_id, answer="accepted")
    flush_request_counts()
    flush_request_counts()
    assert read_redis_counts(2) == read_redis_counts(3) == {"accepted": 1}
    assert "some request counts of sale 1 are lost" in caplog.text


def test_counts_last_two_weeks_and_batch_numbers_an_hour(ledger: Any) -> None:
    count_request(sale_id=1, answer="accepted")
    flush_request_counts()

    key = LedgerKeys(1).tally
    [number_key] = set(ledger.scan_iter()) - {key}
    two_weeks_s = 14 * 24 * 3600
    assert two_weeks_s - 60 < ledger.ttl(key) <= two_weeks_s == RETENTION.total_seconds()
    assert number_key.startswith(f"{key}:")
    assert 3600 - 60 < ledger.ttl(number_key) <= 3600


# --- the order request ----------------------------------------------------------------------------


def post_order(client: Client, sale_id: int, token: object, **fields: str) -> int:
    headers = {"Accept": "text/html"} if fields.pop("form", "") else {}
    entries = {"token": token, **fields}
    return client.post(f"/vouchers/{sale_id}/orders/", entries, headers=headers).status_code


def sign_tokens(sale: SeckillVoucher, *names: str) -> list[str]:
    users = [make_user(name).pk for name in names]
    return [it.sign() for it in issue_tokens(sale=sale, user_ids=users)]


@pytest.mark.django_db
def test_answers_to_valid_tokens_are_counted_by_code(client: Client) -> None:
    sale = make_loaded_sale(stock=1)
    first, second, third, again = sign_tokens(sale, "anna", "ben", "carl", "dora")
    assert [post_order(client, sale.pk, first), post_order(client, sale.pk, first, form="yes")] == [
        202,
        303,
    ]
    assert [post_order(client, sale.pk, it) for it in (second, third)] == [409, 409]
    assert post_order(client, sale.pk, again, attempt="1", form="yes") == 409
    flush_request_counts()
    assert read_redis_counts(sale.pk) == {"accepted": 2, "sold_out": 3}


@pytest.mark.django_db
def test_second_order_is_counted_even_when_form_redirects(client: Client) -> None:
    sale, buyer = make_loaded_sale(), make_user("anna")
    first, second = (issue_tokens(sale=sale, user_ids=[buyer.pk])[0].sign() for _ in range(2))
    assert post_order(client, sale.pk, first) == 202
    assert [
        post_order(client, sale.pk, second),
        post_order(client, sale.pk, second, form="yes"),
    ] == [409, 303]
    flush_request_counts()
    assert read_redis_counts(sale.pk) == {"accepted": 1, "already_ordered": 2}


@pytest.mark.django_db
def test_unavailable_is_counted_once_redis_is_back(client: Client, redis_gone: RedisGone) -> None:
    sale = make_loaded_sale()
    (token,) = sign_tokens(sale, "anna")
    with redis_gone():
        assert post_order(client, sale.pk, token) == 503
        flush_request_counts()
    flush_request_counts()
    assert read_redis_counts(sale.pk) == {"unavailable": 1}


@pytest.mark.django_db
@pytest.mark.parametrize("form", slow_after(1, ["", "yes"]), ids=["json", "html"])
def test_requests_without_valid_token_create_no_key(client: Client, ledger: Any, form: str) -> None:
    """Anyone can send requests for any number of sales that do not exist."""
    sale = make_loaded_sale()
    (token,) = sign_tokens(sale, "anna")
    before = set(ledger.scan_iter("*"))
    forged = f"{token[:-4]}AAAA"
    for sale_id in (sale.pk, 4_711, 2**62):
        for text in ("", "nonsense", forged, "9" * 200):
            for attempt in ("1", "x"):
                assert post_order(client, sale_id, text, attempt=attempt, form=form) in (400, 403)
    assert post_order(client, 4_711, token, form=form) == 403
    assert client.get(f"/vouchers/{sale.pk}/orders/").status_code == 405
    flush_request_counts()
    assert set(ledger.scan_iter("*")) == before


# --- storing --------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_seconds_are_stored_around_start_and_minutes_elsewhere(count: Count) -> None:
    sale = make_noon_sale()
    for seconds in (-61, -60, -1, 0, 599, 600, 630, 659, 660):
        count(sale, seconds)
    count(sale, 599, "sold_out", n=3)
    store_request_counts(now=MUCH_LATER)
    assert read_rows(sale) == [
        (-120, 60, "accepted", 1),
        (-60, 1, "accepted", 1),
        (-1, 1, "accepted", 1),
        (0, 1, "accepted", 1),
        (599, 1, "accepted", 1),
        (599, 1, "sold_out", 3),
        (600, 60, "accepted", 3),
        (660, 60, "accepted", 1),
    ]


@pytest.mark.django_db
def test_start_within_minute_stores_whole_minutes_by_second(count: Count) -> None:
    sale = make_noon_sale(begins_at=at(30))
    for seconds in (-61, -60, -30, 629, 659, 660):
        count(sale, seconds)
    store_request_counts(now=MUCH_LATER)
    assert [row[:2] for row in read_rows(sale)] == [
        (-120, 60), (-60, 1), (-30, 1), (629, 1), (659, 1), (660, 60),
    ]  # fmt: skip


@pytest.mark.django_db
def test_open_counts_stay_in_redis_and_are_read(count: Count) -> None:
    sale = make_noon_sale()
    for seconds in (0, 10, 11, 700, 719):
        count(sale, seconds)
    store_request_counts(now=at(40.9))
    assert read_rows(sale) == [(0, 1, "accepted", 1)]
    store_request_counts(now=at(749.9))
    assert [row[0] for row in read_rows(sale)] == [0, 10, 11], "the minute from 660 is open"
    assert total(read_request_counts(sale=sale)) == 5
    store_request_counts(now=at(750))
    assert read_rows(sale)[-1] == (660, 60, "accepted", 2)
    assert total(read_request_counts(sale=sale)) == 5


@pytest.mark.django_db
def test_counts_are_read_from_both_places_oldest_first(count: Count) -> None:
    sale = make_noon_sale()
    count(sale, 5, "sold_out")
    count(sale, 5, "accepted", n=2)
    store_request_counts(now=MUCH_LATER)
    count(sale, 6)
    found = [(it.at, it.answer, it.count) for it in read_request_counts(sale=sale)]
    assert found == [(at(5), "accepted", 2), (at(5), "sold_out", 1), (at(6), "accepted", 1)]
    assert [it.at for it in read_request_counts(sale=sale, since=at(6))] == [at(6)]


STORE = """
import datetime as dt
from vouchers.inventory.request_stats import store_request_counts
store_request_counts(now=dt.datetime(2026, 11, 11, 15, tzinfo=dt.UTC))
"""


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_pass_killed_before_cleanup_counts_once(count: Count) -> None:
    sale = make_noon_sale()
    count(sale, 0, n=4)
    count(sale, 3_000, "ended", n=2)
    assert run_processes(STORE, FAILPOINT="tally.stored") == [-signal.SIGKILL]
    ledger_connection().delete("lock:store_tallies")  # of the killed pass
    assert total(read_stored_counts(sale=sale)) == total(read_request_counts(sale=sale)) == 6
    with armed("tally.stored=raise"), pytest.raises(FailpointReached):
        store_request_counts(now=MUCH_LATER)  # the rows exist, their fields do not go yet
    assert total(read_stored_counts(sale=sale)) == total(read_request_counts(sale=sale)) == 6
    assert read_redis_counts(sale.pk) == {"accepted": 4, "ended": 2}
    store_request_counts(now=MUCH_LATER)
    assert read_rows(sale) == [(0, 1, "accepted", 4), (3_000, 60, "ended", 2)]
    assert read_redis_counts(sale.pk) == {}


@pytest.mark.django_db
def test_late_counts_are_added_and_rows_never_shrink(count: Count) -> None:
    sale = make_noon_sale()
    count(sale, 0, n=4)
    count(sale, 3_000)
    store_request_counts(now=MUCH_LATER)
    count(sale, 0, n=2)
    count(sale, 3_059)
    for _ in range(3):
        store_request_counts(now=MUCH_LATER)
    expected = [(0, 1, "accepted", 6), (3_000, 60, "accepted", 2)]
    assert read_rows(sale) == expected
    count(sale, 0)  # the fields that the row was made of are gone
    for _ in range(2):
        store_request_counts(now=MUCH_LATER)
    assert read_rows(sale) == expected
    assert read_redis_counts(sale.pk) == {}


@pytest.mark.django_db
@pytest.mark.parametrize("seed", slow_after(1, range(3)))
def test_every_answer_is_counted_once_in_random_order(count: Count, seed: int) -> None:
    """Counts up to 25 s late, passes at any time, and a start that moves."""
    chance, sale, now, counted = random.Random(seed), make_noon_sale(), -300.0, 0
    for _ in range(100):
        now += chance.choice([0, 1, 5, 15])
        match chance.choice(["count", "count", "store", "move"]):
            case "count":
                how_many = chance.randint(1, 3)
                answer = chance.choice(["accepted", "sold_out"])
                count(sale, now - chance.randint(0, 25), answer, n=how_many)
                counted += how_many
            case "store":
                store_request_counts(now=at(now))
            case "move":
                moved = at(chance.randint(-600, 600))
                SeckillVoucher.objects.update(begins_at=moved)
                sale.refresh_from_db()
        assert total(read_request_counts(sale=sale)) == counted
    for _ in range(2):
        store_request_counts(now=MUCH_LATER)
    assert total(read_stored_counts(sale=sale)) == counted
    assert read_redis_counts(sale.pk) == {}


@pytest.mark.django_db(transaction=True)
def test_sale_deleted_during_storing_disturbs_no_other(
    count: Count, monkeypatch: pytest.MonkeyPatch, ledger: Any
) -> None:
    doomed, other = make_loaded_sale(), make_noon_sale()
    count(doomed, 0)
    count(other, 0)
    read = module._read_unstored

    def read_and_lose(sale_ids: list[int]) -> Any:
        found = read(sale_ids)
        delete_sale(sale_id=doomed.pk)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(module, "_read_unstored", read_and_lose)
        store_request_counts(now=MUCH_LATER)
    assert AnswerCount.objects.get().seckill_voucher == other
    assert read_redis_counts(doomed.pk) == {}


@pytest.mark.django_db
def test_storing_without_redis_only_warns(
    count: Count, redis_gone: RedisGone, caplog: pytest.LogCaptureFixture
) -> None:
    sale = make_noon_sale()
    count(sale, 0)
    with redis_gone(), caplog.at_level(logging.WARNING):
        store_request_counts(now=MUCH_LATER)
    assert "the request counts are not stored now" in caplog.text
    store_request_counts(now=MUCH_LATER)
    assert total(read_stored_counts(sale=sale)) == 1


@pytest.mark.django_db
def test_counts_are_stored_until_they_expire(count: Count) -> None:
    sale = make_noon_sale()
    count(sale, 0)
    store_request_counts(now=sale.ends_at + RETENTION)
    assert read_rows(sale) == []
    store_request_counts(now=sale.ends_at + RETENTION - dt.timedelta(seconds=1))
    assert read_rows(sale) == [(0, 1, "accepted", 1)]


@pytest.mark.django_db
def test_storing_reads_all_sales_in_one_round_trip(count: Count, ledger_trips: list[int]) -> None:
    sales = [make_noon_sale() for _ in range(5)]
    count(sales[0], 0)
    ledger_trips.clear()
    store_request_counts(now=MUCH_LATER)
    assert len(ledger_trips) == 3, "and two for the lock"


@pytest.mark.django_db
def test_foreign_fields_in_counts_are_ignored(count: Count, ledger: Any) -> None:
    sale, other = make_noon_sale(), make_noon_sale()
    count(sale, 0)
    strange = ("x", "12", "12:", ":accepted", "1e9:accepted", "9" * 12 + ":accepted", "1:DROP")
    ledger.hset(LedgerKeys(sale.pk).tally, mapping=dict.fromkeys(strange, "1"))
    ledger.hset(LedgerKeys(sale.pk).tally, f"{int(NOON.timestamp())}:ended", "-3")
    ledger.set(LedgerKeys(other.pk).tally, "no hash")
    store_request_counts(now=MUCH_LATER)
    assert read_rows(sale) == [(0, 1, "accepted", 1)]
    assert read_request_counts(sale=other) == []


@pytest.mark.django_db
def test_cut_pass_is_continued_by_the_next(count: Count, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_after_one(monkeypatch)
    sales = [make_noon_sale() for _ in range(2)]
    for sale in sales:
        count(sale, 0)
    stored = []
    for _ in sales:
        is_left = store_request_counts(now=MUCH_LATER)
        stored.append((AnswerCount.objects.count(), is_left))
    assert stored == [(1, True), (2, False)]
