"""Race the six steps beside private servers that live in a scratch directory.

``script/race`` becomes this program. Its Redis writes nothing to disk, as that of the course, and
is started again whenever it ends: a race may end it to see what comes back.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from scratch import ASKED_TO_END, FOREGROUND, ROOT, end, settings_of, show_log
from servers import CannotRun, MariaDB, Redis, part, wait_for

MANAGE = (sys.executable, str(ROOT / "manage.py"))
AGAIN = ("sh", "-c", 'while "$@"; do :; done', "again")
"""Runs a command again for as long as it ends well."""

FORGETFUL = ("--appendonly", "no")
HARMED = ("--buyers", "500")
TABLES: tuple[tuple[str, ...], ...] = (
    (),
    ("--kill", *HARMED),
    ("--pause", *HARMED),
    ("--redis-restart", *HARMED),
)
"""What is raced where nothing else is asked for: a fault needs no large crowd."""

DOCUMENTS = ("docs/six-steps.md", "docs/six-steps.zh-CN.md")
OURS_BROKE = 1


def main() -> int:
    for signum in ASKED_TO_END:
        signal.signal(signum, end)
    scratch = Path(tempfile.mkdtemp(prefix="seckill-race-"))
    mariadb = MariaDB(scratch / "mysql")
    try:
        return run(sys.argv[1:], scratch, mariadb)
    except CannotRun as reason:
        sys.stderr.write(f"race: {reason}\n")
        show_log(scratch / "servers.log")
        return 2
    finally:
        mariadb.clean_up()
        shutil.rmtree(scratch, ignore_errors=True)


def run(arguments: list[str], scratch: Path, mariadb: MariaDB) -> int:
    redis = Redis(scratch / "redis")
    (scratch / "static").mkdir()
    with (
        (scratch / "servers.log").open("wb") as log,
        part(
            "redis", [*AGAIN, *redis.prepare(), *FORGETFUL],
            cwd=redis.directory, stdout=log, stderr=log,
        ) as first,
        part("mariadb", mariadb.prepare(), stdout=log, stderr=log) as second,
    ):  # fmt: skip
        wait_for(
            redis.url(0), mariadb.url(), while_true=lambda: first.poll() is second.poll() is None
        )
        environ = os.environ | settings_of(redis, mariadb, scratch) | of_the_race(scratch)
        if manage(["migrate", "--verbosity", "0"], environ):
            raise CannotRun("the tables could not be made: see above")
        return race(arguments, environ)


def of_the_race(scratch: Path) -> dict[str, str]:
    return {
        "SECRET_KEY": "a key for races alone",
        "SECKILL_LAB": "true",
        "SECKILL_LAB_REDIS_RESTARTS": "true",
        "SECKILL_LOG_LEVEL": "ERROR",
        "TMPDIR": str(scratch),
    }


def race(arguments: list[str], environ: dict[str, str]) -> int:
    """Race once as asked, or once for each table; the worst exit status counts."""
    asked = [argument for argument in arguments if argument != "--documents"]
    documents = ["--document", *DOCUMENTS] if "--documents" in arguments else []
    worst = 0
    for options in [tuple(asked)] if asked else TABLES:
        status = manage(["race", *options, *documents], environ)
        if status not in (0, OURS_BROKE):
            return status
        worst = max(worst, status)
    return worst


def manage(arguments: list[str], environ: dict[str, str]) -> int:
    with part("race", [*MANAGE, *arguments], *FOREGROUND, cwd=ROOT, env=environ) as command:
        return command.wait()


if __name__ == "__main__":
    sys.exit(main())
