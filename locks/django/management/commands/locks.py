"""``manage.py locks``: list the locks that are held, or release one by force."""

import json
import sys
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django_redis import get_redis_connection
from redis import RedisError

from locks.inspection import HeldLock, NotHeldByOwner, force_release, held_locks, holds_of

EVERY_LOCK = "lock:*"
CONSEQUENCE = (
    "Its holder is told at its next renewal, within a third of its lease; work it does meanwhile "
    "is held back only by the fencing token."
)


class Command(BaseCommand):
    help = "List the locks that are held in Redis, or release one by force."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--match", metavar="PATTERN", help=f"default: {EVERY_LOCK}")
        parser.add_argument("--json", action="store_true", help="a list with one object a hold")
        parser.add_argument("--release", metavar="NAME", help="release this lock by force")
        parser.add_argument("--owner", help="with --release: whose, where several read")
        parser.add_argument(
            "--yes", action="store_true", help="with --release: do not ask for a confirmation"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        releases = options["release"] is not None
        if not releases and (options["owner"] or options["yes"]):
            raise CommandError("--owner and --yes go with --release")
        if releases and (options["match"] or options["json"]):
            raise CommandError("--match and --json list, --release does not: use one or the other")
        try:
            if releases:
                self._release(options["release"], options["owner"], sure=options["yes"])
            else:
                self._list(options["match"] or EVERY_LOCK, as_json=options["json"])
        except RedisError as error:
            raise CommandError(f"Redis did not respond: {error}") from error
        except (NotHeldByOwner, ValueError) as error:
            raise CommandError(str(error)) from error

    def _list(self, match: str, *, as_json: bool) -> None:
        holds = held_locks(get_redis_connection("ledger"), match=match)
        if as_json:
            self.stdout.write(json.dumps([asdict(hold) for hold in holds], indent=2))
        else:
            self.stdout.write(_as_table(holds) if holds else "No lock is held.")

    def _release(self, name: str, owner: str | None, *, sure: bool) -> None:
        if not sure and not sys.stdin.isatty():
            raise CommandError("nobody can be asked here: to release without a question, add --yes")
        client = get_redis_connection("ledger")
        hold = _one_of(holds_of(client, name), name, owner)
        self.stdout.write(f"{_as_table([hold])}\nowner  {hold.owner}\n\n{CONSEQUENCE}")
        if not sure and not _confirmed():
            raise CommandError("nothing was released")
        force_release(client, name, hold.owner)
        self.stdout.write("Released.")


def _one_of(holds: list[HeldLock], name: str, owner: str | None) -> HeldLock:
    if not holds:
        raise CommandError(f"{name} is not held")
    chosen = [hold for hold in holds if owner in (None, hold.owner)]
    if not chosen:
        raise CommandError(f"{name} is not held by {owner}")
    if len(chosen) > 1:
        owners = ", ".join(hold.owner for hold in chosen)
        raise CommandError(f"{name} has {len(chosen)} holders, choose one with --owner: {owners}")
    return chosen[0]


def _confirmed() -> bool:
    try:
        return input("Type yes to release it: ").strip() == "yes"
    except (EOFError, KeyboardInterrupt):
        return False


def _as_table(holds: list[HeldLock]) -> str:
    head = ("name", "kind", "host", "process", "age", "lease left", "waiters", "token")
    rows = [head] + [
        (
            hold.name, hold.kind, hold.host, str(hold.process), hold.age, hold.lease_left,
            str(hold.waiters), "-" if hold.token is None else str(hold.token),
        )
        for hold in holds
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
