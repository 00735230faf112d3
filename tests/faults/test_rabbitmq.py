"""RabbitMQ as the broker: one node, and three with quorum queues.

Orders, pauses, the death of nodes, silence, and whatever else a broker may answer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from celery import Celery
from django.conf import settings as django_settings
from kombu import Connection, Producer, Queue, pools
from kombu.exceptions import OperationalError
from pytest_django import Settings

from orders.placing import publishing
from orders.placing.publishing import FULFIL_SALE, publish
from seckill_site.broker.messages import LIFE_S, impatient, publish_options, task_queue
from seckill_site.celery import app
from seckill_site.checks import services
from seckill_site.checks.configuration import found_by
from tests.concurrency.sales import crowd_of, make_sale, sale_and_crowd
from tests.faults.conftest import standing_stack
from tests.faults.history import History, Outcome, Report
from tests.support.patience import Stalls, running_s, wait_for
from tests.support.rabbitmq import PROGRAM, OwnRabbitMQ, RabbitMQCluster
from tests.support.stack import Process, Stack, Web, free_port
from vouchers.models import SeckillVoucher

pytestmark = [
    pytest.mark.faults,
    pytest.mark.usefixtures("row_locks"),
    pytest.mark.skipif(not PROGRAM.exists(), reason="apt-get install rabbitmq-server"),
]


@pytest.fixture
def rabbitmq(tmp_path: Path) -> Iterator[OwnRabbitMQ]:
    with OwnRabbitMQ(tmp_path / "rabbitmq") as server:
        yield server


def use_broker(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """Let this process find the broker there; Celery prefers the second name."""
    for name in ("CELERY_BROKER_URL", "CELERY_BROKER_WRITE_URL"):
        monkeypatch.setenv(name, url)


def is_ready(web: Web) -> bool:
    with suppress(HTTPError), urlopen(f"{web.url}/readyz") as response:
        return bool(response.status == 200)
    return False


def test_orders_are_written_through_rabbitmq(stack: Stack, rabbitmq: OwnRabbitMQ) -> None:
    """Without beat nothing is swept, so RabbitMQ alone brings the tasks."""
    environ: dict[str, Any] = {"CELERY_BROKER_URL": rabbitmq.url}
    with stack.together():
        web, worker = stack.web(**environ), stack.worker(**environ)
    assert is_ready(web)
    for _ in range(2):
        sale, history = make_sale(stock=20), History("", "RabbitMQ")
        history.fire(sale, crowd_of(sale, count=40), url=web.url)
        history.settle(sale)
        outcome = history.check(sale)
        assert (outcome.orders, outcome.accepted) == (20, 20)
    assert worker.popen.poll() is None


def test_death_of_rabbitmq_costs_no_order(stack: Stack, rabbitmq: OwnRabbitMQ) -> None:
    environ: dict[str, Any] = {"CELERY_BROKER_URL": rabbitmq.url}
    with stack.together():
        web, worker = stack.web(**environ), stack.worker(**environ)
        stack.beat(**environ)
    sale, history = make_sale(stock=40), History("", "RabbitMQ killed")
    tokens = crowd_of(sale, count=40)
    history.fire(sale, tokens[:20], url=web.url)
    with history.fault():
        rabbitmq.kill()
        history.fire(sale, tokens[20:], url=web.url)
        history.check_answers()
        assert not is_ready(web)
        rabbitmq.start()
    history.settle(sale, seconds=60)
    outcome = history.check(sale, recovery_seconds=60)
    assert (outcome.orders, outcome.accepted) == (40, 40)
    assert worker.popen.poll() is None


def test_messages_to_rabbitmq_end_and_pause(
    rabbitmq: OwnRabbitMQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_broker(monkeypatch, rabbitmq.url)
    before = time.time()
    assert publish(FULFIL_SALE, sale_id=1)
    assert publish("orders.tasks.confirm_payments", in_s=5, order_id=1)
    with Connection(rabbitmq.url) as connection:
        channel: Any = connection.default_channel
        fulfil, confirm = channel.basic_get("celery"), channel.basic_get("payments")
    assert fulfil.properties["expiration"] == confirm.properties["expiration"] == f"{LIFE_S}000"
    assert fulfil.headers["eta"] is None
    assert "eta" in confirm.headers
    assert confirm.headers["eta"] > time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(before + 4))


# --- Three nodes with quorum queues ---------------------------------------------------------------

BUYERS = 20
QUEUES = ("celery", "payments", "webhooks")
NOTES = ("--include", "tests.support.paused_tasks")
TASKS_WITHIN_S, PUBLISHING_WITHIN_S, NOTICED_WITHIN_S = 10.0, 3.0, 15.0


@dataclass
class Standing:
    """Processes that stand, and their broker; no test may end them."""

    cluster: RabbitMQCluster
    environ: dict[str, Any]
    web: Web
    worker: Process
    beat: Process
    notes: Path

    def is_alive(self) -> bool:
        return all(it.popen.poll() is None for it in (self.web, self.worker, self.beat))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQCluster]:
    with RabbitMQCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def processes(
    django_db_setup: None, cluster: RabbitMQCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standing]:
    notes = tmp_path_factory.mktemp("notes") / "notes"
    notes.touch()
    environ: dict[str, Any] = {"CELERY_BROKER_URL": cluster.url, "SECKILL_QUORUM_QUEUES": "true"}
    environ |= {"TEST_NOTES": str(notes)}
    with standing_stack(tmp_path_factory) as stack:
        with stack.together():
            web, beat = stack.web(**environ), stack.beat(**environ)
            worker = stack.worker(*NOTES, **environ)
        yield Standing(cluster, environ, web, worker, beat, notes)


@pytest.fixture
def standing(transactional_db: None, processes: Standing) -> Standing:
    return processes


@pytest.fixture
def publisher(
    cluster: RabbitMQCluster, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Celery]:
    """The application of a web server with quorum queues, in this process."""
    use_broker(monkeypatch, cluster.url)
    settings.SECKILL_QUORUM_QUEUES = True
    mine = Celery("quorum", fixups=[])
    mine.config_from_object("django.conf:settings", namespace="CELERY")
    mine.conf.task_queues = [task_queue(it, is_quorum=True) for it in QUEUES]
    mine.set_current()
    publishing.breaker.forget()
    pause_s = django_settings.SECKILL_PUBLISH_PAUSE_MS / 1000
    monkeypatch.setattr(publishing.breaker, "pause_s", pause_s)  # other tests have it wait longer
    yield mine
    app.set_current()
    publishing.breaker.forget()
    pools.reset()


@contextmanager
def broker_of(cluster: RabbitMQCluster) -> Iterator[Any]:
    """Yield a channel to any of the nodes."""
    with Connection(cluster.url) as connection:
        yield connection.default_channel


def buy_through(
    standing: Standing, history: History, fault: AbstractContextManager[None], *, s: float = 1.5
) -> SeckillVoucher:
    """Let half of the buyers come before a fault, and half while it lasts; wait for all rows."""
    sale, tokens = sale_and_crowd(stock=2 * BUYERS, count=2 * BUYERS)
    standing.worker.pause()
    history.fire(sale, tokens[:BUYERS], url=standing.web.url)
    with history.fault(), fault:
        standing.worker.resume()
        history.fire(sale, tokens[BUYERS:], url=standing.web.url)
        time.sleep(s)  # the length of the fault
    history.settle(sale)
    return sale


def nothing_is_lost(history: History, sale: SeckillVoucher, *, within_s: float = 30.0) -> Outcome:
    outcome = history.check(sale, recovery_seconds=within_s)
    assert outcome.orders == outcome.accepted == sale.stock
    return outcome


@pytest.mark.cluster
def test_one_node_of_three_dies(standing: Standing, publisher: Celery, report: Report) -> None:
    """The first in everybody's list, to which all are connected."""
    history, cluster = History("K6", "one of three nodes killed"), standing.cluster
    sale, tokens = sale_and_crowd(stock=3 * BUYERS, count=3 * BUYERS)
    history.fire(sale, tokens[:BUYERS], url=standing.web.url)
    history.settle(sale)
    assert publish(FULFIL_SALE, sale_id=sale.pk)

    with history.fault():
        cluster.nodes[0].kill()
    history.fire(sale, tokens[BUYERS : 2 * BUYERS], url=standing.web.url)
    wait_for(lambda: publish(FULFIL_SALE, sale_id=sale.pk), what="a message that is taken")
    assert history.recovered() <= PUBLISHING_WITHIN_S
    history.settle(sale)
    assert max(history.recoveries) <= TASKS_WITHIN_S
    wait_for(lambda: is_ready(standing.web), what="a web server that is ready", seconds=20)

    cluster.start(cluster.nodes[:1])
    history.fire(sale, tokens[2 * BUYERS :], url=standing.web.url)
    history.settle(sale)
    report(nothing_is_lost(history, sale))
    assert standing.is_alive()


