"""Run one command beside a private MariaDB and Redis that live in a scratch directory.

``script/test`` becomes this program. The command finds the servers in the settings of its
environment and they end with it; ``SECKILL_SCRATCH`` names the directory, with the servers' logs.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from processes import Asked, Ended, Processes
from servers import MariaDB, Redis

ROOT = Path(__file__).resolve().parents[2]
PYTEST_TEARDOWN_SECONDS = 60
FAST_OPTIONS = (
    "--innodb-flush-log-at-trx-commit=2",  # only a crash of the machine loses work
    "--innodb-buffer-pool-size=256M",
)


def main() -> int:
    scratch = Path(tempfile.mkdtemp(prefix="seckill-test-"))
    mariadb = MariaDB(scratch / "mysql", options=FAST_OPTIONS)
    try:
        return run(sys.argv[1:], scratch, mariadb)
    except Asked as asked:
        return asked.code  # in silence: pytest has had the last word
    except Ended as ended:
        sys.stderr.write(f"test: {ended}\n")
        show_logs(scratch)
        return ended.code
    finally:
        mariadb.clean_up()
        shutil.rmtree(scratch, ignore_errors=True)


def run(command: list[str], scratch: Path, mariadb: MariaDB) -> int:
    redis = Redis(scratch / "redis")
    (scratch / "static").mkdir()  # WhiteNoise warns where it finds none
    with Processes(ROOT) as processes:
        redis.start(processes, log=scratch / "redis.log")
        mariadb.start(processes, log=scratch / "mariadb.log")
        environ = {**os.environ, **settings_of(redis, mariadb, scratch)}
        return processes.call(command, environ=environ, grace_seconds=PYTEST_TEARDOWN_SECONDS)


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


def show_logs(scratch: Path) -> None:
    """Show the last lines of servers that may be why there was no run."""
    for log in scratch.glob("*.log"):
        last_lines = log.read_text(errors="replace").splitlines()[-15:]
        sys.stderr.write("\n".join([f"--- {log.name}", *last_lines, ""]))


if __name__ == "__main__":
    sys.exit(main())
