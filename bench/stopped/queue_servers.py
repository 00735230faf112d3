"""Queues: what is lost, doubled or delayed when a consumer dies.

The first consumer dies before it has done its tenth message, the second one after it has done it,
but before it says so. The third one does what is left.
"""

import os
import signal
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from django.utils.translation import gettext_noop
from kombu import Connection as BrokerConnection

from lab.crowd.back_half import BackHalf
from lab.engine.fork_server import ForkServer, Process, ProcessEnded
from lab.experiments.experiment import Cell, Row
from lab.keys import delete_keys
from lab.steps.ours import OUR_SHOP, buy, is_settled
from lab.waiting import wait_until
from seckill_site.redis.ledger_connection import ledger_connection

MESSAGES, DIES_AT, HANDLING_S = 60, 10, 0.005
IDLE_MS = 2_000
"""Milliseconds after which somebody else may take a message, or a consumer counts as dead."""

POLL_S, QUIET_S, LONGEST_S = 0.1, 8.0, 60.0
"""Seconds of a wait for a message, of silence after which nothing more comes, and for the shop."""

NAME = "lab:{queue-servers}"
QUEUE, IN_HAND, DONE, DEATHS = (f"{NAME}:{it}" for it in ("queue", "in-hand", "done", "deaths"))


# --- The queues -----------------------------------------------------------------------------------


class Queue:
    """A list in Redis, and what all queues have in common: an object is one consumer's."""

    setting = absent = ""

    def __init__(self, consumer: str) -> None:
        self._consumer, self._redis = consumer, ledger_connection()

    def send(self, messages: Iterable[str]) -> None:
        self._redis.rpush(QUEUE, *messages)

    def receive(self) -> str | None:
        """Return the next message, or None if the queue is empty."""
        popped = self._redis.blpop([QUEUE], POLL_S)
        return popped[1] if popped else None

    def acknowledge(self) -> None:
        """Say that the last received message is done."""


class MovedList(Queue):
    """A list that moves each message to another one; a new consumer puts that one's back."""

    def __init__(self, consumer: str) -> None:
        super().__init__(consumer)
        while self._redis.lmove(IN_HAND, QUEUE, "RIGHT", "LEFT"):
            pass

    def receive(self) -> str | None:
        moved: str | None = self._redis.blmove(QUEUE, IN_HAND, POLL_S, "LEFT", "RIGHT")
        self._message = moved or ""
        return moved

    def acknowledge(self) -> None:
        self._redis.lrem(IN_HAND, 1, self._message)


class Stream(Queue):
    """A stream with a group; each consumer has a list of what it has not acknowledged."""

    def send(self, messages: Iterable[str]) -> None:
        self._redis.xgroup_create(QUEUE, "group", id="0", mkstream=True)
        for message in messages:
            self._redis.xadd(QUEUE, {"message": message})

    def receive(self) -> str | None:
        read = self._redis.xreadgroup("group", self._consumer, {QUEUE: ">"}, 1, int(POLL_S * 1e3))
        return self._first(read[0][1] if read else [])

    def _first(self, entries: list[tuple[str, dict[str, str]]]) -> str | None:
        for self._entry, fields in entries:
            return fields["message"]
        return None

    def acknowledge(self) -> None:
        self._redis.xack(QUEUE, "group", self._entry)


class ClaimedStream(Stream):
    """A stream whose consumers first claim what another one has had for too long."""

    def receive(self) -> str | None:
        claimed = self._redis.xautoclaim(QUEUE, "group", self._consumer, IDLE_MS, count=1)
        return self._first(claimed[1]) or super().receive()


class RabbitQueue(Queue):
    """RabbitMQ: the broker sends messages ahead, and takes back what is not acknowledged."""

    setting, absent = "SECKILL_LAB_RABBITMQ", gettext_noop("install rabbitmq-server")
    no_ack = False

    def __init__(self, consumer: str) -> None:
        self._broker = BrokerConnection(os.environ[self.setting])
        self._queue = self._broker.SimpleQueue("lab", no_ack=self.no_ack)

    def send(self, messages: Iterable[str]) -> None:
        with self._broker:
            self._queue.clear()
            for message in messages:
                self._queue.put(message)

    def receive(self) -> str | None:
        try:
            self._message: Any = self._queue.get(timeout=POLL_S)
        except self._queue.Empty:
            return None
        return str(self._message.payload)

    def acknowledge(self) -> None:
        if not self.no_ack:
            self._message.ack()


class RabbitQueueAutoAck(RabbitQueue):
    no_ack = True