@pytest.mark.cluster
def test_control_single_attempt_never_reaches_the_second_node(
    standing: Standing, publisher: Celery
) -> None:
    """As Kombu does with ``max_retries: 0``, while the first node of the list is down."""
    gone = f"amqp://guest:guest@127.0.0.1:{free_port()}//"
    url, options = f"{gone};{standing.cluster.url}", impatient(1)
    with Connection(url, transport_options=options) as patient:
        channel: Any = patient.default_channel
        channel.queue_declare("celery", passive=True)
    single = Connection(url, transport_options=options | {"max_retries": 0})
    with single, pytest.raises(OperationalError):
        _ = single.default_channel


@pytest.mark.cluster
def test_two_nodes_of_three_die(standing: Standing, report: Report) -> None:
    history, cluster = History("K6", "two of three nodes killed"), standing.cluster

    @contextmanager
    def without_majority() -> Iterator[None]:
        for node in cluster.nodes[:2]:
            node.kill()
        try:
            yield
        finally:
            cluster.start(cluster.nodes[:2])

    sale = buy_through(standing, history, without_majority(), s=3)
    report(nothing_is_lost(history, sale))
    assert standing.is_alive()


@pytest.mark.cluster
def test_silent_broker_holds_no_order_up(standing: Standing, report: Report) -> None:
    keep_silent(standing, report, seconds=8)


