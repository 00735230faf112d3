"""RabbitMQ as the broker: orders, pauses, and its death; its queues come back with it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from kombu import Connection

from orders.placing.publishing import FULFIL_SALE, publish
from seckill_site.broker.messages import LIFE_S
from tests.concurrency.sales import crowd_of, make_sale
from tests.faults.history import History
from tests.support.patience import wait_for
from tests.support.stack import Stack, Web, free_port

PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Debian's command on PATH would run it as the system's user, in the system's directories."""

pytestmark = [
    pytest.mark.faults,
    pytest.mark.usefixtures("row_locks"),
    pytest.mark.skipif(not PROGRAM.exists(), reason="apt-get install rabbitmq-server"),
]


class OwnRabbitMQ:
    """A RabbitMQ that a test may kill and start again, with an epmd of its own."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}//"
        self._log = directory / "rabbitmq.log"
        config, plugins = directory / "rabbitmq.conf", directory / "plugins"
        config.write_text(f"listeners.tcp.local = 127.0.0.1:{self.port}\n")
        plugins.write_text("[].\n")
        self._environ = os.environ | {
            "HOME": str(directory),  # of the cookie
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
        }

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._popen = subprocess.Popen(
                [PROGRAM], env=self._environ, stdout=log, stderr=log, start_new_session=True
            )
        wait_for(self._answers, what="RabbitMQ", seconds=120)

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as client:
            client.sendall(b"AMQP\0\0\x09\x01")
            return bool(client.recv(1))
        return False

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@pytest.fixture
def rabbitmq(tmp_path: Path) -> Iterator[OwnRabbitMQ]:
    (tmp_path / "rabbitmq").mkdir()
    with OwnRabbitMQ(tmp_path / "rabbitmq") as server:
        yield server


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
    monkeypatch.setenv("CELERY_BROKER_URL", rabbitmq.url)
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
