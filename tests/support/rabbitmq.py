"""RabbitMQ for tests: one node, or three of one cluster, which a test may kill, stop and tell."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.support.patience import wait_for
from tests.support.stack import free_port

PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
"""Debian's command on PATH would run it as the system's user, in the system's directories."""

COOKIE = "tests"


class OwnRabbitMQ:
    """A node, and the epmd of its host, which is its own unless others of a cluster share it."""

    def __init__(self, directory: Path, *, epmd_port: int = 0) -> None:
        directory.mkdir(exist_ok=True)
        self.port, self.epmd_port = free_port(), epmd_port or free_port()
        self.name = f"test{self.port}@localhost"
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}//"
        self._log, self._config = directory / "rabbitmq.log", directory / "rabbitmq.conf"
        self._owns_epmd = not epmd_port
        self._epmd: subprocess.Popen[bytes] | None = None
        plugins, cookie = directory / "plugins", directory / ".erlang.cookie"
        plugins.write_text("[].\n")
        cookie.write_text(COOKIE)
        cookie.chmod(0o400)
        self.configure()
        self._environ = os.environ | {
            "HOME": str(directory),  # of the cookie
            "ERL_EPMD_PORT": str(self.epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONFIG_FILE": str(self._config),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
            # One core each: three nodes share a small machine with a shop.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none +sbwtdcpu none",
        }

    def configure(self, *lines: str) -> None:
        """Write its configuration; it reads it when it starts."""
        own = f"listeners.tcp.local = 127.0.0.1:{self.port}"
        self._config.write_text("\n".join([own, *lines, ""]))

    def launch(self) -> None:
        """Start it, and do not wait."""
        if self._owns_epmd and not self._epmd:
            self._epmd = start_epmd(self.epmd_port)
        with self._log.open("ab") as log:
            self._popen = subprocess.Popen(
                [PROGRAM], env=self._environ, stdout=log, stderr=log, start_new_session=True
            )

    def start(self) -> None:
        self.launch()
        self.wait()

    def wait(self) -> None:
        """Wait until it takes connections."""
        wait_for(self._answers, what=f"RabbitMQ ({self._log})", seconds=120)

    def _answers(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as client:
            client.sendall(b"AMQP\0\0\x09\x01")
            return bool(client.recv(1))
        return False

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._popen.wait()

    def pause(self) -> None:
        """Stop it where it is: connections stay open, and nobody answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, signum: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signum)

    def tell(self, expression: str) -> str:
        """Have it evaluate an expression of Erlang, as ``rabbitmqctl eval`` does, but at once."""
        return subprocess.run(
            ["erl_call", "-c", COOKIE, "-sname", self.name, "-e"],
            env=self._environ,
            input=f"{expression}.\n",
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self._epmd:
            self._epmd.kill()
            self._epmd.wait()


class RabbitMQCluster:
    """Three nodes on this host, which find each other by their configuration."""

    def __init__(self, directory: Path) -> None:
        self.epmd_port = free_port()
        self.nodes = [
            OwnRabbitMQ(directory / f"node-{number}", epmd_port=self.epmd_port)
            for number in range(3)
        ]
        self.url = ";".join(node.url for node in self.nodes)
        peers = [
            f"cluster_formation.classic_config.nodes.{number} = {node.name}"
            for number, node in enumerate(self.nodes, 1)
        ]
        for node in self.nodes:
            node.configure("cluster_partition_handling = pause_minority", *peers)

    def start(self, nodes: Sequence[OwnRabbitMQ] = ()) -> None:
        """Start nodes at the same time, and wait until all three are one cluster.

        One that was killed with others waits for them.
        """
        for node in nodes or self.nodes:
            node.launch()
        for node in nodes or self.nodes:
            node.wait()
        for node in self.nodes:
            wait_for(lambda node=node: self._is_whole(node), what="a cluster of three nodes")  # type: ignore[misc]

    def _is_whole(self, node: OwnRabbitMQ) -> bool:
        with suppress(subprocess.CalledProcessError):  # it is still starting
            return "3" in node.tell("length(rabbit_mnesia:cluster_nodes(running))")
        return False

    def pause(self) -> None:
        for node in self.nodes:
            node.pause()

    def resume(self) -> None:
        for node in self.nodes:
            node.resume()

    def __enter__(self) -> Self:
        self._epmd = start_epmd(self.epmd_port)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes:
            node.kill()
        self._epmd.kill()
        self._epmd.wait()


def start_epmd(port: int) -> subprocess.Popen[bytes]:
    """Start the name server of nodes in the foreground, so that it ends with the test."""
    epmd = subprocess.Popen(["epmd", "-port", str(port), "-address", "127.0.0.1"])

    def listens() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    wait_for(listens, what="epmd")  # or the first node would start one that outlives it
    return epmd
