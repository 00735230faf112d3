"""A ledger that a newer release has made: this one changes nothing in it, and answers 503."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from locks.lua_script import ScriptCall
from orders import tasks
from orders.fulfilment import sweep as sweeping
from orders.fulfilment.reconcile import reconcile, reconcile_running
from orders.models import VoucherOrder
from seckill_site import health
from seckill_site.newer_format import is_older_release
from tests.fixtures.vouchers import DropGuard
from tests.support.draws import make_draw
from tests.support.heartbeats import note_all
from tests.support.inspection import broker_length, ledger_contents, pending_ids
from tests.support.orders import make_buyers, make_sale, reserved, token_for
from tests.support.tiers import slow_after
from vouchers.inventory import entering, rebuild, reservations, sale_state, waiting_list
from vouchers.inventory.keys import (
    STATE,
    LedgerKeys,
    LedgerUnavailable,
    NewerFormat,
    NotLoaded,
    send,
)
from vouchers.inventory.rebuild import load_sale
from vouchers.inventory.reservations import (
    Release,
    Reply,
    finish_reservation,
    pending_entries,
    reserve_call,
)
from vouchers.inventory.sale_state import LedgerTerms
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

NEWER = "2"


def make_newer(ledger: Any, sale: SeckillVoucher) -> None:
    """Let a newer release have made the ledger of a sale."""
    assert ledger.hget(LedgerKeys(sale.pk).sale, "format") == "1"
    ledger.hset(LedgerKeys(sale.pk).sale, "format", NEWER)


def post_order(sale: SeckillVoucher, token: Any) -> Any:
    data = {"token": token.sign(), "attempt": 2}
    headers = {"Accept": "application/json"}
    return Client().post(f"/vouchers/{sale.pk}/orders/", data=data, headers=headers)


def test_orders_and_live_figures_answer_503(ledger: Any) -> None:
    sale, draw = make_sale(), make_draw()
    tokens = [token_for(it, buyer) for it, buyer in zip((sale, draw), make_buyers(2), strict=True)]
    for it, token in zip((sale, draw), tokens, strict=True):
        make_newer(ledger, it)
        before = ledger_contents()
        answers = [post_order(it, token), Client().get(f"/vouchers/{it.pk}/live/")]
        assert [answer.status_code for answer in answers] == [503, 503]
        assert all(int(answer["Retry-After"]) >= 1 for answer in answers)
        after = ledger_contents()
        assert {key: after.get(key) for key in before} == before
    assert broker_length() == 0

    ledger.hset(LedgerKeys(sale.pk).sale, "format", "1")
    assert post_order(sale, tokens[0]).status_code == 202


def test_readyz_says_an_older_release_until_the_ledger_is_readable(
    ledger: Any, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "wrong_clocks", dict)
    note_all()
    sale = make_sale()
    make_newer(ledger, sale)
    assert client.get("/readyz").json()["release"] == "ok"  # it has met nothing yet

    with pytest.raises(NewerFormat):
        load_sale(sale_id=sale.pk)
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["release"]) == (503, "an older release")

    ledger.hset(LedgerKeys(sale.pk).sale, "format", "1")
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["release"]) == (200, "ok")


def test_older_release_stays_one_while_redis_is_silent(ledger: Any, redis_gone: Any) -> None:
    sale = make_sale()
    make_newer(ledger, sale)
    with pytest.raises(NewerFormat):
        load_sale(sale_id=sale.pk)
    with redis_gone():
        assert is_older_release()


def test_work_of_beat_and_workers_goes_back(ledger: Any) -> None:
    """Nothing is written, swept, rebuilt or repaired; the task waits for a newer worker."""
    sale = make_sale()
    reserved(sale, make_buyers(3))
    ledger.hset(LedgerKeys(sale.pk).buyers, "1:1", "1")  # a difference
    ledger.hset(LedgerKeys(sale.pk).sale, "run_id", "another run of Redis")
    make_newer(ledger, sale)
    before, row = ledger_contents(), SeckillVoucher.objects.values().get(pk=sale.pk)

    tasks.fulfil_sale(sale_id=sale.pk)
    sweeping.sweep(now=timezone.now(), at_once=True)
    tasks.watch_ledger()
    reconcile_running(now=timezone.now())
    with pytest.raises(NewerFormat):
        reconcile(sale_id=sale.pk, repair=True)

    after = ledger_contents()
    own = {key for key in before.keys() | after.keys() if f"{{{sale.pk}}}" in key}
    assert {key: after.get(key) for key in own} == {key: before.get(key) for key in own}
    assert SeckillVoucher.objects.values().get(pk=sale.pk) == row
    assert not VoucherOrder.objects.exists()

    ledger.hset(LedgerKeys(sale.pk).sale, "format", "1")
    tasks.fulfil_sale(sale_id=sale.pk)
    assert VoucherOrder.objects.count() == 3
    assert not pending_ids(sale)


# --- each script ----------------------------------------------------------------------------------


def _call(call: ScriptCall[Reply]) -> None:
    finish_reservation(send(call))


def _order(sale: SeckillVoucher) -> None:
    _call(reserve_call(sale_id=sale.pk, order_id=901, user_id=91))


def _enter(draw: SeckillVoucher) -> None:
    _call(entering.enter_call(sale_id=draw.pk, order_id=901, user_id=91))


def _join(sale: SeckillVoucher) -> None:
    waiting_list.join_waiting(sale_id=sale.pk, order_id=901, user_id=91, joined_at_ms=5)


def _write_terms(sale: SeckillVoucher) -> None:
    sale.stock += 1
    sale_state.write_terms(sale_id=sale.pk, terms=LedgerTerms.from_sale(sale))


def _release(sale: SeckillVoucher) -> None:
    entry = pending_entries(sale_id=sale.pk, skip=0, count=1)[0]
    reservations.release(sale_id=sale.pk, releases=[Release(entry, "failed")])


def _sweep(sale: SeckillVoucher) -> None:
    reservations.claim_due_sweeps(sale_ids=[sale.pk], at_once=True)


def _build(sale: SeckillVoucher) -> None:
    rebuild._build_ledger(sale_id=sale.pk, epoch=sale.epoch)


def _put_aside(sale: SeckillVoucher) -> None:
    rebuild.put_foreign_aside(sale_id=sale.pk, identity=sale.identity + 1)


def _unload(sale: SeckillVoucher) -> None:
    rebuild._close(sale_id=sale.pk)


def _drop(sale: SeckillVoucher) -> None:
    rebuild.drop_wrong_types(sale_ids=[sale.pk])


Break = Callable[[SeckillVoucher], object]

NOT_LOADED = "if newer_format(KEYS[12]) then return 'NOT_LOADED' end"

SCRIPTS: dict[str, tuple[Callable[[SeckillVoucher], object], ModuleType, str, str]] = {
    "reserve": (_order, reservations, "_RESERVE", f"  {NOT_LOADED}\nend"),
    "reserve, others waiting": (_order, reservations, "_RESERVE", f"  {NOT_LOADED}\n-- Return"),
    "enter": (_enter, entering, "_ENTER", " or newer_format(KEYS[12])"),
    "join": (_join, waiting_list, "_JOIN", " or newer_format(KEYS[7])"),
    "write_terms": (_write_terms, sale_state, "_WRITE_TERMS", " or newer_format(KEYS[8])"),
    "release": (_release, reservations, "_RELEASE", "if newer_format(KEYS[9])"),
    "claim_sweep": (_sweep, reservations, "_CLAIM_SWEEP", "if newer_format(KEYS[6])"),
    "load": (_build, rebuild, "_LOAD", "if newer_format(KEYS[9])"),
    "put_foreign_aside": (_put_aside, rebuild, "_PUT_FOREIGN_ASIDE", " or newer_format(KEYS[1])"),
    "unload": (_unload, rebuild, "_UNLOAD", "if newer_format(KEYS[2])"),
    "drop_wrong_types": (_drop, rebuild, "_DROP_WRONG_TYPES", "if newer_format(KEYS[7])"),
}


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
@pytest.mark.parametrize("name", slow_after(2, SCRIPTS))
def test_each_script_leaves_it_alone(
    name: str, guarded: bool, ledger: Any, drop_guard: DropGuard
) -> None:
    act, module, script, guard = SCRIPTS[name]
    sale = make_draw() if name == "enter" else make_sale(stock=3)
    keys = LedgerKeys(sale.pk)
    if name not in ("enter", "reserve"):
        reserved(sale, make_buyers(3))
    if name == "reserve, others waiting":
        _join(sale)
        ledger.delete(keys.kick)
        ledger.hdel(keys.buyers, next(it for it in ledger.hkeys(keys.buyers) if ":" in it))
    if name == "drop_wrong_types":
        ledger.set(keys.swept, "mistyped")
    if name in ("load", "claim_sweep"):
        ledger.delete(keys.kick)
    if name == "load":
        ledger.hdel(keys.buyers, STATE)
    make_newer(ledger, sale)
    before = ledger_contents()
    if not guarded:
        drop_guard(module, script, guard, re.sub(r"newer_format\(KEYS\[\d+\]\)", "false", guard))

    with suppress(NotLoaded, LedgerUnavailable):
        act(sale)

    assert (ledger_contents() == before) is guarded


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_it_counts_as_not_loaded(guarded: bool, ledger: Any, drop_guard: DropGuard) -> None:
    sale = make_sale()
    make_newer(ledger, sale)
    if not guarded:
        drop_guard(sale_state, "_SNAPSHOT", " or newer_format(KEYS[9])")
    assert (sale_state.snapshots(sale_ids=[sale.pk])[sale.pk] is None) is guarded


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_no_epoch_is_raised_for_it(
    guarded: bool, ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A raised epoch would have the newer release's workers refused."""
    sale = make_sale()
    make_newer(ledger, sale)
    if not guarded:
        monkeypatch.setattr(rebuild, "check_format", lambda **_: None)
    with suppress(LedgerUnavailable):
        load_sale(sale_id=sale.pk)
    epoch = SeckillVoucher.objects.get(pk=sale.pk).epoch
    assert (epoch == sale.epoch) is guarded
