"""Redis Sentinel for tests: services of three nodes, three sentinels, and machines that die."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from redis import Redis, RedisError, ResponseError

from tests.faults.conftest import OwnRedis
from tests.support.patience import wait_for

HOST = "127.0.0.1"
WORD = "ours"  # Sentinel rewrites its file without quotes, and could not read other characters
MACHINES = 3


class Sentinel(OwnRedis):
    """A sentinel; ``lines`` of its configuration say what it watches over."""

    def __init__(self, directory: Path, *lines: str) -> None:
        super().__init__(directory)
        self._config = directory / "sentinel.conf"  # the sentinel writes what it learns into it
        own = (f"port {self.port}", f"bind {HOST}", f"dir {directory}")
        self._config.write_text("\n".join([*own, *lines, ""]))

    def start(self) -> None:
        with (self.directory / "sentinel.log").open("ab") as log:
            command = ["redis-server", str(self._config), "--sentinel"]
            self.popen = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ)
        wait_for(self.answers, what="a sentinel")

    def has_lost(self, service: str) -> bool:
        """Return whether it takes the primary for dead."""
        with self.client() as client:
            state: dict[str, object] = client.sentinel_master(service)
        return bool(state["is_sdown"])

    def hurry(self) -> None:
        """Tell the others more often what it knows; versions before 7.0 cannot."""
        with suppress(ResponseError), self.client() as client:
            client.execute_command("SENTINEL", "DEBUG", "publish-period", 100)

    def sees_all_of(self, service: str) -> bool:
        """Return whether it sees the other sentinels, the primary and its replicas, all well."""
        with self.client() as client:
            primary: dict[str, object] = client.sentinel_master(service)
            others = [*client.sentinel_slaves(service), *client.sentinel_sentinels(service)]
        troubles = ("is_sdown", "is_odown", "is_disconnected")
        well = [it for it in (primary, *others) if not any(it[name] for name in troubles)]
        return len(well) == 1 + 2 * (MACHINES - 1) and bool(primary["is_master"])


def monitor(
    service: str, port: int, *, quorum: int = 1, down_after_ms: int = 2_000
) -> tuple[str, ...]:
    """Return the lines of a sentinel's configuration for a service."""
    return (
        f"sentinel monitor {service} {HOST} {port} {quorum}",
        f"sentinel down-after-milliseconds {service} {down_after_ms}",
        f"sentinel failover-timeout {service} 2000",
    )


def service_url(sentinels: Sequence[OwnRedis | int], service: str, db: int = 0) -> str:
    """Return the address of a service; a number is a port."""
    ports = [it if isinstance(it, int) else it.port for it in sentinels]
    hosts = ",".join(f"{HOST}:{it}" for it in ports)
    return f"redis+sentinel://{hosts}/{service}/{db}"


# --- Services on three machines -------------------------------------------------------------------


class Node(OwnRedis):
    """A server of a service, whose password all its servers share."""

    def __init__(self, directory: Path) -> None:
        self._own = ("--requirepass", WORD, "--masterauth", WORD, "--repl-diskless-sync-delay", "0")
        super().__init__(directory, *self._own)

    def url(self, db: int = 0) -> str:
        return f"redis://:{WORD}@{HOST}:{self.port}/{db}"

    def follow(self, primary: Node) -> None:
        """Start it as a replica."""
        self.options = (*self._own, "--replicaof", HOST, str(primary.port))
        self.start()

    def role(self) -> str:
        with suppress(RedisError), self.client() as client:
            return str(client.info("replication")["role"])
        return "dead"


class Service:
    """A primary and two replicas, each on a machine of its own."""

    def __init__(self, name: str, nodes: Sequence[Node]) -> None:
        self.name, self.nodes = name, nodes
        nodes[0].start()
        for node in nodes[1:]:
            node.follow(nodes[0])
        wait_for(self.is_whole, what="two replicas")

    @property
    def primary(self) -> Node:
        [found] = [it for it in self.nodes if it.role() == "master"]
        return found

    def is_whole(self) -> bool:
        """Return whether two replicas are in step with the primary."""
        primaries = [it for it in self.nodes if it.role() == "master"]
        if len(primaries) != 1:
            return False
        with suppress(RedisError), primaries[0].client() as client:
            client.set("test:step", "1", px=1)
            return int(client.wait(MACHINES - 1, 100)) == MACHINES - 1
        return False

    def cut_replicas_off(self) -> None:
        """Cut the replicas off, at both ends, until ``let_replicas_in``."""
        primary = self.primary
        self._set_word_of_replicas("wrong")
        with primary.client() as client:
            client.client_kill_filter(_type="replica")

    def let_replicas_in(self) -> None:
        self._set_word_of_replicas(WORD)

    def _set_word_of_replicas(self, word: str) -> None:
        for node in self.nodes:
            if node.role() == "slave":
                with node.client() as client:
                    client.config_set("masterauth", word)


