"""Run one command beside a private MariaDB and Redis that live in a scratch directory.

``script/test`` becomes this program. The command finds the servers in the settings of its
environment and they end with it; ``SECKILL_SCRATCH`` names the directory, with the servers' logs.
Each worker of pytest gets servers of its own (``tests/support/own_servers.py``). With
``--no-servers`` the database is SQLite in memory, and Redis is a closed port.

``script/bench`` and ``script/race`` start their servers with the same functions.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType

from servers import CannotRun, MariaDB, Redis, Server, part, redis_settings, tail, wait_for

ROOT = Path(__file__).resolve().parents[2]
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENT = ("--stop", "SIGINT", "--grace", "60")  # seconds for a teardown such as that of pytest
MEMORY_MB = 512  # for the buffer pools of all MariaDBs together
ENOUGH_MB = 256
CLOSED_PORT = 1


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--places", type=int, default=1, help="workers with servers of their own")
    parser.add_argument("--no-servers", action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    memory_mb = min(ENOUGH_MB, MEMORY_MB // arguments.places)
    options = [
        "--innodb-flush-log-at-trx-commit=2",  # only a crash of the machine loses work
        f"--innodb-buffer-pool-size={memory_mb}M",
    ]
    with scratch_directory("test") as scratch, ExitStack() as stack:
        settings, waits = [], []
        for number in range(arguments.places):
            directory = scratch / str(number)
            servers: tuple[()] | tuple[Redis, MariaDB] = ()
            if not arguments.no_servers:
                servers = Redis(directory / "redis"), MariaDB(directory / "mysql", options=options)
            waits.append(stack.enter_context(running(directory, *servers)))
            settings.append(settings_of(directory, *servers))
        for wait in waits:
            wait()
        environ = {**settings[0], "SECKILL_PLACES": json.dumps(settings)}
        return run("pytest", arguments.command, environ, *PATIENT)


@contextmanager
def scratch_directory(name: str, *, status: int = 1) -> Iterator[Path]:
    """Yield a directory that is removed after the block, even if a signal ends it.

    If the run turns out to be impossible, say why, show the servers' logs and exit with ``status``.
    """
    for signum in ENDING_SIGNALS:
        signal.signal(signum, end)
    try:
        scratch = Path(tempfile.mkdtemp(prefix=f"seckill-{name}-"))
    except OSError as error:  # no directory of TMPDIR, /tmp and others can be written to
        sys.stderr.write(f"{name}: no temporary directory: {error.strerror}\n")
        raise SystemExit(status) from None
    try:
        yield scratch
    except CannotRun as reason:
        logs = [tail(log) for log in scratch.glob("**/servers.log")]
        sys.stderr.write("\n".join([f"{name}: {reason}", *logs, ""]))
        raise SystemExit(status) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def end(signum: int, _: FrameType | None) -> None:
    """Exit without a message, because the command has printed one; ignore the next signal."""
    for other in ENDING_SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + signum)


@contextmanager
def running(directory: Path, *servers: Server) -> Iterator[Callable[[], None]]:
    """Run servers in a directory; yield a function that waits until all of them respond.

    :raises CannotRun: raised by that function, if a server does not respond.
    """
    (directory / "static").mkdir(parents=True)  # WhiteNoise warns if it is missing
    with (directory / "servers.log").open("wb") as log, ExitStack() as stack:
        parts = []
        for server in servers:
            popen = {"cwd": server.directory, "stdout": log, "stderr": log}
            started = part(server.directory.name, server.prepare(), **popen)
            parts.append(stack.enter_context(started))
        urls = [server.url() for server in servers]
        yield lambda: wait_for(*urls, while_true=lambda: all(it.poll() is None for it in parts))


def settings_of(
    directory: Path, redis: Redis | None = None, mariadb: MariaDB | None = None
) -> dict[str, str]:
    """Return the shop's settings; without servers SQLite in memory, and no Redis at its port."""
    settings = {
        "SECRET_KEY": "a key for private servers alone",
        "DEBUG": "false",
        "ALLOWED_HOSTS": "localhost,127.0.0.1,testserver",
        "SECKILL_SITE_URL": "http://testserver",  # as Django's test client says
        "SECKILL_PAYMENT_PROVIDERS": "orders.payments.sandbox.Sandbox",
        "SECKILL_LAB": "true",  # off by default elsewhere
        "STATIC_ROOT": str(directory / "static"),
        "SECKILL_SCRATCH": str(directory),
        "DATABASE_URL": mariadb.url() if mariadb else "sqlite://:memory:",
        **redis_settings(redis.url() if redis else f"redis://127.0.0.1:{CLOSED_PORT}"),
    }
    if mariadb:
        settings["SECKILL_TEST_ADMIN_DATABASE_URL"] = mariadb.admin_url()
    return settings


def run(name: str, command: Sequence[str], settings: Mapping[str, str], *options: str) -> int:
    """Run a command to its end, in the foreground; return its exit status."""
    environ = {**os.environ, **settings}
    with part(name, command, "--may-end", *options, cwd=ROOT, env=environ) as process:
        return process.wait()


if __name__ == "__main__":
    sys.exit(main())