@pytest.mark.timeout(600)
def test_broker_silent_for_two_minutes_holds_no_order_up(  # in the tier of all faults
    standing: Standing, report: Report
) -> None:
    keep_silent(standing, report, seconds=120)


def keep_silent(standing: Standing, report: Report, *, seconds: float) -> None:
    history = History("K6", f"three nodes silent for {seconds:g} s")
    sale = buy_through(standing, history, silence(standing.cluster), s=seconds)
    report(nothing_is_lost(history, sale))
    assert standing.is_alive()


@contextmanager
def silence(cluster: RabbitMQCluster) -> Iterator[None]:
    cluster.pause()
    try:
        yield
    finally:
        cluster.resume()


@pytest.mark.cluster
def test_silent_broker_is_noticed(standing: Standing, stack: Stack, report: Report) -> None:
    """By the heartbeat, which the control does without, and by beat's publisher confirms.

    A task ends meanwhile, and its acknowledgement gets nowhere.
    """
    history = History("K6", "three nodes silent until worker and beat notice")
    deaf = {"DJANGO_SETTINGS_MODULE": "tests.support.deaf_settings", **standing.environ}
    control = stack.worker("--queues", "webhooks", concurrency=1, **deaf)
    sale, tokens = sale_and_crowd(stock=BUYERS, count=BUYERS)
    with standing.worker.log.open() as worker, standing.beat.log.open() as beat:
        worker.seek(0, os.SEEK_END)
        beat.seek(0, os.SEEK_END)
        with history.fault():
            history.fire(sale, tokens, url=standing.web.url)
            with silence(standing.cluster):
                history.fault_is_over()  # from here on the time until it is noticed
                told = {"worker": lambda: "Connection to broker lost" in worker.read()}
                told |= {"beat": lambda: "not sent, trying again" in beat.read()}
                while told:
                    for name in [it for it, is_so in told.items() if is_so()]:
                        assert history.recovered() <= NOTICED_WITHIN_S, name
                        del told[name]
                    time.sleep(0.1)
                assert "Connection to broker lost" not in control.text()
        history.settle(sale)
    report(nothing_is_lost(history, sale))
    assert standing.is_alive()