@dataclass(frozen=True)
class Switch:
    """A sentinel's note that a service has another primary."""

    service: str
    at: float


class Cluster:
    """Three machines, each with a sentinel and a node of each service."""

    def __init__(
        self,
        directory: Path,
        stack: ExitStack,
        *services: str,
        down_after_ms: int = 2_000,
        is_hasty: bool = False,
    ) -> None:
        """Start them; hasty sentinels tell each other what they know more often than in life."""
        self.services: dict[str, Service] = {}
        self.switches: list[Switch] = []
        lines: list[str] = []
        for name in services:
            nodes = [Node(_made(directory / f"{name}{n}")) for n in range(MACHINES)]
            for node in nodes:
                stack.callback(node.kill)
            self.services[name] = Service(name, nodes)
            first = nodes[0].port
            lines += monitor(name, first, quorum=2, down_after_ms=down_after_ms)
            lines.append(f"sentinel auth-pass {name} {WORD}")
        self.sentinels = [
            Sentinel(_made(directory / f"sentinel{n}"), *lines) for n in range(MACHINES)
        ]
        for sentinel in self.sentinels:
            stack.callback(sentinel.kill)
        self._start(*self.sentinels)
        for sentinel in self.sentinels if is_hasty else []:
            sentinel.hurry()
        self.wait_until_whole()

    def url(self, service: str, db: int = 0) -> str:
        return service_url(self.sentinels, service, db).replace("://", f"://:{WORD}@", 1)

    def wait_until_whole(self) -> None:
        """Wait until all servers are there, in step, and known to all sentinels."""

        def is_whole() -> bool:
            return all(it.is_whole() for it in self.services.values()) and all(
                sentinel.sees_all_of(name) for name in self.services for sentinel in self.sentinels
            )

        wait_for(is_whole, what="a whole cluster")

    @contextmanager
    def death(
        self,
        *names: str,
        cut_off_s: float = 0,
        with_sentinel: bool = False,
        comes_back: bool = True,
    ) -> Iterator[float]:
        """Kill the primaries of services, with their replicas cut off before.

        Yield the time of death once there are new primaries. At the end the machine comes back.
        """
        services = [self.services[it] for it in names]
        dead = [it.primary for it in services]
        sentinels = [self.sentinels[services[0].nodes.index(dead[0])]] if with_sentinel else []
        for service in services if cut_off_s else []:
            service.cut_replicas_off()
        time.sleep(cut_off_s)
        at = time.monotonic()
        for server in (*dead, *sentinels):
            server.kill()
        for service in services:
            service.let_replicas_in()
        for name in names:
            self._wait_for_switch(name, since=at)
        yield at
        if comes_back:
            for service, node in zip(services, dead, strict=True):
                node.follow(service.primary)
            self._start(*sentinels)
            self.wait_until_whole()

    def _wait_for_switch(self, name: str, *, since: float) -> None:
        service = self.services[name]

        def has_happened() -> bool:
            roles = [it.role() for it in service.nodes]
            return self.switched_at(name, since) > 0 and roles.count("master") == 1

        wait_for(has_happened, what="a failover")

    def switched_at(self, service: str, since: float) -> float:
        """Return when the first sentinel noted another primary since then; 0 before."""
        found = [it.at for it in self.switches if it.service == service and it.at > since]
        return min(found, default=0)

    def _start(self, *sentinels: Sentinel) -> None:
        for sentinel in sentinels:
            sentinel.start()
            client = Redis.from_url(sentinel.url(), decode_responses=True, socket_timeout=None)
            pubsub = client.pubsub()
            pubsub.subscribe("+switch-master")
            # A client that nobody holds closes the connections of what it has made.
            threading.Thread(target=self._listen, args=[client, pubsub], daemon=True).start()

    def _listen(self, _: Redis, pubsub: object) -> None:
        with suppress(RedisError, OSError, ValueError):  # it has died
            for message in pubsub.listen():  # type: ignore[attr-defined]
                if message["type"] == "message":
                    name = message["data"].partition(" ")[0]
                    self.switches.append(Switch(name, time.monotonic()))


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True)
    return directory
