"""What the tests of faults share: a shop, a Redis of a test's own, and the note of an outcome."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest
from django.db import connection
from pytest_django import Settings
from redis import Redis, RedisError

from seckill_site.clocks import ledger as ledger_clock
from tests.faults.history import Outcome
from tests.faults.table import FAULTS, PROPERTY, REPORT
from tests.support.patience import GENEROUS_S, wait_for
from tests.support.proxy import HOST, FaultProxy
from tests.support.stack import Shop, Stack, free_port

# --- The table ------------------------------------------------------------------------------------


@pytest.fixture
def report(record_property: Callable[[str, object], None]) -> Callable[[Outcome], None]:
    """Put an outcome into the table at the end, and into the file that the environment names."""

    def add(outcome: Outcome) -> None:
        assert outcome.fault in FAULTS
        record_property(PROPERTY, outcome.as_dict())
        if path := os.environ.get(REPORT):
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(json.dumps(outcome.as_dict()) + "\n")

    return add


INSIDE = Path(__file__).parent / "inside"
"""What Python imports at the start of a process that has it in its ``PYTHONPATH``."""

# --- The shop -------------------------------------------------------------------------------------


@pytest.fixture
def stack(stack: Stack) -> Iterator[Stack]:
    """The stack of all tests, but ended at once: most of it is broken anyway."""
    yield stack
    for process in stack.processes:
        process.kill()


@contextmanager
def standing_stack(directories: pytest.TempPathFactory) -> Iterator[Stack]:
    """Yield processes that the tests of a module share; all are killed after it."""
    directory = directories.mktemp("standing")
    with Stack(directory, database=connection.settings_dict["NAME"]) as stack:
        yield stack
        for process in stack.processes:
            process.kill()


@pytest.fixture
def shop(stack: Stack, row_locks: None) -> Shop:
    """One web server and one worker with beat, on the test's own database."""
    with stack.together():
        return Shop(stack, stack.web(), stack.worker("--beat"))


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    """The directory whose files say what happens inside a worker (``inside/sitecustomize.py``)."""
    return tmp_path


def with_inside(directory: Path) -> dict[str, Any]:
    """Return the environment of a worker that looks into that directory."""
    return {"PYTHONPATH": str(INSIDE), "FAULT_DIRECTORY": str(directory)}


def with_clock(shift_s: float) -> dict[str, Any]:
    """Return the environment of a process whose wall clock is ahead by so many seconds."""
    return {"PYTHONPATH": str(INSIDE), "SHIFT_CLOCK_S": str(shift_s)}


# --- A Redis of the test's own --------------------------------------------------------------------


class OwnRedis:
    """A Redis server that a test may kill, stop and restart; its data stays, as an AOF."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.options = options
        self.port = free_port()
        self.environ: dict[str, str] = {}
        self.popen: subprocess.Popen[bytes] | None = None

    def url(self, db: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{db}"

    def client(self, db: int = 0) -> Redis:
        return Redis.from_url(self.url(db), decode_responses=True)

    def start(self) -> None:
        """Start it with what it had, and wait until it answers."""
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        command += ["--appendonly", "yes", "--dir", str(self.directory)]
        # What was answered is written then, though not synced: what dies here is the process. With
        # "everysec" a disk that is slow to sync puts the writing off, for up to two seconds.
        command += ["--appendfsync", "no", *self.options]
        with (self.directory / "redis.log").open("ab") as log:
            environ = {**os.environ, **self.environ}
            self.popen = subprocess.Popen(command, stdout=log, stderr=log, env=environ)
        deadline = time.monotonic() + GENEROUS_S
        while not self.answers():
            assert time.monotonic() < deadline, (self.directory / "redis.log").read_text()
            time.sleep(0.01)

    def answers(self) -> bool:
        """Say whether it is up and has read its data."""
        with suppress(RedisError), self.client() as client:
            return bool(client.ping())
        return False

    def kill(self) -> None:
        """End it at once, as a power cut would; what the AOF has is what is left."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """Stop it where it is: connections open, and nobody answers."""
        assert self.popen
        self.popen.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.popen
        self.popen.send_signal(signal.SIGCONT)

    def forget_all(self) -> None:
        """Throw away what it would start with; it is not running."""
        for path in self.directory.glob("appendonlydir/*"):
            path.unlink()

    def _end(self, signum: signal.Signals) -> None:
        if self.popen:
            self.popen.send_signal(signal.SIGCONT)
            self.popen.send_signal(signum)
            self.popen.wait(GENEROUS_S)
            self.popen = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@pytest.fixture
def own_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRedis]:
    """A running Redis with an AOF that only this test uses."""
    with OwnRedis(tmp_path_factory.mktemp("redis")) as server:
        yield server


class MovableClock:
    """A wall clock that a test may change while a server runs (``inside/shift_clock.c``)."""

    def __init__(self, directory: Path) -> None:
        self._shift, library = directory / "shift", directory / "shift_clock.so"
        command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(library)]
        subprocess.run([*command, str(INSIDE / "shift_clock.c")], check=True)
        self.environ = {"LD_PRELOAD": str(library), "SHIFT_CLOCK_FILE": str(self._shift)}
        self.shift(0)

    def shift(self, seconds: float) -> None:
        """Let it be ahead by this, or behind; the server has the file mapped."""
        with self._shift.open("r+b" if self._shift.exists() else "wb") as file:
            file.write(struct.pack("q", round(seconds * 1000)))


class ClockedRedis(OwnRedis):
    """A Redis whose wall clock a test may change while it runs."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        clock = MovableClock(directory)
        self.environ, self.shift_clock = clock.environ, clock.shift


