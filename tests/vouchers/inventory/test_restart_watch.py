"""The restart watch: which ledgers it rebuilds, and what it says of one."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils import timezone

from tests.support.passes import cut_after_one
from tests.support.sales import change_state, lose_state, make_loaded_sale, make_sale
from vouchers.inventory import restart_watch
from vouchers.inventory.keys import STATE, LedgerKeys, LedgerUnavailable
from vouchers.inventory.rebuild import rebuild_sale
from vouchers.inventory.restart_watch import (
    is_ledger_behind_row,
    is_same_ledger,
    rebuild_after_restart,
)
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db


def come_from_another_run(ledger: Any, *sales: SeckillVoucher) -> None:
    for sale in sales:
        ledger.hset(LedgerKeys(sale.pk).sale, "run_id", "of another run")


def test_only_ledgers_of_another_run_are_rebuilt(ledger: Any) -> None:
    here, elsewhere, missing = make_loaded_sale(), make_loaded_sale(), make_loaded_sale()
    come_from_another_run(ledger, elsewhere)
    lose_state(missing.pk)

    for _ in range(2):
        assert not rebuild_after_restart(now=timezone.now())

    epochs = [snapshot(sale_id=it.pk).epoch for it in (here, elsewhere)]
    assert epochs == [1, 2]
    assert not ledger.hexists(LedgerKeys(missing.pk).buyers, STATE)


def test_sale_that_fails_does_not_stop_the_others(
    ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing, other = make_loaded_sale(), make_loaded_sale()
    come_from_another_run(ledger, failing, other)

    def fail_one(*, sale_id: int, epoch: str) -> None:
        if sale_id == failing.pk:
            raise LedgerUnavailable("no response")
        rebuild_sale(sale_id=sale_id, epoch=epoch)

    with monkeypatch.context() as broken:
        broken.setattr(restart_watch, "rebuild_sale", fail_one)
        rebuild_after_restart(now=timezone.now())
    assert [snapshot(sale_id=it.pk).epoch for it in (failing, other)] == [1, 2]

    rebuild_after_restart(now=timezone.now())
    assert [snapshot(sale_id=it.pk).epoch for it in (failing, other)] == [2, 2]


def test_cut_pass_is_continued_by_the_next(ledger: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_after_one(monkeypatch)
    sales = [make_loaded_sale() for _ in range(3)]
    come_from_another_run(ledger, *sales)
    epochs, left = [], []
    for _ in sales:
        left.append(rebuild_after_restart(now=timezone.now()))
        epochs.append(sorted(snapshot(sale_id=it.pk).epoch for it in sales))
    assert epochs == [[1, 1, 2], [1, 2, 2], [2, 2, 2]]
    assert left == [True, True, False]


@pytest.mark.parametrize("told", [True, False], ids=["epoch", "control"])
def test_two_watches_at_once_close_a_sale_once(
    ledger: Any, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    sale = make_loaded_sale()
    come_from_another_run(ledger, sale)

    def after_the_other_watch(*, sale_id: int, epoch: str) -> None:
        rebuild_sale(sale_id=sale_id, epoch=epoch)
        rebuild_sale(sale_id=sale_id, epoch=epoch if told else "")

    monkeypatch.setattr(restart_watch, "rebuild_sale", after_the_other_watch)
    rebuild_after_restart(now=timezone.now())

    assert snapshot(sale_id=sale.pk).epoch == (2 if told else 3)


def test_ledger_is_the_same_until_rebuilt_or_of_another_run(ledger: Any) -> None:
    sale = make_loaded_sale()
    loaded_at_ms = snapshot(sale_id=sale.pk).loaded_at_ms

    assert is_same_ledger(sale_id=sale.pk, loaded_at_ms=loaded_at_ms)
    assert not is_same_ledger(sale_id=sale.pk, loaded_at_ms=loaded_at_ms - 1)
    come_from_another_run(ledger, sale)
    assert not is_same_ledger(sale_id=sale.pk, loaded_at_ms=loaded_at_ms)


@pytest.mark.parametrize(("row", "behind"), [(3, False), (4, False), (5, True)])
def test_ledger_is_behind_a_row_that_stores_a_higher_batch(
    ledger: Any, row: int, behind: bool
) -> None:
    sale = make_loaded_sale()
    change_state(sale.pk, batch=4)
    SeckillVoucher.objects.filter(pk=sale.pk).update(batch=row)

    assert is_ledger_behind_row(sale_id=sale.pk) is behind


@pytest.mark.parametrize("form", ["of another release", "malformed"])
def test_unreadable_state_counts_as_missing(ledger: Any, form: str) -> None:
    """Its first buyer or reconcile loads it."""
    sale = make_loaded_sale()
    lose_state(sale.pk)
    ledger.hset(
        LedgerKeys(sale.pk).buyers,
        mapping={"epoch": "1:0"} if form == "of another release" else {STATE: "1:2 3"},
    )

    assert not is_same_ledger(sale_id=sale.pk, loaded_at_ms=1)
    assert not is_ledger_behind_row(sale_id=sale.pk)
    unreadable = ledger.hgetall(LedgerKeys(sale.pk).buyers)
    rebuild_after_restart(now=timezone.now())
    assert ledger.hgetall(LedgerKeys(sale.pk).buyers) == unreadable


def test_missing_ledger_is_not_behind() -> None:
    assert not is_ledger_behind_row(sale_id=make_sale().pk)


def test_ledger_of_another_sale_with_the_same_id_is_replaced(ledger: Any) -> None:
    sale = make_loaded_sale()
    SeckillVoucher.objects.filter(pk=sale.pk).update(identity=sale.identity + 1, epoch=0)

    rebuild_after_restart(now=timezone.now())

    assert snapshot(sale_id=sale.pk).terms.identity == sale.identity + 1
