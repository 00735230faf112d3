"""The shop as real processes, on the test's own database: web servers, workers, beat.

Each process leads a session of its own, so that it can be killed, paused and resumed with all its
children, and so that whatever it leaves behind is found. Its log is a file in the test's directory.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from tests.support.patience import MOMENT_S, eventually, running_s, wait_for

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 90.0
STOP_SECONDS = 40.0
ASGI, WSGI = ("--interface", "asgi"), ("--interface", "wsgi", "--blocking-threads")


class NotReadyError(AssertionError):
    """A process ended, or did not become ready in time; carries the end of its log."""


class LeftoverError(AssertionError):
    """A process of the stack was still there after everything had been stopped."""


def processes_of(scratch: Path) -> list[int]:
    """Return the processes that have this scratch directory in their environment."""
    wanted = f"TMPDIR={scratch}\0".encode()

    def has_it(path: Path) -> bool:
        try:
            return wanted in path.read_bytes()
        except OSError:  # it has ended meanwhile, or is another user's
            return False

    paths = Path("/proc").glob("[0-9]*/environ")
    return [int(path.parent.name) for path in paths if has_it(path)]


@dataclass
class Process:
    """A running part of the shop and all its children."""

    name: str
    popen: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.popen.pid

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def tail(self, lines: int = 40) -> str:
        return "\n".join(self.text().splitlines()[-lines:])

    def wait_until(
        self, is_ready: Callable[[], bool], *, what: str, seconds: float = START_SECONDS
    ) -> None:
        """Wait until something holds while the process lives.

        :raises NotReadyError: it ended first, or time ran out.
        """
        deadline = running_s() + seconds
        while not is_ready():
            if self.popen.poll() is not None:
                raise NotReadyError(f"{self.name} ended before {what}:\n{self.tail()}")
            if running_s() > deadline:
                raise NotReadyError(f"{self.name}: no {what} in {seconds:g} s:\n{self.tail()}")
            time.sleep(0.02)

    def wait_for_log(self, text: str, *, seconds: float = START_SECONDS) -> None:
        """Wait until the log contains a text."""
        self.wait_until(
            lambda: text in self.text(), what=f"log line with {text!r}", seconds=seconds
        )

    def wait_for_stopped_child(self) -> int:
        """Wait until a child has stopped itself, and return its process id."""
        stopped: list[int] = []

        def one_is() -> bool:
            stopped[:] = [pid for pid in self.children() if state_of(pid) == "T"]
            return bool(stopped)

        self.wait_until(one_is, what="stopped child")
        return stopped[0]

    def kill(self) -> None:
        """End it and its children at once, as a power cut would (SIGKILL)."""
        self._signal_all(signal.SIGKILL)
        self.popen.wait()
        deadline = time.monotonic() + STOP_SECONDS
        while self.children() and time.monotonic() < deadline:
            self._signal_all(signal.SIGKILL)  # one that was forked meanwhile
            time.sleep(0.005)

    def pause(self) -> None:
        """Stop it and its children where they are (SIGSTOP)."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it and its children go on (SIGCONT)."""
        self._signal_all(signal.SIGCONT)

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        if self.popen.poll() is None:
            self.resume()
            self.popen.terminate()

    def stop(self) -> int:
        """Ask it to end, kill what does not, and return its exit status."""
        self.terminate()
        return self.wait_for_end()

    def wait_for_end(self) -> int:
        """Kill what does not end by itself, and return its exit status."""
        try:
            return self.popen.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise LeftoverError(f"{self.name} ignored SIGTERM:\n{self.tail()}") from None

    def children(self) -> list[int]:
        """Return the ids of the other processes of its session."""
        return [pid for pid in _session(self.pid) if pid != self.pid]

    def _signal_all(self, signum: signal.Signals) -> None:
        signal_each(_session(self.pid), signum)


