"""Rehearsals from start to verdict and cleanup, whichever process dies on the way."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.forms import UserCreationForm
from django.contrib.auth.models import User
from django.db import IntegrityError
from django.test import Client
from django.utils import timezone
from pytest_django.live_server_helper import LiveServer

from backoffice.rehearsal import service as rehearsing
from backoffice.rehearsal.buyers import buyers_of, clicks_of, count_clicks, username_of
from backoffice.rehearsal.phases import (
    ANOTHER_SHOP,
    DRAIN_PATIENCE,
    NO_WEB_SERVER,
    NOT_DRAINED,
    NOTHING_BOUGHT,
)
from backoffice.rehearsal.service import (
    CANCELLED,
    INTERRUPTED,
    MAX_INTERRUPTIONS,
    AnotherRehearsal,
    Stuck,
    busy_sales,
    cancel_rehearsal,
    clear_leftovers,
    progress,
    take_turn,
    take_turns,
)
from orders.fulfilment.worker import fulfil_sale
from orders.models import Rehearsal, RehearsalPhase, VoucherOrder
from seckill_site.failpoints import FailpointReached, armed
from tests.fixtures.site import RedisGone
from tests.support.inspection import assert_conserved, broker_length, ledger_contents
from tests.support.orders import at_once, make_buyers, make_sale, reserved, written_orders
from tests.support.rehearsals import (
    begun,
    everything_there,
    finish,
    resumed,
    shadow_id_of,
    shadow_of,
    step,
    steps_until,
)
from tests.support.tiers import slow_after
from vouchers.inventory.keys import LedgerKeys
from vouchers.models import SaleStage, SeckillVoucher

pytestmark = pytest.mark.django_db(transaction=True)

PREPARING, BUYING = RehearsalPhase.PREPARING, RehearsalPhase.BUYING
DRAINING, CLEARING = RehearsalPhase.DRAINING, RehearsalPhase.CLEARING
DONE, FAILED = RehearsalPhase.DONE, RehearsalPhase.FAILED

POINTS = [
    "rehearse.copied",
    "rehearse.peopled",
    "rehearse.fired",
    "rehearse.judged",
    "clear.closed",
    "clear.before_commit",
    "clear.orders_deleted",
    "clear.buyers_deleted",
    "clear.shadow_deleted",
    "rehearse.cleared",
]


@pytest.fixture
def url(live_server: LiveServer) -> str:
    return live_server.url


def source_of_truth(**fields: Any) -> SeckillVoucher:
    """Return a sale with buyers of its own, some with orders and some without."""
    sale = make_sale(stock=8, limit=2, begins_in_s=-60, **fields)
    written_orders(sale, make_buyers(2))
    reserved(sale, make_buyers(1))
    return sale


# --- A whole rehearsal ----------------------------------------------------------------------------


def test_rehearsal_sells_exactly_and_leaves_only_its_verdict(url: str) -> None:
    sale = source_of_truth()
    before, row = everything_there(), SeckillVoucher.objects.values().get(pk=sale.pk)

    rehearsal = finish(begun(sale, url))

    assert (rehearsal.phase, rehearsal.problem, rehearsal.running) == (DONE, "", None)
    verdict = rehearsal.verdict
    assert verdict["is_right"]
    assert verdict["cleared"]
    assert verdict["drained"]
    assert verdict["requests"] == 18
    assert verdict["accepted"] == verdict["orders"] == 5
    wrong = ("oversold", "lost", "doubled", "undersold", "difference", "refused", "unanswered")
    assert [verdict[name] for name in wrong] == [0] * 7
    assert verdict["p50_ms"] <= verdict["p90_ms"] <= verdict["p99_ms"] <= verdict["max_ms"]
    assert verdict["drain_s"] > 0
    assert sum(verdict["answers"].values()) == 18
    assert everything_there() == before
    assert SeckillVoucher.objects.values().get(pk=sale.pk) == row
    assert (rehearsal.shadow_id, rehearsal.crowd) == (None, {})


def test_every_buyer_gets_a_unit_if_stock_suffices(url: str) -> None:
    sale = make_sale(limit=2)
    rehearsal = finish(begun(sale, url, stock=100, buyers=6, duplicates=100))
    # Of six buyers who click twice, three use a second tab, and the limit is two units.
    assert rehearsal.verdict["accepted"] == rehearsal.verdict["orders"] == 9
    assert rehearsal.verdict["is_right"]


def test_shadow_has_the_terms_of_the_sale_for_an_hour(url: str) -> None:
    sale = make_sale(limit=3, begins_in_s=86_400, ends_in_s=90_000, rebuy=False, paused=True)
    shadow = shadow_of(step(begun(sale, url, stock=7)))
    now = timezone.now()
    assert (shadow.limit, shadow.rebuy, shadow.refundable) == (3, False, True)
    assert (shadow.stock, shadow.paused) == (7, False)
    assert shadow.begins_at <= now
    assert dt.timedelta(minutes=59) < shadow.ends_at - now <= dt.timedelta(hours=1)
    assert shadow.pay_within_s == 86_400
    assert shadow.voucher_id != sale.voucher_id
    assert shadow.voucher.price_cents == sale.voucher.price_cents


def test_default_stock_is_that_of_the_sale(url: str) -> None:
    assert begun(make_sale(stock=42), url, stock=None).stock == 42


def test_public_sees_no_shadow_sale(url: str, client: Client) -> None:
    rehearsal = steps_until(begun(make_sale(), url), BUYING)
    shadow = shadow_of(rehearsal)
    assert shadow.voucher.title not in client.get("/").content.decode()
    assert client.get(f"/vouchers/{shadow.pk}/").status_code == 404
    client.force_login(make_buyers(1)[0])
    assert client.get(f"/vouchers/{shadow.pk}/token/").status_code == 404


def test_rehearsal_buyers_cannot_sign_in_or_clash(url: str) -> None:
    rehearsal = steps_until(begun(make_sale(), url), BUYING)
    buyers = list(buyers_of(shadow_id=shadow_id_of(rehearsal)))
    assert len(buyers) == 12
    assert all(it.is_active and not it.has_usable_password() for it in buyers)
    assert {it.email for it in buyers} == {""}
    name = username_of(shadow_id=shadow_id_of(rehearsal), number=13)
    words = {"username": name, "password1": "correct horse", "password2": "correct horse"}
    assert "username" in UserCreationForm(words).errors


def test_each_rehearsal_has_its_own_buyers() -> None:
    User.objects.create(username=username_of(shadow_id=12, number=3))
    assert not buyers_of(shadow_id=1).exists()
    assert buyers_of(shadow_id=12).count() == 1


# --- Clicks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("duplicates", [0, 1, 10, 33, 50, 99, 100])
def test_clicks_follow_the_percentage_of_duplicates(duplicates: int) -> None:
    clicks = list(clicks_of(buyers=200, duplicates=duplicates))
    assert len(clicks) == count_clicks(buyers=200, duplicates=duplicates) == 200 + 2 * duplicates
    assert {click.buyer for click in clicks} == set(range(200))
    assert max(Counter(click.buyer for click in clicks).values()) <= 2
    assert sum(click.tab for click in clicks) == duplicates  # half of two for each percent


# --- Start ----------------------------------------------------------------------------------------


def test_one_of_many_concurrent_starts_wins(url: str) -> None:
    sale = make_sale()
    outcomes = at_once(*[partial(begun, sale, url)] * 4)
    assert Counter(type(it) for it in outcomes) == {Rehearsal: 1, AnotherRehearsal: 3}


def test_database_refuses_a_running_and_ended_rehearsal(url: str) -> None:
    rehearsal = begun(make_sale(), url)
    with pytest.raises(IntegrityError):
        Rehearsal.objects.filter(pk=rehearsal.pk).update(phase=DONE)


def test_missing_sale_and_shadow_cannot_be_rehearsed(url: str) -> None:
    rehearsal = steps_until(begun(make_sale(), url), BUYING)
    for sale_id in (404_404, rehearsal.shadow_id):
        with pytest.raises(SeckillVoucher.DoesNotExist):
            begun(SeckillVoucher(pk=sale_id), url)


def test_busy_sales_are_open_or_start_soon() -> None:
    make_sale(begins_in_s=-600, ends_in_s=-60)
    make_sale(begins_in_s=3_000)
    make_sale(stage=SaleStage.DRAFT)
    make_sale(stage=SaleStage.REHEARSAL)
    named = [make_sale(begins_in_s=-60), make_sale(begins_in_s=500)]
    assert busy_sales(now=timezone.now()) == named


# --- Outages --------------------------------------------------------------------------------------


def test_rehearsal_without_web_server_leaves_nothing() -> None:
    sale = make_sale()
    before = everything_there()
    rehearsal = finish(begun(sale, "http://127.0.0.1:1"))
    assert (rehearsal.phase, rehearsal.problem) == (FAILED, NO_WEB_SERVER)
    assert rehearsal.verdict == {}
    assert everything_there() == before


def test_web_server_with_another_key_is_recognised(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = make_sale()
    before = everything_there()
    monkeypatch.setattr("backoffice.rehearsal.buyers.PurchaseToken.sign", lambda token: "1-2-3-4:x")
    rehearsal = finish(begun(sale, url))
    assert (rehearsal.phase, rehearsal.problem) == (FAILED, ANOTHER_SHOP)
    assert everything_there() == before


@pytest.mark.slow
def test_lost_web_server_leaves_clicks_unanswered(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sale = make_sale()
    before = everything_there()
    rehearsal = steps_until(begun(sale, url), BUYING)
    Rehearsal.objects.filter(pk=rehearsal.pk).update(url="http://127.0.0.1:1")
    rehearsal = finish(Rehearsal.objects.get(pk=rehearsal.pk))
    assert (rehearsal.phase, rehearsal.problem) == (FAILED, NOTHING_BOUGHT)
    assert rehearsal.verdict["unanswered"] == rehearsal.verdict["answers"]["unanswered"] == 18
    assert rehearsal.verdict["requests"] == 5 * 18
    assert everything_there() == before


def test_rehearsal_without_worker_fails_and_clears_up(url: str) -> None:
    sale = make_sale()
    before = everything_there()
    rehearsal = steps_until(begun(sale, url), DRAINING)
    rehearsal = step(rehearsal)
    assert (rehearsal.phase, progress(rehearsal)) == (DRAINING, (0, 5))
    rehearsal = step(rehearsal, later=DRAIN_PATIENCE + dt.timedelta(seconds=1))
    assert rehearsal.phase == CLEARING
    rehearsal = step(rehearsal)  # closed
    rehearsal = step(rehearsal)  # a worker may still come
    assert SeckillVoucher.objects.filter(pk=shadow_id_of(rehearsal)).exists()
    rehearsal = step(rehearsal, later=dt.timedelta(minutes=1))
    assert (rehearsal.phase, rehearsal.problem) == (FAILED, NOT_DRAINED)
    assert not rehearsal.verdict["drained"]
    assert not rehearsal.verdict["is_right"]
    assert everything_there() == before


def test_step_is_retried_when_redis_returns(url: str, redis_gone: RedisGone) -> None:
    rehearsal = steps_until(begun(make_sale(), url), DRAINING)
    with redis_gone():
        again = take_turn(rehearsal_id=rehearsal.pk, turn=rehearsal.turn, now=timezone.now())
    assert again is not None
    assert (again.number, again.pause_s) == (rehearsal.turn, 1.0)
    assert finish(rehearsal).verdict["is_right"]


@pytest.mark.slow
def test_take_turns_gives_up_without_redis(
    url: str, lose_ledger: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsal = steps_until(begun(make_sale(), url), DRAINING)
    monkeypatch.setattr(rehearsing, "GIVE_UP_S", 0)
    lose_ledger()
    with pytest.raises(Stuck):
        list(take_turns(rehearsal_id=rehearsal.pk))


# --- Cancelling -----------------------------------------------------------------------------------


def test_unstarted_rehearsal_is_cancelled_at_once(url: str) -> None:
    rehearsal = cancel_rehearsal(rehearsal_id=begun(make_sale(), url).pk)
    assert (rehearsal.phase, rehearsal.problem, rehearsal.running) == (FAILED, CANCELLED, None)


@pytest.mark.parametrize("phase", slow_after(1, [PREPARING, BUYING, DRAINING]))
def test_cancelled_rehearsal_clears_up(url: str, phase: RehearsalPhase) -> None:
    sale = make_sale()
    before = everything_there()
    rehearsal = steps_until(begun(sale, url), phase)
    rehearsal = step(rehearsal) if phase == PREPARING else rehearsal
    rehearsal = cancel_rehearsal(rehearsal_id=rehearsal.pk)
    assert rehearsal.phase == CLEARING
    if phase == DRAINING:
        fulfil_sale(sale_id=shadow_id_of(rehearsal))
    rehearsal = finish(rehearsal)
    assert (rehearsal.phase, rehearsal.problem, rehearsal.verdict) == (FAILED, CANCELLED, {})
    assert everything_there() == before


# --- Crashes --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_rehearsal_of_dead_process_finishes(url: str, point: str) -> None:
    sale = source_of_truth()
    before = everything_there()
    rehearsal = begun(sale, url)
    with armed(f"{point}=raise"), pytest.raises(FailpointReached):
        finish(rehearsal)

    ((rehearsal_id, turn),) = resumed()

    rehearsal = Rehearsal.objects.get(pk=rehearsal_id)
    assert rehearsal.turn == turn
    rehearsal = finish(rehearsal)
    assert (rehearsal.phase, rehearsal.problem) == (DONE, "")
    assert rehearsal.verdict["is_right"]
    assert rehearsal.verdict["interruptions"] == (
        POINTS.index(point) < POINTS.index("clear.closed")
    )
    assert everything_there() == before


def test_repeated_crashes_end_in_clearing_up(url: str) -> None:
    sale = make_sale()
    before = everything_there()
    rehearsal = steps_until(begun(sale, url), BUYING)
    for minutes in range(1, MAX_INTERRUPTIONS + 1):
        resumed(later=dt.timedelta(minutes=minutes))
    assert Rehearsal.objects.get().phase == BUYING
    resumed(later=dt.timedelta(minutes=minutes + 1))
    rehearsal = finish(Rehearsal.objects.get(pk=rehearsal.pk))
    assert (rehearsal.phase, rehearsal.problem) == (FAILED, INTERRUPTED)
    assert everything_there() == before


def test_rehearsal_within_its_lease_is_not_resumed(url: str) -> None:
    begun(make_sale(), url)
    assert resumed(later=dt.timedelta()) == []


def test_one_of_two_processes_continues(url: str) -> None:
    rehearsal = steps_until(begun(make_sale(), url), BUYING)
    ((_, turn),) = resumed()
    assert take_turn(rehearsal_id=rehearsal.pk, turn=rehearsal.turn, now=timezone.now()) is None
    assert take_turn(rehearsal_id=rehearsal.pk, turn=turn, now=timezone.now()) is not None


@pytest.mark.slow
def test_superseded_step_records_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sale = make_sale()
    before = everything_there()
    rehearsal = steps_until(begun(sale, url), BUYING)

    def slow(name: str) -> None:
        if name == "rehearse.fired":
            cancel_rehearsal(rehearsal_id=rehearsal.pk)

    monkeypatch.setattr("backoffice.rehearsal.phases.failpoint", slow)
    assert take_turn(rehearsal_id=rehearsal.pk, turn=rehearsal.turn, now=timezone.now()) is None
    found = Rehearsal.objects.get(pk=rehearsal.pk)
    assert (found.phase, found.crowd["requests"]) == (CLEARING, 0)
    fulfil_sale(sale_id=shadow_id_of(found))
    finish(found)
    assert everything_there() == before


def test_orphaned_shadow_is_cleared_up_by_beat(url: str) -> None:
    sale = make_sale()
    before = everything_there()
    steps_until(begun(sale, url), BUYING).delete()
    for minutes in (1, 2):
        assert resumed(later=dt.timedelta(minutes=minutes)) == []
    assert everything_there() == before


def test_live_rehearsal_is_no_leftover(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rehearsal = begun(make_sale(), url)
    clock = SimpleNamespace(sleep=lambda seconds: step(rehearsal))
    monkeypatch.setattr(rehearsing, "time", clock)
    with pytest.raises(AnotherRehearsal):
        list(clear_leftovers())


# --- The source -----------------------------------------------------------------------------------


def test_original_sale_sells_during_rehearsal(url: str) -> None:
    sale = source_of_truth()
    keys = LedgerKeys(sale.pk)
    rehearsal = steps_until(begun(sale, url), DRAINING)
    tokens = written_orders(sale, make_buyers(2))
    finish(rehearsal)
    assert VoucherOrder.objects.filter(pk__in=[it.order_id for it in tokens]).count() == 2
    assert {keys.sale, keys.buyers} <= set(ledger_contents())
    assert_conserved(sale)
    assert broker_length() >= 0
