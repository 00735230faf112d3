"""Races against a lease: the holder of a lock is slower than its lease is long."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from lab.interleaving.races.race import RIGHT, Race
from lab.interleaving.stage import FAIR_LEASE_MS, SHORT_LEASE_MS, PlayedStage
from lab.keys import LabKeys
from vouchers.inventory.keys import LedgerKeys


def lease_runs_out(stage: PlayedStage) -> None:
    lock = _open(stage)
    # A lock that is renewed must be so in time on a machine that is slow.
    is_renewed = stage.step.name == "v6-watchdog"
    stage.process(1, lease_ms=FAIR_LEASE_MS if is_renewed else SHORT_LEASE_MS)
    slow = stage.buyer("A", 1, process=1)
    slow.until("orders counted")
    stage.let_a_lease_pass(lock, holder=1)
    stage.buyer("A'", 1, process=2).finish()
    slow.finish()


def deletes_anothers_lock(stage: PlayedStage) -> None:
    lock = _open(stage)
    stage.process(1, lease_ms=SHORT_LEASE_MS)
    slow = stage.buyer("A", 1, process=1)
    slow.until("orders counted")
    stage.let_a_lease_pass(lock, holder=1)
    stage.cut(slow)
    second = stage.buyer("A'", 1, process=2)
    second.until("orders counted")
    slow.finish()
    stage.buyer("A''", 1, process=3).finish()
    second.finish()


def process_stands_still(stage: PlayedStage) -> None:
    if stage.step.is_ours:
        _worker_stands_still(stage)
        return
    lock = _open(stage)
    stage.process(1, lease_ms=SHORT_LEASE_MS)
    stopped = stage.buyer("A", 1, process=1)
    stopped.until("orders counted")
    stage.stop(1)
    stage.let_a_lease_pass(lock, holder=1)
    stage.buyer("A'", 1, process=2).finish()
    stage.resume(1)
    stopped.finish()


def _worker_stands_still(stage: PlayedStage) -> None:
    stage.open(units=1, buyers=1)
    stage.buyer("A", 1, process=1).finish()
    stage.process(2, lease_ms=SHORT_LEASE_MS)
    stopped = stage.worker(process=2, name="W")
    stopped.until("fulfill.begun")
    stage.stop(2)
    keys = LedgerKeys(stage.sale_id)
    stage.let_a_lease_pass(keys.sale_lock, keys.user_lock(stage.user_ids[0]), holder=2)
    stage.worker(process=3, name="W'").finish()
    stage.resume(2)
    stopped.finish()


def _open(stage: PlayedStage) -> str:
    """Open a sale in which a buyer could get a second unit; return the key of the buyer's lock."""
    stage.open(units=2, buyers=1)
    return LabKeys(stage.sale_id).lock_of(stage.user_ids[0])


RACES = (
    Race(
        name="lease-runs-out",
        title=_("The lease runs out"),
        story=_(
            "A buyer's first press holds the lock and has found no order yet. Then "
            "its thread pauses for longer than the lease. Meanwhile the second press "
            "arrives."
        ),
        script=lease_runs_out,
        expects={
            "v6-expiring": {"doubled": 1},
            "v6-owned": {"doubled": 1},
            "v6-watchdog": RIGHT,
        },
    ),
    Race(
        name="deletes-anothers-lock",
        title=_("Deleting another's lock"),
        story=_(
            "The first press takes longer than its lease, its database connection is "
            "cut, and it fails. On its way out it releases the lock, as it should. "
            "By then the lock belongs to the second press, which has just found no "
            "order. Then a third press arrives."
        ),
        script=deletes_anothers_lock,
        expects={"v6-expiring": {"doubled": 1}, "v6-owned": RIGHT},
    ),
    Race(
        name="process-stands-still",
        title=_("The process freezes"),
        story=_(
            "Not a thread but the whole process is stopped for longer than the "
            "lease, by a debugger, a garbage collector or a hypervisor, so nobody "
            "renews the lock. Another process takes over and writes. Then the first "
            "continues with its next line, which is the one that writes."
        ),
        script=process_stands_still,
        expects={"v6-watchdog": {"doubled": 1}, "ours": RIGHT},
    ),
)
