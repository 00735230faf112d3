"""The back half of ours in a race: a real Celery worker, or several, and beat.

Each leads a group of processes, so that all of it can be killed or stopped at once, and ends with
the race, however that ends.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from django.db import connection

from lab.locks import LEASE_MS

ROOT = Path(__file__).resolve().parents[2]
CELERY = (sys.executable, "-m", "celery", "--app", "seckill_site", "--quiet")
START_S = 60.0
STOP_S = 15.0
GLANCE_S = 0.05
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None)


class NotStarted(Exception):
    """A part of the back half did not come up; carries the end of its log."""


class BackHalf:
    """Workers and beat, up and ready within the block; their logs are in ``directory``."""

    def __init__(self, directory: Path, *, workers: int) -> None:
        self._directory = directory
        self._names = [f"worker-{number + 1}" for number in range(workers)]
        self._parts: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self._start_all()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.stop()

    def kill_workers(self) -> None:
        """Kill every process of every worker at once, and start them again without waiting."""
        for name in self._names:
            self._signal(name, signal.SIGKILL)
            self._parts[name].wait()
        for name in self._names:
            self._start_worker(name)

    def stop_first_worker(self) -> None:
        """Let the first worker stand still; another one goes on."""
        self._signal(self._names[0], signal.SIGSTOP)

    def continue_first_worker(self) -> None:
        self._signal(self._names[0], signal.SIGCONT)

    def _start_all(self) -> None:
        for name in self._names:
            self._start_worker(name)
        self._start("beat", "beat", "--schedule", str(self._directory / "schedule"))
        for name in self._names:
            self._wait_until(name, lambda log: b" ready." in log)

    def _start_worker(self, name: str) -> None:
        options = ["--concurrency", "2", "--without-gossip", "--without-mingle"]
        self._start(name, "worker", "--hostname", f"{name}-{os.getpid()}@lab", *options)

    def _start(self, name: str, *command: str) -> None:
        with (self._directory / f"{name}.log").open("wb") as log:
            self._parts[name] = subprocess.Popen(
                [*CELERY, *command, "--loglevel", "INFO"],
                cwd=ROOT,
                env={**os.environ, **_settings(), "TMPDIR": str(self._directory)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )

    def _wait_until(self, name: str, is_up: Callable[[bytes], bool]) -> None:
        path = self._directory / f"{name}.log"
        until = time.monotonic() + START_S
        while not is_up(path.read_bytes()):
            if self._parts[name].poll() is not None or time.monotonic() > until:
                raise NotStarted(f"{name}: {path.read_text(errors='replace')[-2000:]}")
            time.sleep(GLANCE_S)

    def stop(self) -> None:
        """End beat first, whose last messages the workers still take; then these."""
        for name in sorted(self._parts):
            self._signal(name, signal.SIGCONT)
            self._parts[name].terminate()
        for name, part in self._parts.items():
            with suppress(subprocess.TimeoutExpired):
                part.wait(STOP_S)
            self._signal(name, signal.SIGKILL)
            part.wait()
        self._parts.clear()

    def _signal(self, name: str, signum: int) -> None:
        """Send a signal to the whole group."""
        with suppress(ProcessLookupError):
            os.killpg(self._parts[name].pid, signum)


def _end_with_parent() -> None:
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _settings() -> dict[str, str]:
    """Return the settings of this process, on its database, with the leases of the lab."""
    name = str(connection.settings_dict["NAME"])
    url = urlsplit(os.environ["DATABASE_URL"])
    return {
        "DATABASE_URL": url._replace(path=f"/{name}").geturl(),
        "SECKILL_LEASE_MS": str(LEASE_MS),
        "SECKILL_LOG_LEVEL": "INFO",
        "PYTHONWARNINGS": "ignore:You're running the worker with superuser privileges",
        "PYTHONUNBUFFERED": "1",
    }
