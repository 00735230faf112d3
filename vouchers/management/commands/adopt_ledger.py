"""``manage.py adopt_ledger``: take over the ledgers of another installation, after a restore."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from redis.exceptions import RedisError

from seckill_site.installation import ForeignLedger, adopt_ledgers, check_owner, own_identity
from vouchers.chain import note_adoption


class Command(BaseCommand):
    help = (
        "Take over the ledgers in the Redis of REDIS_URL, after this database was set up anew. "
        "A sale whose ledger is that of another sale is loaded from the database."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            check_owner()
        except ForeignLedger as error:
            self._adopt(error.owner, sure=options["yes"])
        except RedisError as error:
            raise CommandError(f"Redis does not respond: {error}") from error
        else:
            self.stdout.write("The ledgers are those of this installation. Nothing to do.")

    def _adopt(self, owner: str, *, sure: bool) -> None:
        question = (
            f"The ledgers are those of installation {owner}; this one is {own_identity()}.\n"
            "The other must not use this Redis any more. Take them over? [y/N] "
        )
        try:
            if not sure and input(question).strip().lower() not in ("y", "yes"):
                raise CommandError("Nothing was changed.")
        except EOFError as error:
            text = "Nothing was changed: there is no terminal to answer at. Add --yes."
            raise CommandError(text) from error
        note_adoption()
        adopt_ledgers()
        self.stdout.write("The ledgers are ours. Workers and web servers go on by themselves.")