@pytest.mark.cluster
def test_purged_queues_and_junk_hold_no_order_up(standing: Standing, report: Report) -> None:
    history = History("K6", "queues emptied, then 500 messages that are no tasks")

    @contextmanager
    def junk() -> Iterator[None]:
        with broker_of(standing.cluster) as channel:
            for name in QUEUES:
                channel.queue_purge(name)
            producer = Producer(channel)
            for number in range(500):
                body, options = JUNK[number % len(JUNK)]
                producer.publish(body, routing_key="celery", **options)
        yield

    sale = buy_through(standing, history, junk())
    report(nothing_is_lost(history, sale))
    assert standing.is_alive()
    wait_for(lambda: waiting_in(standing.cluster, "celery") == 0, what="an empty queue")
    assert b"dropped junk" in standing.worker.log.read_bytes()


def waiting_in(cluster: RabbitMQCluster, queue: str) -> int:
    with broker_of(cluster) as channel:
        return int(channel.queue_declare(queue, passive=True).message_count)


HEADERS: dict[str, Any] = {"task": FULFIL_SALE, "id": "1"}
JSON = {"content_type": "application/json", "content_encoding": "utf-8"}
JUNK: list[tuple[bytes, dict[str, Any]]] = [
    (b"no JSON at all \xff\xfe", {**JSON, "headers": HEADERS}),
    (b"{}", {**JSON, "headers": HEADERS}),
    (b"[[], {}]", {**JSON, "headers": HEADERS}),
    (b"[[], null, {}]", {**JSON, "headers": HEADERS}),
    (b"[[], {}, {}]", {**JSON}),
    (b"[[], {}, {}]", {**JSON, "headers": {"task": 5, "id": []}}),
    (b"[[], {}, {}]", {**JSON, "headers": {"task": "no.such.task", "id": "1"}}),
    (b"[[], {}, {}]", {**JSON, "headers": HEADERS}),  # no arguments
    (b'[[], {"sale_id": "abc"}, {}]', {**JSON, "headers": HEADERS}),
    (b"\x80\x04N.", {"content_type": "application/x-python-serialize", "headers": HEADERS}),
    (b"", {"content_encoding": "utf-8", "content_type": "text/plain"}),
]


# --- What a broker may refuse ---------------------------------------------------------------------


def close_connections(cluster: RabbitMQCluster) -> None:
    every = "It <- rabbit_networking:connections()"
    cluster.nodes[0].tell(f'[rabbit_networking:close_connection(It, "test") || {every}]')


@contextmanager
def told(cluster: RabbitMQCluster, now: str, afterwards: str) -> Iterator[None]:
    """Tell a node something, and that all connections be closed; take it back at the end."""
    cluster.nodes[0].tell(now)
    close_connections(cluster)
    try:
        yield
    finally:
        cluster.nodes[0].tell(afterwards)


def permissions(pattern: str) -> str:
    rights = ", ".join([f'<<"{pattern}">>'] * 3)
    user = '<<"guest">>, <<"/">>'
    return f'rabbit_auth_backend_internal:set_permissions({user}, {rights}, <<"test">>)'


def password(text: str) -> str:
    user = f'<<"guest">>, <<"{text}">>'
    return f'rabbit_auth_backend_internal:change_password({user}, <<"test">>)'


