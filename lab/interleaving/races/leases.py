"""Races against a lease: the holder of a lock outlasts its lease."""

from functools import partial

from lab.interleaving.races.race import Script
from lab.interleaving.stage import FAIR_LEASE_MS, SHORT_LEASE_MS, PlayedStage

RENEWED = ("v6-watchdog", "v6-queue", "v6-stream", "v6-renewed")


def _overtake(stage: PlayedStage, *, freeze: bool) -> None:
    """Let the second press buy while the first one, in the transaction, outlasts its lease."""
    stage.open(units=2, buyers=1)
    # A lock that is renewed must be renewed in time on a slow machine.
    is_renewed = stage.step.name in RENEWED and not freeze
    stage.process(1, lease_ms=FAIR_LEASE_MS if is_renewed else SHORT_LEASE_MS)
    slow = stage.buyer("A", 1, process=1)
    if stage.step.writer:
        slow.finish()
        slow = stage.writer(process=1)
    slow.until("orders counted")
    if freeze:
        stage.stop(1)
    stage.let_a_lease_pass(holder=1)
    if stage.step.writer:
        stage.writer(process=2, name="W'").finish()
    else:
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


SCRIPTS: dict[str, Script] = {
    "lease-runs-out": partial(_overtake, freeze=False),
    "deletes-anothers-lock": deletes_anothers_lock,
    "process-stands-still": process_stands_still,
}