@pytest.fixture
def clocked_ledger(
    tmp_path_factory: pytest.TempPathFactory,
    use_ledger: Callable[[str], None],
) -> Iterator[ClockedRedis]:
    """A Redis of the test's own as its ledger, whose clock the test may change."""
    ledger_clock._clock.forget()
    with ClockedRedis(tmp_path_factory.mktemp("redis")) as server:
        use_ledger(server.url())
        yield server


@pytest.fixture
def use_ledger(settings: Settings) -> Callable[[str], None]:
    """Let this process, too, find the ledger at another address; undone after the test."""

    def use(url: str) -> None:
        caches: dict[str, Any] = {name: dict(cache) for name, cache in settings.CACHES.items()}
        caches["ledger"]["LOCATION"] = url
        settings.CACHES = caches
        settings.REDIS_URL = url

    return use


@pytest.fixture
def own_ledger(own_redis: OwnRedis, use_ledger: Callable[[str], None]) -> OwnRedis:
    """The test's own Redis as its ledger; processes need ``REDIS_URL=own_ledger.url()``."""
    use_ledger(own_redis.url())
    return own_redis


# --- A Redis with a replica -----------------------------------------------------------------------

PATIENT_MS = 450
"""How long a replica may take that does answer: as long as the setting allows."""


@dataclass
class Pair:
    """A Redis and its replica, and the line between them."""

    primary: OwnRedis
    replica: OwnRedis
    line: FaultProxy

    def fail_over(self) -> None:
        """Kill the primary; its replica takes over its address."""
        self.primary.kill()
        with self.replica.client() as client:
            client.replicaof("NO", "ONE")
            client.config_set("port", self.primary.port)
        self.replica.port = self.primary.port


@pytest.fixture
def pair(
    transactional_db: None, own_ledger: OwnRedis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """The test's own ledger, with a replica that is up to date."""
    with replica_of(own_ledger, tmp_path_factory) as (replica, line):
        yield Pair(own_ledger, replica, line)


@contextmanager
def replica_of(
    primary: OwnRedis, directories: pytest.TempPathFactory
) -> Iterator[tuple[OwnRedis, FaultProxy]]:
    with ExitStack() as stack:
        replica = stack.enter_context(OwnRedis(directories.mktemp("replica")))
        line = stack.enter_context(FaultProxy((HOST, primary.port), remember=False))
        source, copy = (stack.enter_context(redis.client()) for redis in (primary, replica))
        source.config_set("repl-diskless-sync-delay", 0)
        copy.replicaof(HOST, line.port)
        wait_for(lambda: is_in_step(source), what="a replica")
        yield replica, line


def is_in_step(primary: Redis) -> bool:
    """Write, and say whether a replica has it."""
    with primary.pipeline(transaction=False) as pipe:
        pipe.set("test:step", "1", px=1)
        pipe.wait(1, PATIENT_MS)
        return bool(pipe.execute()[1] == 1)


@dataclass
class Switch:
    """Two Redis, of which one is the primary, and the address of the primary."""

    old: OwnRedis
    new: OwnRedis
    address: FaultProxy

    def swap_roles(self) -> None:
        """Let the two swap roles without losing a write; the address stays the old one's."""
        with self.old.client() as old:
            wait_for(lambda: old.execute_command("WAIT", 1, 100) == 1, what="a replica in step")
            old.execute_command("FAILOVER")
            wait_for(lambda: old.info("replication")["role"] == "slave", what="swapped roles")

    def move_address(self) -> None:
        self.address.redirect((HOST, self.new.port))


@pytest.fixture
def switch(
    transactional_db: None,
    own_redis: OwnRedis,
    tmp_path_factory: pytest.TempPathFactory,
    use_ledger: Callable[[str], None],
) -> Iterator[Switch]:
    with (
        OwnRedis(tmp_path_factory.mktemp("new")) as new,
        FaultProxy((HOST, own_redis.port), remember=False) as address,
    ):
        with own_redis.client() as old, new.client() as copy:
            old.config_set("repl-diskless-sync-delay", 0)
            copy.replicaof(HOST, own_redis.port)
        use_ledger(address.url())
        yield Switch(own_redis, new, address)
