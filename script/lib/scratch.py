"""Run one command beside a private MariaDB and Redis that live in a scratch directory.

``script/test`` becomes this program. The command finds the servers in the settings of its
environment and they end with it; ``SECKILL_SCRATCH`` names the directory, with the servers' logs.
Each worker of pytest gets servers of its own (``tests/support/own_servers.py``). With
``--no-servers`` the database is SQLite in memory, and Redis is a closed port.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from servers import CannotRun, MariaDB, Redis, part, tail, wait_for

ROOT = Path(__file__).resolve().parents[2]
ASKED_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FOREGROUND = ("--may-end", "--stop", "SIGINT", "--grace", "60")  # seconds for pytest's teardown
MEMORY_MB = 512  # for the buffer pools of all MariaDBs together
ENOUGH_MB = 256
CLOSED_PORT = 1


def main() -> int:
    for signum in ASKED_TO_END:
        signal.signal(signum, end)
    arguments = parse_arguments()
    scratch = Path(tempfile.mkdtemp(prefix="seckill-test-"))
    memory_mb = min(ENOUGH_MB, MEMORY_MB // arguments.places)
    directories = [scratch / str(number) for number in range(arguments.places)]
    places: list[Place] = []
    try:
        if arguments.no_servers:
            for directory in directories:
                (directory / "static").mkdir(parents=True)
            settings = [settings_without_servers(directory) for directory in directories]
            return run_pytest(arguments.command, settings)
        places += [Place(directory, memory_mb) for directory in directories]
        return run(arguments.command, places)
    except CannotRun as reason:
        sys.stderr.write(f"test: {reason}\n")
        for place in places:
            show_log(place.log)
        return 1
    finally:
        for place in places:
            place.mariadb.clean_up()
        shutil.rmtree(scratch, ignore_errors=True)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--places", type=int, default=1, help="workers with servers of their own")
    parser.add_argument("--no-servers", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args()


def end(signum: int, _: FrameType | None) -> None:
    """End in silence, because pytest has had the last word, and undisturbed by the next signal."""
    for other in ASKED_TO_END:
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + signum)


def run(command: list[str], places: Sequence[Place]) -> int:
    with ExitStack() as running:
        for place in places:
            running.enter_context(place.started())
        for place in places:
            place.wait_for_servers()
        settings = [settings_of(it.redis, it.mariadb, it.directory) for it in places]
        return run_pytest(command, settings)


def run_pytest(command: list[str], settings: Sequence[dict[str, str]]) -> int:
    environ = {**os.environ, **settings[0], "SECKILL_PLACES": json.dumps(settings)}
    with part("pytest", command, *FOREGROUND, cwd=ROOT, env=environ) as pytest:
        return pytest.wait()


class Place:
    """A directory with a MariaDB and a Redis."""

    def __init__(self, directory: Path, memory_mb: int) -> None:
        self.directory = directory
        self.log = directory / "servers.log"
        self.redis = Redis(directory / "redis")
        self.mariadb = MariaDB(
            directory / "mysql",
            options=[
                "--innodb-flush-log-at-trx-commit=2",  # only a crash of the machine loses work
                f"--innodb-buffer-pool-size={memory_mb}M",
            ],
        )
        self._parts: list[subprocess.Popen[bytes]] = []

    @contextmanager
    def started(self) -> Iterator[None]:
        """Start both servers, and end them after the block."""
        (self.directory / "static").mkdir(parents=True)  # WhiteNoise warns where it finds none
        command = self.redis.prepare()
        with (
            self.log.open("wb") as log,
            part("redis", command, cwd=self.redis.directory, stdout=log, stderr=log) as redis,
            part("mariadb", self.mariadb.prepare(), stdout=log, stderr=log) as mariadb,
        ):
            self._parts = [redis, mariadb]
            yield

    def wait_for_servers(self) -> None:
        """Wait until both answer.

        :raises CannotRun: one does not.
        """
        urls = self.redis.url(0), self.mariadb.url()
        wait_for(*urls, while_true=lambda: all(it.poll() is None for it in self._parts))


def settings_of(redis: Redis, mariadb: MariaDB, scratch: Path) -> dict[str, str]:
    return {
        **common_settings(scratch),
        "DATABASE_URL": mariadb.url(),
        "REDIS_URL": redis.url(0),
        "CACHE_URL": redis.url(1),
        "CELERY_BROKER_URL": redis.url(2),
        "SECKILL_TEST_ADMIN_DATABASE_URL": mariadb.admin_url(),
    }


def settings_without_servers(scratch: Path) -> dict[str, str]:
    redis = f"redis://127.0.0.1:{CLOSED_PORT}"
    return {
        **common_settings(scratch),
        "DATABASE_URL": "sqlite://:memory:",
        "REDIS_URL": f"{redis}/0",
        "CACHE_URL": f"{redis}/1",
        "CELERY_BROKER_URL": f"{redis}/2",
    }


def common_settings(scratch: Path) -> dict[str, str]:
    return {
        "SECRET_KEY": "a key for tests alone",
        "DEBUG": "false",
        "ALLOWED_HOSTS": "localhost,127.0.0.1",
        "SECKILL_LAB": "true",  # off elsewhere unless asked for
        "STATIC_ROOT": str(scratch / "static"),
        "SECKILL_SCRATCH": str(scratch),
    }


def show_log(log: Path) -> None:
    """Show the last lines of the servers, which may say why there was no run."""
    sys.stderr.write(f"{tail(log)}\n")


if __name__ == "__main__":
    sys.exit(main())
