"""The shop's back half in a crowd race: real Celery workers, and beat.

Each leads a process group, so that it can be killed or stopped with all its children.
"""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

from django.conf import settings

from lab.engine.fork_server import end_with_parent, environment
from lab.locks import LEASE_MS
from lab.waiting import wait_until

CELERY = (sys.executable, "-m", "celery", "--app", "seckill_site", "--quiet")
START_S = 60.0
STOP_S = 15.0

_SETTINGS = {
    "SECKILL_LEASE_MS": str(LEASE_MS),
    "SECKILL_LOG_LEVEL": "INFO",
    "PYTHONWARNINGS": "ignore:You're running the worker with superuser privileges",
    "PYTHONUNBUFFERED": "1",
}


class NotStarted(Exception):
    """A part of the back half did not start; the message has the end of its log."""


class BackHalf:
    """Workers and beat; their logs are in ``directory``."""

    def __init__(self, directory: Path, *, workers: int) -> None:
        self._directory = directory
        self._workers = [f"worker-{number + 1}" for number in range(workers)]
        self._parts: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start all, and wait until the workers are ready.

        :raises NotStarted: one of them did not start.
        """
        for name in self._workers:
            self._start_worker(name)
        self._start("beat", "beat")
        for name in self._workers:
            self._wait_until_ready(name)

    def stop(self) -> None:
        """Stop beat, then the workers, which still handle its last messages."""
        for name in sorted(self._parts):
            self._signal(name, signal.SIGCONT)
            self._parts[name].terminate()
        for name, part in self._parts.items():
            with suppress(subprocess.TimeoutExpired):
                part.wait(STOP_S)
            self._signal(name, signal.SIGKILL)
            part.wait()
        self._parts.clear()

    def kill_workers(self) -> None:
        """Kill all processes of all workers, and start the workers again without waiting."""
        for name in self._workers:
            self._signal(name, signal.SIGKILL)
            self._parts[name].wait()
            self._start_worker(name)

    def signal_first_worker(self, signum: signal.Signals) -> None:
        """Freeze the first worker, while another one continues, or let it continue."""
        self._signal(self._workers[0], signum)

    def _wait_until_ready(self, name: str) -> None:
        log, part = self._directory / f"{name}.log", self._parts[name]
        wait_until(
            lambda: b" ready." in log.read_bytes() or part.poll() is not None, within_s=START_S
        )
        if b" ready." not in log.read_bytes():
            raise NotStarted(f"{name}: {log.read_text(errors='replace')[-2000:]}")

    def _start_worker(self, name: str) -> None:
        options = ["--concurrency", "2", "--without-gossip", "--without-mingle"]
        self._start(name, "worker", "--hostname", f"{name}-{os.getpid()}@lab", *options)

    def _start(self, name: str, *command: str) -> None:
        with (self._directory / f"{name}.log").open("wb") as log:
            self._parts[name] = subprocess.Popen(
                [*CELERY, *command, "--loglevel", "INFO"],
                cwd=settings.BASE_DIR,
                env=environment() | _SETTINGS | {"TMPDIR": str(self._directory)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=partial(end_with_parent, signal.SIGTERM),
            )

    def _signal(self, name: str, signum: int) -> None:
        """Send a signal to the whole group."""
        with suppress(ProcessLookupError):
            os.killpg(self._parts[name].pid, signum)
