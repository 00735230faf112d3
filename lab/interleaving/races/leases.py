"""Races against a lease: the holder of a lock outlasts its lease."""

from functools import partial

from django.utils.translation import gettext_lazy as _

from lab.interleaving.races.race import Race
from lab.interleaving.stage import FAIR_LEASE_MS, SHORT_LEASE_MS, PlayedStage


def _overtake(stage: PlayedStage, *, freeze: bool) -> None:
    """Let the second press buy while the first one, in the transaction, outlasts its lease."""
    stage.open(units=2, buyers=1)
    # A lock that is renewed must be renewed in time on a slow machine.
    is_renewed = stage.step.name == "v6-watchdog" and not freeze
    stage.process(1, lease_ms=FAIR_LEASE_MS if is_renewed else SHORT_LEASE_MS)
    slow = stage.buyer("A", 1, process=1)
    slow.until("orders counted")
    if freeze:
        stage.stop(1)
    stage.let_a_lease_pass(holder=1)
    stage.buyer("A'", 1, process=2).finish()
    if freeze:
        stage.resume(1)
    slow.finish()


def deletes_anothers_lock(stage: PlayedStage) -> None:
    stage.open(units=2, buyers=1)
    stage.process(1, lease_ms=SHORT_LEASE_MS)
    slow = stage.buyer("A", 1, process=1)
    slow.until("orders counted")
    stage.let_a_lease_pass(holder=1)
    stage.cut(slow)
    second = stage.buyer("A'", 1, process=2)
    second.until("orders counted")
    slow.finish()
    stage.buyer("A''", 1, process=3).finish()
    second.finish()


def process_stands_still(stage: PlayedStage) -> None:
    if not stage.step.is_ours:
        _overtake(stage, freeze=True)
        return
    stage.open(units=1, buyers=1)
    stage.buyer("A", 1, process=1).finish()
    stage.process(2, lease_ms=SHORT_LEASE_MS)
    stopped = stage.worker(process=2, name="W")
    stopped.until("fulfill.begun")
    stage.stop(2)
    stage.let_a_lease_pass(holder=2)
    stage.worker(process=3, name="W'").finish()
    stage.resume(2)
    stopped.finish()


RACES = (
    Race(
        name="lease-runs-out",
        title=_("The lease runs out"),
        story=_(
            "A buyer's first press holds the lock and has found no order yet. Then its thread "
            "pauses for longer than the lease. Meanwhile the second press arrives."
        ),
        script=partial(_overtake, freeze=False),
        breaks={name: {"doubled": 1} for name in ("v6-expiring", "v6-owned", "v6-row")},
        holds=("v6-watchdog", "v6-get-lock"),
    ),
    Race(
        name="deletes-anothers-lock",
        title=_("Deleting another's lock"),
        story=_(
            "The first press takes longer than its lease, its database connection is cut, and it "
            "fails. On its way out it releases the lock, as it should. By then the lock belongs to "
            "the second press, which has just found no order. Then a third press arrives."
        ),
        script=deletes_anothers_lock,
        breaks={"v6-expiring": {"doubled": 1}},
        holds=("v6-owned",),
    ),
    Race(
        name="process-stands-still",
        title=_("The process freezes"),
        story=_(
            "Not a thread but the whole process is stopped for longer than the lease, by a "
            "debugger, a garbage collector or a hypervisor, so nobody renews the lock. Another "
            "process takes over and writes. Then the first continues with its next line, which is "
            "the one that writes."
        ),
        script=process_stands_still,
        breaks={"v6-watchdog": {"doubled": 1}, "v6-row": {"doubled": 1}},
        holds=("v6-get-lock", "ours"),
    ),
)
