"""K8: any refusal of the broker, while orders are published or consumed; nobody is refused."""

from __future__ import annotations

import re
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from kombu import Connection
from redis.exceptions import ResponseError

from tests.concurrency.sales import sale_and_crowd
from tests.faults.conftest import OwnRedis, standing_stack
from tests.faults.history import History, Report
from tests.support.patience import wait_for
from tests.support.stack import Process, Web

pytestmark = [pytest.mark.slow, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

BUYERS = 20
FAULT_S = 1.5
RECOVERY_SECONDS = 15.0


@dataclass
class Standing:
    """Processes that stand, and their broker."""

    broker: OwnRedis
    web: Web
    worker: Process
    beat: Process


@pytest.fixture(scope="module")
def processes(
    django_db_setup: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Standing]:
    """A web server, a worker and beat that all tests here share: none may end."""
    with (
        OwnRedis(tmp_path_factory.mktemp("broker")) as broker,
        standing_stack(tmp_path_factory) as stack,
    ):
        environ: dict[str, Any] = {"CELERY_BROKER_URL": broker.url()}
        with stack.together():
            web, beat = stack.web(**environ), stack.beat(**environ)
            worker = stack.worker(**environ)
        yield Standing(broker, web, worker, beat)


@pytest.fixture
def standing(transactional_db: None, processes: Standing) -> Standing:
    return processes


# --- The errors -----------------------------------------------------------------------------------


@contextmanager
def configured(broker: OwnRedis, name: str, value: str, *, before: str) -> Iterator[None]:
    with broker.client() as client:
        client.config_set(name, value)
        try:
            yield
        finally:
            client.config_set(name, before)


@contextmanager
def read_only(broker: OwnRedis) -> Iterator[None]:
    """Make it a replica of nobody, as a switchover leaves the old primary."""
    with broker.client() as client:
        client.replicaof("127.0.0.1", "1")
        try:
            yield
        finally:
            client.replicaof("NO", "ONE")


@contextmanager
def failed_snapshot(broker: OwnRedis) -> Iterator[None]:
    """Let a snapshot fail: a directory is in its place."""
    blocked = broker.directory / "dump.rdb"
    with broker.client() as client, configured(broker, "save", "3600 1000000", before=""):
        blocked.mkdir()
        client.bgsave()
        wait_for(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
        try:
            yield
        finally:
            blocked.rmdir()


@contextmanager
def password_required(broker: OwnRedis) -> Iterator[None]:
    # One connection, which stays authenticated; the others are closed.
    with broker.client() as pool, pool.client() as client:
        client.config_set("requirepass", "another")
        client.client_kill_filter(_type="normal", skipme=True)
        try:
            yield
        finally:
            client.config_set("requirepass", "")


@contextmanager
def rights_revoked(broker: OwnRedis) -> Iterator[None]:
    with broker.client() as client:
        client.execute_command("ACL", "SETUSER", "default", "-@write")
        try:
            yield
        finally:
            client.execute_command("ACL", "SETUSER", "default", "+@all")


@contextmanager
def answering(broker: OwnRedis, error: str) -> Iterator[None]:
    """Put another server in its place, which answers any command with this error."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            while data := self.request.recv(65_536):
                commands = len(re.findall(rb"(?:^|\r\n)\*\d+\r\n", data))
                self.request.sendall(f"-{error}\r\n".encode() * commands)

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # a client went away

    broker.stop()
    with Server(("127.0.0.1", broker.port), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
    broker.start()


@contextmanager
def wrong_type(broker: OwnRedis, key: str) -> Iterator[None]:
    """Overwrite a key, as a mistyped command does; nobody repairs it."""
    with broker.client() as client:
        client.set(key, "by hand")
    yield


ERRORS: dict[str, Callable[[OwnRedis], AbstractContextManager[None]]] = {
    "READONLY": read_only,
    "NOREPLICAS": lambda broker: configured(broker, "min-replicas-to-write", "1", before="0"),
    "OOM": lambda broker: configured(broker, "maxmemory", "1", before="0"),
    "MISCONF": failed_snapshot,
    "NOAUTH": password_required,
    "NOPERM": rights_revoked,
    "LOADING": lambda broker: answering(broker, "LOADING Redis is loading the dataset in memory"),
    "BUSY": lambda broker: answering(broker, "BUSY Redis is busy running a script"),
    "ERR": lambda broker: answering(broker, "ERR unknown"),
    **{
        f"WRONGTYPE of {key}": lambda broker, key=key: wrong_type(broker, key)  # type: ignore[misc]
        for key in ("celery", "unacked", "unacked_index", "unacked_mutex", "_kombu.binding.celery")
    },
}
SAMPLE = ("READONLY", "OOM", "WRONGTYPE of celery")


def errors() -> list[object]:
    """Return the names of the errors; all but a sample take part in a run of the faults only."""
    return [
        name if name in SAMPLE else pytest.param(name, marks=pytest.mark.faults) for name in ERRORS
    ]


@pytest.mark.parametrize("side", ["publish", "consume"])
@pytest.mark.parametrize("error", errors())
def test_k8_refusal_of_the_broker_ends_no_process(
    standing: Standing, report: Report, error: str, side: str
) -> None:
    history = History("K8", f"broker answers {error} at {side}")
    sale, tokens = sale_and_crowd(stock=BUYERS, count=BUYERS)
    if side == "consume":
        standing.worker.pause()
        history.fire(sale, tokens, url=standing.web.url)
    with history.fault(), ERRORS[error](standing.broker):
        standing.worker.resume()
        if side == "publish":
            history.fire(sale, tokens, url=standing.web.url)
        time.sleep(FAULT_S)  # the length of the fault
    history.settle(sale)

    outcome = history.check(sale, recovery_seconds=RECOVERY_SECONDS)
    assert outcome.orders == outcome.accepted == BUYERS
    assert standing.worker.popen.poll() is None
    assert standing.beat.popen.poll() is None
    report(outcome)
    with standing.broker.client() as client:  # the worker still listens
        wait_for(lambda: not client.exists("celery"), what="an empty queue")


def test_control_kombus_transport_takes_a_refusal_for_a_defect(own_redis: OwnRedis) -> None:
    """With Kombu's transport a refusal is not a lost connection, and ends the consumer."""
    kombus = "kombu.transport.redis:Transport"
    with (
        read_only(own_redis),
        Connection(own_redis.url(), transport=kombus) as refused,
        pytest.raises(ResponseError, match="read only") as caught,
    ):
        refused.SimpleQueue("tests").put("text")
    assert not isinstance(caught.value, refused.connection_errors)
