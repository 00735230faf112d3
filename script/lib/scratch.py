"""Run one command beside a private MariaDB and Redis that live in a scratch directory.

``script/test`` becomes this program. The command finds the servers in the settings of its
environment and they end with it; ``SECKILL_SCRATCH`` names the directory, with the servers' logs.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from servers import CannotRun, MariaDB, Redis, part, wait_for

ROOT = Path(__file__).resolve().parents[2]
ASKED_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FOREGROUND = ("--may-end", "--stop", "SIGINT", "--grace", "60")  # seconds for pytest's teardown
FAST_OPTIONS = (
    "--innodb-flush-log-at-trx-commit=2",  # only a crash of the machine loses work
    "--innodb-buffer-pool-size=256M",
)


def main() -> int:
    for signum in ASKED_TO_END:
        signal.signal(signum, end)
    scratch = Path(tempfile.mkdtemp(prefix="seckill-test-"))
    mariadb = MariaDB(scratch / "mysql", options=FAST_OPTIONS)
    try:
        return run(sys.argv[1:], scratch, mariadb)
    except CannotRun as reason:
        sys.stderr.write(f"test: {reason}\n")
        show_log(scratch / "servers.log")
        return 1
    finally:
        mariadb.clean_up()
        shutil.rmtree(scratch, ignore_errors=True)


def end(signum: int, _: FrameType | None) -> None:
    """End in silence, because pytest has had the last word, and undisturbed by the next signal."""
    for other in ASKED_TO_END:
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + signum)


def run(command: list[str], scratch: Path, mariadb: MariaDB) -> int:
    redis = Redis(scratch / "redis")
    (scratch / "static").mkdir()  # WhiteNoise warns where it finds none
    with (
        (scratch / "servers.log").open("wb") as log,
        part("redis", redis.prepare(), cwd=redis.directory, stdout=log, stderr=log) as first,
        part("mariadb", mariadb.prepare(), stdout=log, stderr=log) as second,
    ):
        wait_for(
            redis.url(0), mariadb.url(), while_true=lambda: first.poll() is second.poll() is None
        )
        environ = {**os.environ, **settings_of(redis, mariadb, scratch), "SECKILL_LAB": "true"}
        with part("pytest", command, *FOREGROUND, cwd=ROOT, env=environ) as pytest:
            return pytest.wait()


def settings_of(redis: Redis, mariadb: MariaDB, scratch: Path) -> dict[str, str]:
    return {
        "SECRET_KEY": "a key for tests alone",
        "DEBUG": "false",
        "ALLOWED_HOSTS": "localhost,127.0.0.1",
        "DATABASE_URL": mariadb.url(),
        "REDIS_URL": redis.url(0),
        "CACHE_URL": redis.url(1),
        "CELERY_BROKER_URL": redis.url(2),
        "STATIC_ROOT": str(scratch / "static"),
        "SECKILL_SCRATCH": str(scratch),
        "SECKILL_TEST_ADMIN_DATABASE_URL": mariadb.admin_url(),
    }


def show_log(log: Path) -> None:
    """Show the last lines of the servers, which may say why there was no run."""
    if log.exists():
        last_lines = log.read_text(errors="replace").splitlines()[-30:]
        sys.stderr.write("\n".join([*last_lines, ""]))


if __name__ == "__main__":
    sys.exit(main())