@contextmanager
def memory_alarm(cluster: RabbitMQCluster) -> Iterator[None]:
    """Let a node find that it uses too much memory: no node reads from a publisher any more."""
    cluster.nodes[1].tell("vm_memory_monitor:set_vm_memory_high_watermark(0.00001)")

    def alarms() -> bool:
        return "memory" in cluster.nodes[1].tell("rabbit_alarm:get_alarms()")

    wait_for(alarms, what="an alarm")
    try:
        yield
    finally:
        cluster.nodes[1].tell("vm_memory_monitor:set_vm_memory_high_watermark(0.9)")
        wait_for(lambda: not alarms(), what="the end of the alarm")


@contextmanager
def full_queues(cluster: RabbitMQCluster) -> Iterator[None]:
    which = '<<"/">>, <<"full">>'
    limits = '[{<<"max-length">>, 1}, {<<"overflow">>, <<"reject-publish">>}]'
    policy = f'{which}, <<"celery|payments">>, {limits}, 0, <<"queues">>, <<"test">>'
    cluster.nodes[0].tell(f"rabbit_policy:set({policy})")
    try:
        yield
    finally:
        cluster.nodes[0].tell(f'rabbit_policy:delete({which}, <<"test">>)')


@contextmanager
def deleted_queue(cluster: RabbitMQCluster) -> Iterator[None]:
    with broker_of(cluster) as channel:
        channel.queue_delete("celery")
    yield


REFUSALS: dict[str, Callable[[RabbitMQCluster], AbstractContextManager[None]]] = {
    "CONNECTION_FORCED": lambda it: told(it, "ok", "ok"),
    "ACCESS_REFUSED for want of a right": lambda it: told(it, permissions(""), permissions(".*")),
    "ACCESS_REFUSED to the password": lambda it: told(it, password("other"), password("guest")),
    "basic.nack: a queue is full": full_queues,
    "connection.blocked: a memory alarm": memory_alarm,
    "basic.cancel: the queue is deleted": deleted_queue,
}


@pytest.mark.cluster
@pytest.mark.parametrize("refusal", REFUSALS)
def test_k8_refusal_of_rabbitmq_ends_no_process(
    standing: Standing, report: Report, refusal: str
) -> None:
    history = History("K8", f"RabbitMQ answers {refusal}")
    sale = buy_through(standing, history, REFUSALS[refusal](standing.cluster))
    report(nothing_is_lost(history, sale, within_s=15.0))
    assert standing.is_alive()
    wait_for(lambda: waiting_in(standing.cluster, "celery") == 0, what="a worker that listens")


@pytest.mark.cluster
def test_publishing_gives_up_in_time_during_a_memory_alarm(
    standing: Standing, publisher: Celery
) -> None:
    assert publish(FULFIL_SALE, sale_id=1)
    with memory_alarm(standing.cluster):
        for _ in range(2):  # over the connection that is there, then over a new one
            publishing.breaker.forget()
            began = running_s()
            assert not publish(FULFIL_SALE, sale_id=1)
            assert running_s() - began <= django_settings.SECKILL_PUBLISH_TIMEOUT_MS / 1000 + 0.5


# --- Pauses ---------------------------------------------------------------------------------------


PAUSES_S, LATE_S = [*range(1, 11), *range(12, 31, 2)], 1.5


