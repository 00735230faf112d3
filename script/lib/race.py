"""Race the six steps beside private servers that live in a scratch directory.

``script/race`` becomes this program.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from instances import instances
from lab_servers import needed_by
from scratch import PATIENT, ROOT, run, running, scratch_directory, settings_of
from servers import CannotRun, MariaDB, Redis

HARMED = ("--buyers", "500")
TABLES: tuple[tuple[str, ...], ...] = (
    (),
    ("--kill", *HARMED),
    ("--pause", *HARMED),
    ("--redis-restart", *HARMED),
    ("--instances", "2", *HARMED),
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
        installed = (it for it in needed_by(sys.argv[1:]) if it.is_installed())
        further = [it(scratch / it.__name__.lower()) for it in installed]
        with running(scratch, *servers, *further) as wait:
            wait()
            settings = {
                **settings_of(scratch, *servers),
                **{server.setting: server.url() for server in further},
                "SECKILL_LAB_REDIS_RESTARTS": "true",
                "SECKILL_LOG_LEVEL": "ERROR",
                "TMPDIR": str(scratch),
            }
            if manage(["migrate", "--skip-checks", "--verbosity", "0"], settings):
                raise CannotRun("the tables could not be made: see above")
            return race(sys.argv[1:], settings, scratch)


def race(arguments: Sequence[str], settings: Mapping[str, str], scratch: Path) -> int:
    """Run the requested race, or one for each table; return the worst exit status."""
    asked = [argument for argument in arguments if argument != "--documents"]
    documents = ["--document", *DOCUMENTS] if "--documents" in arguments else []
    worst = 0
    for options in [tuple(asked)] if asked else TABLES:
        with ExitStack() as stack:
            environ = dict(settings)
            if count := instances_in(options):
                started = instances(count, scratch / "instances", settings)
                environ["SECKILL_LAB_INSTANCES"] = str(stack.enter_context(started))
            status = manage(["race", *options, *documents], environ)
        if status not in (0, OURS_BROKE):
            return status
        worst = max(worst, status)
    return worst


def instances_in(options: Sequence[str]) -> int:
    """Return how many instances these options ask for; the command refuses what is no number."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--instances", default="0")
    asked: str = parser.parse_known_args(options)[0].instances
    return int(asked) if asked.isdecimal() else 0


def manage(arguments: Sequence[str], settings: Mapping[str, str]) -> int:
    command = [sys.executable, str(ROOT / "manage.py"), *arguments]
    return run("race", command, settings, *PATIENT)


if __name__ == "__main__":
    sys.exit(main())
