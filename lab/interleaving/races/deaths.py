"""Races in which a deciding process, Redis or the holder of a lock dies."""

from functools import partial

from lab.interleaving.races.race import Script
from lab.interleaving.stage import FAIR_LEASE_MS, SHORT_LEASE_MS, PlayedStage


def dies_after_deciding(stage: PlayedStage) -> None:
    stage.open(units=2, buyers=3)
    if stage.step.is_ours:
        _ours_die(stage)
        return
    if stage.step.writer:
        stage.buyer("A", 1).finish()
    else:
        stage.buyer("A", 1).until("decided")
    if stage.step.name == "v5-stream":
        stage.writer(process=1).until("read")
    stage.kill(1)
    stage.buyer("A", 1, process=2).finish()
    stage.buyer("B", 2, process=2).finish()
    if stage.step.writer:
        stage.writer(process=2).finish()
    else:
        stage.buyer("C", 3, process=2).finish()


def _ours_die(stage: PlayedStage) -> None:
    """Let the web process die, then a worker before its commit, then one after it."""
    token = stage.token(1)
    stage.buyer("A", 1, token=token).until("place.reserved")
    stage.kill(1)
    for process, last in ((2, "batch.before_commit"), (3, "batch.committed")):
        stage.process(process, lease_ms=SHORT_LEASE_MS)
        stage.worker(process=process).until(last)
        stage.kill(process)
        stage.let_a_lease_pass(holder=process)
    stage.worker(process=4).finish()
    stage.buyer("A", 1, process=5, token=token).finish()


def dies_halfway(stage: PlayedStage) -> None:
    stage.open(units=1, buyers=1)
    stage.buyer("A", 1).until("unit taken")
    stage.kill(1)
    stage.buyer("A", 1, process=2).finish()


def redis_empty(stage: PlayedStage) -> None:
    stage.open(units=2, buyers=3)
    if stage.step.is_ours:
        _ours_lose_redis(stage)
        return
    stage.buyer("A", 1).finish()
    stage.empty_redis()
    if stage.step.writer:
        stage.writer(process=1).finish()
    stage.buyer("B", 2).finish()


def _ours_lose_redis(stage: PlayedStage) -> None:
    """Empty Redis when one order is already a row and another is only a promise."""
    token = stage.token(2)
    stage.buyer("A", 1).finish()
    stage.worker(process=2).finish()
    stage.buyer("B", 2, token=token).finish()
    stage.empty_redis()
    stage.worker(process=2).finish()
    stage.receipt("B", token, process=1).finish()
    stage.buyer("B", 2).finish()
    stage.buyer("C", 3).finish()
    stage.worker(process=2).finish()


def holder_dies(stage: PlayedStage) -> None:
    stage.open(units=1, buyers=1)
    if stage.step.is_ours:
        stage.buyer("A", 1).finish()
        stage.process(2, lease_ms=FAIR_LEASE_MS)
        stage.worker(process=2).until("fulfill.locked")
        stage.kill(2)
        stage.worker(process=3).finish()
        stage.let_a_lease_pass(holder=2)
        stage.worker(process=3).finish()
        return
    stage.process(1, lease_ms=FAIR_LEASE_MS)
    is_queued = stage.step.writer is not None
    if is_queued:
        stage.buyer("A", 1).finish()
    holder = partial(stage.writer) if is_queued else partial(stage.buyer, "A", 1)
    holder(process=1).until("lock held")
    stage.kill(1)
    holder(process=2).finish()
    stage.let_a_lease_pass(holder=1)
    holder(process=2).finish()


SCRIPTS: dict[str, Script] = {
    "dies-halfway": dies_halfway,
    "dies-after-deciding": dies_after_deciding,
    "redis-empty": redis_empty,
    "holder-dies": holder_dies,
}
