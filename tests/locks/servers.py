"""Redis servers of a test's own, and another process that uses the locks on its behalf.

Run as a program it is that process: it reads a call in each line, as JSON, and answers in one.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from locks import FairLock, LockBusy, LockNotOwned, RedisLock, wait_queues
from locks.read_write_lock import ReadLock, WriteLock
from tests.support import patience

ROOT = Path(__file__).resolve().parents[2]
HOST = "127.0.0.1"
START_S = 30.0
HIGHEST_PORT = 55_000
"""The bus of a cluster node listens 10,000 above its port."""


# --- Servers -------------------------------------------------------------------------------------


@dataclass
class Server:
    """A running Redis that keeps nothing."""

    process: subprocess.Popen[bytes]
    port: int

    def client(self, *, timeout_s: float = 5) -> Redis:
        """Return a client that sends nothing again by itself."""
        return client_of(f"redis://{HOST}:{self.port}/0", timeout_s=timeout_s)

    def stop(self) -> None:
        """Let it answer nobody until ``go_on``; connections stay open."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it at once, stopped or not; a second time does nothing."""
        self.process.kill()
        self.process.wait(START_S)


def client_of(url: str, *, timeout_s: float = 5) -> Redis:
    return Redis.from_url(
        url,
        decode_responses=True,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
    )


@contextmanager
def servers(count: int, *options: str) -> Iterator[list[Server]]:
    """Start so many servers and wait until they answer; all are gone at the end of the block."""
    with ExitStack() as running:
        started = [running.enter_context(_process(options)) for _ in range(count)]
        for server in started:
            with server.client() as client:
                wait_for(client.ping)
        yield started


@contextmanager
def _process(options: Sequence[str]) -> Iterator[Server]:
    directory, port = tempfile.mkdtemp(prefix="locks-redis-"), _free_port()
    binary = shutil.which("redis-server")
    assert binary, "script/test installs redis-server"
    command = [binary, "--port", str(port), "--bind", HOST, "--dir", directory, "--save", ""]
    process = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL)
    server = Server(process, port)
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(directory, ignore_errors=True)


def _free_port() -> int:
    while True:
        with socket.socket() as listener:
            listener.bind((HOST, 0))
            port: int = listener.getsockname()[1]
        if port < HIGHEST_PORT:
            return port


def wait_for(answer: Callable[[], object]) -> None:
    """Ask a server until it has an answer that is no error."""

    def answered() -> bool:
        with suppress(RedisError):
            return bool(answer())
        return False

    patience.wait_for(answered, what="an answer of the server", seconds=START_S)


# --- Another process -----------------------------------------------------------------------------


class OtherProcess:
    """A process that acquires and releases when told to; one call at a time."""

    def __init__(self, url: str) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "tests.locks.servers", url],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )

    def begin(self, call: str, kind: str, name: str, **options: Any) -> None:
        """Let it call a method of its lock of this kind and name."""
        assert self._popen.stdin
        self._popen.stdin.write(json.dumps([call, kind, name, options]).encode() + b"\n")

    def end(self, *, within_s: float = 30) -> tuple[str, float]:
        """Return how the call ended, and when (in ``time.monotonic``, which processes share)."""
        assert self._popen.stdout
        ready, _, _ = select.select([self._popen.stdout], [], [], within_s)
        assert ready, "the other process did not answer in time"
        line = self._popen.stdout.readline()
        assert line, "the other process has ended"
        how, at = json.loads(line)
        return how, at

    def call(self, call: str, kind: str, name: str, **options: Any) -> tuple[str, float]:
        self.begin(call, kind, name, **options)
        return self.end()

    def look_again(self, *, after_s: float) -> None:
        """Let its waiters look by themselves only so often; by default it is once a second."""
        assert self.call("look_again", "", "", after_s=after_s)[0] == "done"

    def kill(self) -> None:
        self._popen.kill()
        self._popen.wait(START_S)
        for pipe in (self._popen.stdin, self._popen.stdout):
            assert pipe
            pipe.close()

    def __enter__(self) -> Self:
        assert self.end()[0] == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        if self._popen.returncode is None:
            self.kill()


KINDS: dict[str, type[RedisLock]] = {
    "plain": RedisLock,
    "fair": FairLock,
    "read": ReadLock,
    "write": WriteLock,
}


def main(url: str) -> None:
    """Serve calls until nobody sends any more."""
    client, locks = client_of(url), dict[tuple[str, str], RedisLock]()
    _answer("ready")
    for line in sys.stdin:
        call, kind, name, options = json.loads(line)
        if call == "look_again":
            wait_queues.ASK_AGAIN_S, wait_queues.NOTE_S = options["after_s"], 3 * options["after_s"]
            _answer("done")
            continue
        lock = locks.get((kind, name)) or KINDS[kind](client, name)
        locks[kind, name] = lock
        try:
            getattr(lock, call)(**options)
            _answer("done")
        except (LockBusy, LockNotOwned, RedisError) as error:
            _answer(type(error).__name__)


def _answer(how: str) -> None:
    os.write(sys.stdout.fileno(), json.dumps([how, time.monotonic()]).encode() + b"\n")


if __name__ == "__main__":
    main(sys.argv[1])
