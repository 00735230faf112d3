"""``manage.py make_roles``: create the groups of staff with their permissions."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser, no_translations

from orders.roles import make_roles


class Command(BaseCommand):
    help = (
        "Make the groups Shop staff, Operator and Read-only where they are missing, give each the "
        "permissions that it lacks, and print what changed. What was given to them besides stays."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--reset", action="store_true", help="take away what was given besides")

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        changes = make_roles(reset=options["reset"])
        if options["verbosity"] == 0:
            return
        for change in changes:
            self.stdout.write(f"{change.role.value}:")
            for sign, names in (("+", change.added), ("-", change.removed)):
                for name in names:
                    self.stdout.write(f"  {sign} {name}")
        if not changes:
            self.stdout.write("The roles are as they should be; nothing was changed.")