@dataclass
class Web(Process):
    """A web server; ``url`` has no slash at its end."""

    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def is_alive(self) -> bool:
        """Say whether the server answers ``/healthz`` with 200."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def restart(self) -> None:
        """Have a granian replace its workers, at least two, one after the other."""
        before = set(self.children())
        self.popen.send_signal(signal.SIGHUP)
        wait_for(lambda: len(set(self.children()) - before) >= 2, what="new workers")
        wait_for(lambda: before.isdisjoint(self.children()), what="the end of the old workers")


class Stack:
    """Starts parts of the shop and ends them all with its block.

    :param database: the name of the database that pytest-django made for the tests
    :param environ: settings of all parts
    """

    root = ROOT
    """The checkout whose code is started."""

    def __init__(self, directory: Path, *, database: str, **environ: str) -> None:
        self.directory = directory
        self.processes: list[Process] = []
        database_url = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{database}")
        self.database_url = database_url.geturl()
        self._starting: list[Callable[[], None]] | None = None
        self._environ = {
            **os.environ,
            "DATABASE_URL": self.database_url,
            "PYTHONUNBUFFERED": "1",
            **environ,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for process in self.processes:
                process.terminate()
            for process in self.processes:
                process.wait_for_end()
        finally:
            self._kill_leftovers()

    @contextmanager
    def together(self, *, wait: bool = True) -> Iterator[None]:
        """Let all that the block starts start at the same time; at its end they are ready.

        Without ``wait`` they are not: what the test runs waits for them.
        """
        waits: list[Callable[[], None]] = []
        self._starting = waits
        try:
            yield
        finally:
            self._starting = None
        for is_ready in waits if wait else ():
            is_ready()

    def web(
        self,
        *,
        workers: int = 1,
        threads: int = 4,
        server: str = "granian",
        port: int = 0,
        **environ: str,
    ) -> Web:
        """Start a web server and wait until it answers; ``environ`` adds to its settings.

        ``port`` is that of one that was stopped, for its pages to find; by default a free one.

        ``granian`` and ``uvicorn`` serve the front door, with these threads for Django behind it,
        ``wsgi`` is a granian with Django alone.
        """
        port = port or free_port()
        site = {"SECKILL_SITE_URL": f"http://127.0.0.1:{port}"}
        environ = {"SECKILL_DJANGO_THREADS": str(threads), **site, **environ}
        at = ["--host", "127.0.0.1", "--port", str(port), "--workers", str(workers)]
        granian = ["granian", "--http", "1", "--no-ws", *at, "--workers-kill-timeout", "5"]
        granian += ["--backlog", "4096", "--backpressure", "4096"]
        command = {
            "granian": [*granian, *ASGI, "--loop", "uvloop", "seckill_site.asgi:application"],
            "wsgi": [*granian, *WSGI, str(threads), "seckill_site.wsgi:application"],
            "uvicorn": ["uvicorn", *at, "seckill_site.asgi:application"],
        }[server]
        name, popen, log = self._start("web", command, environ)
        web = Web(name, popen, log, port)
        self.processes.append(web)
        self._wait(lambda: web.wait_until(web.is_alive, what="answer"))
        return web

    def worker(self, *options: str, concurrency: int = 2, **environ: str) -> Process:
        """Start a Celery worker, with further options, and wait until it consumes.

        With ``--beat`` it has beat in it.
        """
        command = ["worker", "--concurrency", str(concurrency), "--loglevel", "INFO", *options]
        command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        process = Process(*self._start("worker", self._celery("seckill_site", command), environ))
        self.processes.append(process)
        self._wait(lambda: process.wait_for_log(" ready."))
        return process

    def beat(self, **environ: str) -> Process:
        """Start Celery's beat and wait until it is up."""
        command = self._celery("seckill_site.celery:beat", ["beat", "--loglevel", "INFO"])
        process = Process(*self._start("beat", command, environ))
        self.processes.append(process)
        self._wait(lambda: process.wait_for_log("beat sends"))
        return process

    def metrics(self, directory: Path, *options: str, **environ: str) -> Web:
        """Start ``manage.py metrics`` and wait until it listens; its ``url`` has no slash."""
        port = free_port()
        command = ["manage", "metrics", "--port", str(port), "--directory", str(directory)]
        name, popen, log = self._start("metrics", [*command, *options], environ)
        metrics = Web(name, popen, log, port)
        self.processes.append(metrics)
        self._wait(lambda: metrics.wait_for_log("metrics at "))
        return metrics

    def _wait(self, wait: Callable[[], None]) -> None:
        """Wait now, or where several start together at the end of their block."""
        if self._starting is None:
            wait()
        else:
            self._starting.append(wait)

    @staticmethod
    def _celery(app: str, command: list[str]) -> list[str]:
        return ["celery", "--app", app, "--quiet", *command]

    def _start(
        self, kind: str, command: list[str], environ: dict[str, str]
    ) -> tuple[str, subprocess.Popen[bytes], Path]:
        name = f"{kind}-{1 + sum(process.name.startswith(kind) for process in self.processes)}"
        log = self.directory / f"{name}.log"
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [sys.executable, "-m", *command],
                cwd=self.root,
                env={**self._environ, **environ},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return name, popen, log

    def _kill_leftovers(self) -> None:
        leftovers = []
        for process in self.processes:
            # Whoever it has told to end may take a moment longer than itself.
            eventually(lambda pid=process.pid: not list(_session(pid)), within_s=MOMENT_S)  # type: ignore[misc]
            for pid in _session(process.pid):
                leftovers.append(f"{process.name}: {_command_line(pid)}")
                signal_each([pid], signal.SIGKILL)
            process.popen.wait()
        if leftovers:
            raise LeftoverError("left behind after the stop: " + "; ".join(leftovers))


def signal_each(pids: Iterable[int], signum: signal.Signals) -> None:
    """Send a signal to processes, some of which may have ended since they were listed."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signum)


PATIENT: dict[str, Any] = {"DJANGO_SETTINGS_MODULE": "tests.support.patient_settings"}
"""The environment of processes that wait for servers while the machine stands still."""


def beat_every(**seconds: float) -> dict[str, Any]:
    """Return the environment of a beat that sends these tasks so often, for a test that waits."""
    settings = "tests.support.beat_settings"
    return {"DJANGO_SETTINGS_MODULE": settings, "TEST_BEAT_S": json.dumps(seconds)}


@dataclass
class Shop:
    """A running shop; ``stack`` starts more."""

    stack: Stack
    web: Web
    worker: Process

    @property
    def url(self) -> str:
        return self.web.url


def free_port() -> int:
    """Return a loopback port on which nobody listens now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def state_of(pid: int) -> str:
    """Return the letter of a process's state; nothing for one that has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _session(leader: int) -> Iterator[int]:
    """The living processes of a session."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session, *_ = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(session) == leader and state != "Z":
            yield int(stat.parent.name)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    except OSError:
        return f"process {pid}"