@pytest.mark.cluster
def test_pauses_are_kept_by_the_broker(
    standing: Standing, stack: Stack, publisher: Celery, settings: Settings
) -> None:
    """While two workers work at other tasks; no pause occupies one."""
    settings.SECKILL_PUBLISH_TIMEOUT_MS = 10_000
    stack.worker(*NOTES, **standing.environ)
    for number in range(-20, 0):  # the first task of a process takes longer
        assert publish("tests.note", number=number, work_ms=100)
    wait_for(lambda: len(notes_in(standing.notes)) == 20, what="workers that are warm")
    stalls, due = Stalls(), dict[int, tuple[float, float]]()
    for pause_s in PAUSES_S:
        began = time.monotonic()
        assert publish("tests.note", in_s=pause_s, number=pause_s)
        due[pause_s] = began + pause_s, time.monotonic() + pause_s + LATE_S
    others = 0
    while time.monotonic() < max(due.values())[1]:
        assert publish("tests.note", number=1_000 + others, work_ms=100)
        others += 1
        time.sleep(0.1)
    wait_for(lambda: len(notes_in(standing.notes)) == 20 + len(due) + others, what="all tasks")
    ran = notes_in(standing.notes)
    stalls_s = stalls.seconds()
    wrong = {
        pause_s: (first, ran[pause_s], last)
        for pause_s, (first, last) in due.items()
        if not first <= ran[pause_s] <= last + stalls_s
    }
    assert not wrong


def notes_in(path: Path) -> dict[int, float]:
    lines = (line.split() for line in path.read_text().splitlines())
    return {int(number): float(at) for number, at in lines}


@pytest.mark.cluster
def test_control_countdown_occupies_a_worker(
    standing: Standing, stack: Stack, publisher: Celery, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    notes.touch()
    environ = {**standing.environ, "TEST_NOTES": str(notes)}
    stack.worker("--queues", "control", *NOTES, concurrency=1, **environ)
    for number, countdown in ((0, 60), (1, 0)):
        options: dict[str, Any] = {"queue": "control", "countdown": countdown}
        publisher.send_task("tests.note", kwargs={"number": number}, **options)
    time.sleep(3)  # far more than a task takes
    assert not notes_in(notes)


@pytest.mark.cluster
def test_messages_to_quorum_queues_end_and_name_no_time(
    standing: Standing, publisher: Celery
) -> None:
    """A queue that a pause leads to ends what comes there, as it ends all else."""
    usual: Any = task_queue("celery", is_quorum=True)
    arguments = usual.queue_arguments | {"x-message-ttl": 1_000}
    target = Queue("test", routing_key="test", queue_arguments=arguments)
    with broker_of(standing.cluster) as channel:
        target(channel).declare()
        producer = Producer(channel)
        options = publish_options(once=True, pause_s=0.5, queue=target.name)
        queue = options["queue"]
        producer.publish({}, routing_key=queue.name, declare=[queue], headers=options["headers"])
        began = time.monotonic()
        message: Any = None
        while message is None:
            message = channel.basic_get(target.name)
        assert time.monotonic() - began >= 0.9  # RabbitMQ's pause is a second at least
        assert "eta" not in message.headers
        channel.basic_reject(message.delivery_tag, requeue=True)
        wait_for(lambda: waiting_in(standing.cluster, target.name) == 0, what="its end", seconds=10)
        channel.queue_delete(target.name)
    for queue in publisher.conf.task_queues:
        assert queue.queue_arguments["x-message-ttl"] == LIFE_S * 1000


# --- Half-configured ------------------------------------------------------------------------------


@pytest.mark.cluster
def test_check_finds_what_quorum_queues_cannot_use(
    standing: Standing, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_broker(monkeypatch, standing.cluster.url)
    monkeypatch.setattr(app.conf, "task_queues", [task_queue("celery", is_quorum=True)])
    settings.SECKILL_QUORUM_QUEUES = True
    assert found_by(services.check_rabbitmq) == []

    monkeypatch.setattr(app.conf, "task_queues", [task_queue("celery", is_quorum=False)])
    [classic] = found_by(services.check_rabbitmq)
    assert classic.id == "seckill.E037"
    assert "'celery'" in classic.msg
    assert "another virtual host" in str(classic.hint)

    monkeypatch.setattr(services, "OLDEST_RABBITMQ", (99, 0))
    [old] = found_by(services.check_rabbitmq)
    assert old.id == "seckill.E036"

    use_broker(monkeypatch, f"amqp://guest:guest@127.0.0.1:{free_port()}//")
    assert [it.id for it in found_by(services.check_rabbitmq)] == ["seckill.W025"]
