"""Race the six steps beside private servers that live in a scratch directory.

``script/race`` becomes this program.
"""

import sys
from collections.abc import Mapping, Sequence

from scratch import PATIENT, ROOT, run, running, scratch_directory, settings_of
from servers import CannotRun, MariaDB, Redis

HARMED = ("--buyers", "500")
TABLES: tuple[tuple[str, ...], ...] = (
    (),
    ("--kill", *HARMED),
    ("--pause", *HARMED),
    ("--redis-restart", *HARMED),
    ("--experiments",),
)
"""The races to run by default; a fault needs no large crowd."""

DOCUMENTS = tuple(
    f"docs/{stem}{language}.md"
    for stem in ("six-steps", "around-the-six-steps")
    for language in ("", ".zh-CN")
)
OURS_BROKE = 1


class NonPersistentRedis(Redis):
    """A Redis that writes nothing to disk, like that of the course, and restarts when it ends.

    A race may end it to see what comes back.
    """

    def prepare(self) -> list[str]:
        again = ["sh", "-c", 'while "$@"; do :; done', "again"]
        return [*again, *super().prepare(), "--appendonly", "no"]


class OpenMariaDB(MariaDB):
    """A MariaDB that tells the application what InnoDB has locked."""

    grants = "GRANT PROCESS ON *.* TO app@localhost;\n"


def main() -> int:
    with scratch_directory("race", status=2) as scratch:
        servers = (
            NonPersistentRedis(scratch / "redis"),
            OpenMariaDB(scratch / "mysql", options=["--innodb-status-output-locks"]),
        )
        with running(scratch, *servers) as wait:
            wait()
            settings = {
                **settings_of(scratch, *servers),
                "SECKILL_LAB_REDIS_RESTARTS": "true",
                "SECKILL_LOG_LEVEL": "ERROR",
                "TMPDIR": str(scratch),
            }
            if manage(["migrate", "--verbosity", "0"], settings):
                raise CannotRun("the tables could not be made: see above")
            return race(sys.argv[1:], settings)


def race(arguments: Sequence[str], settings: Mapping[str, str]) -> int:
    """Run the requested race, or one for each table; return the worst exit status."""
    asked = [argument for argument in arguments if argument != "--documents"]
    documents = ["--document", *DOCUMENTS] if "--documents" in arguments else []
    worst = 0
    for options in [tuple(asked)] if asked else TABLES:
        status = manage(["race", *options, *documents], settings)
        if status not in (0, OURS_BROKE):
            return status
        worst = max(worst, status)
    return worst


def manage(arguments: Sequence[str], settings: Mapping[str, str]) -> int:
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    return run("race", command, settings, *PATIENT)


if __name__ == "__main__":
    sys.exit(main())
