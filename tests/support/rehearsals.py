"""What the tests of rehearsals are made of: a plan, its steps done here, all that is anywhere."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from django.apps import apps
from django.utils import timezone

from backoffice.job_engine import LEASE
from backoffice.rehearsal import buyers as rehearsal_buying
from backoffice.rehearsal import phases
from backoffice.rehearsal.crowd import check_web, fire
from backoffice.rehearsal.service import (
    resume_rehearsals,
    start_rehearsal,
    take_turn,
)
from orders.fulfilment.worker import fulfil_sale
from orders.models import Rehearsal, RehearsalPhase, SettlementRun
from tests.support.inspection import ledger_contents
from vouchers.inventory import request_stats
from vouchers.models import SaleStage, SeckillVoucher

SEQUENCES = {"seckill:order-ids", "seckill:order-blocks"}
"""Keys that only ever count up."""

OF_BEAT = (
    *("lock:notifications", "lock:notices", "lock:webhooks", "lock:expire", "lock:reconcile"),
    *("lock:restore_lines", "lock:store_", "lock:watch_ledger", "lock:draws"),
    *("lock:remove_ledgers", "lock:remove_again"),
)
PASSING = (
    *(*OF_BEAT, *(f"{{{name}}}" for name in OF_BEAT)),
    *("seckill:clocks", "seckill:heartbeats", "seckill:keys", "seckill:removals"),
)
"""How keys begin that come and go, or change, while beat runs."""


@contextmanager
def crowd_in_a_thread() -> Iterator[None]:
    """Let the crowd run in another thread: a browser test leaves an event loop in this one."""
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as pool:

        def elsewhere(function: Any) -> Any:
            return lambda **arguments: pool.submit(function, **arguments).result()

        patch.setattr(rehearsal_buying, "fire", elsewhere(fire))
        patch.setattr(phases, "check_web", elsewhere(check_web))
        yield


def begun(sale: SeckillVoucher, url: str, **changes: Any) -> Rehearsal:
    """Begin a small rehearsal."""
    options = {"buyers": 12, "stock": 5, "duplicates": 50, "connections": 4, "url": url, **changes}
    return start_rehearsal(sale_id=sale.pk, **options)


def step(rehearsal: Rehearsal, *, later: dt.timedelta = dt.timedelta()) -> Rehearsal:
    """Do one step, as a worker does, and return the rehearsal after it."""
    take_turn(rehearsal_id=rehearsal.pk, turn=rehearsal.turn, now=timezone.now() + later)
    return Rehearsal.objects.get(pk=rehearsal.pk)


def steps_until(rehearsal: Rehearsal, *phases: RehearsalPhase) -> Rehearsal:
    """Do steps until one of these phases is reached, with a worker that writes the orders."""
    for _ in range(200):
        if rehearsal.phase in phases:
            return rehearsal
        if rehearsal.phase == RehearsalPhase.DRAINING:
            fulfil_sale(sale_id=shadow_of(rehearsal).pk)
        rehearsal = step(rehearsal, later=clearing_time(rehearsal))
    raise AssertionError(f"never in {phases}, but in {rehearsal.phase}: {rehearsal.crowd}")


def finish(rehearsal: Rehearsal) -> Rehearsal:
    return steps_until(rehearsal, RehearsalPhase.DONE, RehearsalPhase.FAILED)


def clearing_time(rehearsal: Rehearsal) -> dt.timedelta:
    """Return how much later it is for a rehearsal that clears up: nobody waits in a test."""
    shadow = SeckillVoucher.objects.filter(pk=rehearsal.shadow_id or 0, ends_at__lte=timezone.now())
    if rehearsal.phase == RehearsalPhase.CLEARING and shadow.exists():
        request_stats.flush_request_counts()
        return dt.timedelta(seconds=3)
    return dt.timedelta()


def resumed(*, later: dt.timedelta = LEASE) -> list[tuple[int, int]]:
    """Let beat look after the lease has expired; return the ids and turns that it publishes."""
    turns = resume_rehearsals(now=timezone.now() + later + dt.timedelta(seconds=1))
    return [(turn.job_id, turn.number) for turn in turns]


def shadow_id_of(rehearsal: Rehearsal) -> int:
    assert rehearsal.shadow_id is not None
    return rehearsal.shadow_id


def shadow_of(rehearsal: Rehearsal) -> SeckillVoucher:
    return SeckillVoucher.objects.get(pk=shadow_id_of(rehearsal), stage=SaleStage.REHEARSAL)


def everything_there() -> tuple[dict[str, int], dict[str, Any]]:
    """Return how many rows each table has, and every key of the ledger.

    Not the rehearsals themselves, nor what beat writes on its own.
    """
    tables = {
        model._meta.label: model._default_manager.count()
        for model in apps.get_models(include_auto_created=True)
        if model not in (Rehearsal, SettlementRun)  # beat settles the last days when it first runs
    }
    kept = ledger_contents()
    found = {key for key in kept if not key.startswith(PASSING)} - SEQUENCES
    return tables, {key: kept[key] for key in sorted(found)}
