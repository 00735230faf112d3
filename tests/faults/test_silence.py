"""Nothing dead is silent: each process that stops is named alone, and no longer once it goes on.

Notes are made older by 31 s rather than waited for; whoever lives notes itself within ten seconds.
"""

from __future__ import annotations

import signal

import pytest

from seckill_site.broker.heartbeats import HEARTBEATS, State, read_heartbeats
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.patience import wait_for
from tests.support.stack import Process, Stack, signal_each

pytestmark = [pytest.mark.slow, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

QUEUES = {"queue:celery", "queue:payments", "queue:webhooks"}


def missing() -> set[str]:
    return {it.name for it in read_heartbeats({}) if it.is_missing}


def let_pass(seconds: int = 31) -> None:
    for name, at_ms in ledger_connection().hgetall(HEARTBEATS).items():
        ledger_connection().hset(HEARTBEATS, name, int(at_ms) - seconds * 1000)


@pytest.fixture
def processes(stack: Stack) -> tuple[Process, Process]:
    """A worker and beat, of which everything has run once."""
    with stack.together():
        worker, beat = stack.worker(), stack.beat()
    wait_for(lambda: {it.state for it in read_heartbeats({})} == {State.RUNS}, what="first runs")
    return worker, beat


def test_stopped_worker_is_named_alone(processes: tuple[Process, Process]) -> None:
    worker, _ = processes
    worker.pause()
    let_pass()
    wait_for(lambda: missing() == QUEUES, what="name")
    worker.resume()
    wait_for(lambda: not missing(), what="its return")


def test_stopped_beat_is_named_alone(processes: tuple[Process, Process]) -> None:
    _, beat = processes
    beat.pause()
    let_pass()
    wait_for(lambda: missing() == {"beat"}, what="name")
    beat.resume()
    wait_for(lambda: not missing(), what="its return")


def test_worker_whose_children_hang_is_named_by_its_tasks(
    processes: tuple[Process, Process],
) -> None:
    worker, _ = processes
    children = worker.children()
    signal_each(children, signal.SIGSTOP)
    let_pass()
    wait_for(lambda: "task:orders.tasks.expire" in missing(), what="name")
    assert not missing() & {*QUEUES, "beat"}
    signal_each(children, signal.SIGCONT)
    wait_for(lambda: not missing(), what="its return")


def test_worker_of_one_queue_leaves_the_others_missing(stack: Stack) -> None:
    stack.worker("--queues", "payments", concurrency=1)
    let_pass()
    wait_for(lambda: missing() == {"beat", *QUEUES} - {"queue:payments"}, what="names")


def test_worker_goes_on_noting_itself_on_a_new_connection(
    processes: tuple[Process, Process],
) -> None:
    ledger_connection().client_kill_filter(_type="normal", skipme=True)
    ledger_connection().delete(HEARTBEATS)
    noted = {*QUEUES, "beat"}
    wait_for(lambda: noted <= set(ledger_connection().hkeys(HEARTBEATS)), what="notes")