class KafkaTopic(Queue):
    """Kafka: a group reads a log, and commits how far it is, here after each message."""

    setting, absent = "SECKILL_LAB_KAFKA", gettext_noop("install maven")
    auto_commit = False

    def __init__(self, consumer: str) -> None:
        self._kafka = import_module("confluent_kafka")
        address = os.environ[self.setting].partition("://")[2]
        self._topic, self._servers = type(self).__name__, {"bootstrap.servers": address}
        self._reader: Any = None

    def send(self, messages: Iterable[str]) -> None:
        producer = self._kafka.Producer(self._servers)
        for message in messages:
            producer.produce(self._topic, message)
        producer.flush()

    def receive(self) -> str | None:
        if not self._reader:
            group = {"group.id": self._topic, "auto.offset.reset": "earliest"}
            times = {"session.timeout.ms": IDLE_MS, "heartbeat.interval.ms": IDLE_MS // 4}
            commit = {"enable.auto.commit": self.auto_commit}
            self._reader = self._kafka.Consumer(self._servers | group | times | commit)
            self._reader.subscribe([self._topic])
        self._message = self._reader.poll(POLL_S)
        has_text = self._message and not self._message.error()
        return self._message.value().decode() if has_text else None

    def acknowledge(self) -> None:
        if not self.auto_commit:
            self._reader.commit(self._message, asynchronous=False)


class KafkaTopicAutoCommit(KafkaTopic):
    auto_commit = True


# --- The consumers --------------------------------------------------------------------------------


def consume(pipe: Connection, *, form: type[Queue], number: int) -> None:
    """Handle messages; consumer 1 dies before its tenth is done, consumer 2 after."""
    queue, redis, count = form(f"consumer-{number}"), ledger_connection(), 0
    while True:
        message = queue.receive()
        if message is None:
            continue
        count += 1
        for step in (1, 2):  # do it, then acknowledge it
            if (number, count) == (step, DIES_AT):
                redis.rpush(DEATHS, f"{message} {time.monotonic()}")
                os.kill(os.getpid(), signal.SIGKILL)
            if step == 1:
                time.sleep(HANDLING_S)
                redis.rpush(DONE, f"{message} {time.monotonic()}")
        queue.acknowledge()


def _watch(consumer: Process) -> None:
    """Wait until a consumer has died, or has had nothing to do for some time."""
    active_at, done = time.monotonic(), 0
    with suppress(ProcessEnded):
        while time.monotonic() < active_at + QUIET_S:
            consumer.receive(timeout_s=POLL_S)
            if done < (done := ledger_connection().llen(DONE)):
                active_at = time.monotonic()


def _noted(key: str) -> list[tuple[str, float]]:
    """Return the messages of a list, and when each was noted."""
    pairs = (it.split() for it in ledger_connection().lrange(key, 0, -1))
    return [(message, float(at)) for message, at in pairs]


# --- The comparison -------------------------------------------------------------------------------


def compare() -> Iterator[Row]:
    """Measure one queue after the other; without its server, its row says what to install."""
    for title, form in FORMS.items():
        if form.setting and form.setting not in os.environ:
            yield title, form.absent, *[None] * 3
            continue
        try:
            with ForkServer() as server:
                form("sender").send(map(str, range(MESSAGES)))
                for number in (1, 2, 3):
                    _watch(server.fork(partial(consume, form=form, number=number), number))
            yield title, *_figures()
        finally:
            delete_keys(f"{NAME}*")
    yield gettext_noop("this shop: Celery and the ledger"), *_ours()


def _figures() -> tuple[Cell, ...]:
    done, deaths = _noted(DONE), _noted(DEATHS)
    different = len(dict(done))
    interrupted, died_at = deaths[0]
    after = [(message, at - died_at) for message, at in done if at > died_at]
    again = next((seconds for message, seconds in after if message == interrupted), NEVER)
    others = min((seconds for message, seconds in after if message != interrupted), default=NEVER)
    return MESSAGES - different, len(done) - different, again, others


def _ours() -> tuple[Cell, ...]:
    """Kill the only worker of the shop, with all its processes, right after an order."""
    with TemporaryDirectory(prefix="seckill-race-") as directory:
        back_half, sale_id = BackHalf(Path(directory), workers=1), OUR_SHOP.open(MESSAGES)
        try:
            back_half.start()
            buyers = OUR_SHOP.buyers(MESSAGES)
            for buyer in buyers:
                buy(sale_id=sale_id, user_id=buyer)
            died_at = time.monotonic()
            back_half.kill_workers()
            wait_until(lambda: buyers[-1] in OUR_SHOP.rows(sale_id), within_s=LONGEST_S)
            again = time.monotonic() - died_at
            wait_until(lambda: is_settled(sale_id), within_s=LONGEST_S)
            rows = OUR_SHOP.rows(sale_id)
        finally:
            back_half.stop()
            OUR_SHOP.clear(sale_id)
    return MESSAGES - len({*rows}), len(rows) - len({*rows}), again, None


NEVER = gettext_noop("never")

FORMS: dict[str, type[Queue]] = {
    gettext_noop("Redis list, LPOP"): Queue,
    gettext_noop("Redis list, LMOVE"): MovedList,
    gettext_noop("Redis stream"): Stream,
    gettext_noop("Redis stream, XAUTOCLAIM"): ClaimedStream,
    gettext_noop("RabbitMQ, automatic ack"): RabbitQueueAutoAck,
    gettext_noop("RabbitMQ, ack when done"): RabbitQueue,
    gettext_noop("Kafka, automatic commit"): KafkaTopicAutoCommit,
    gettext_noop("Kafka, commit when done"): KafkaTopic,
}
