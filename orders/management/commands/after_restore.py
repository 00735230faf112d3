"""``manage.py after_restore``: what became of each order after the database was restored."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser, no_translations
from django.utils import timezone

from orders.after_restore import NotRestored, after_restore
from orders.lifecycle.cancellation import Busy
from seckill_site.clocks.database import database_now
from vouchers.inventory.keys import LedgerUnavailable


class Command(BaseCommand):
    help = "Name each order accepted after the point of a restore, and what became of it."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--repair", action="store_true", help="repair, and end the mark")

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        try:
            report = after_restore(repair=options["repair"], now=database_now())
        except (NotRestored, LedgerUnavailable, Busy) as error:
            raise CommandError(str(error), returncode=2) from error
        lines = [
            f"{pk}  {it.get_outcome_display()}: {it.detail}" for pk, it in report.orders.items()
        ]
        lines += [f"{pk}  {text}, by a provider's list" for pk, text in report.payments.items()]
        for provider, day, known_at in report.unknown:
            until = f"{timezone.localtime(known_at):%Y-%m-%d %H:%M %Z}"
            lines.append(f"payments by {provider} on {day}: not known until {until}")
        self.stdout.write("\n".join(lines or ["No order was accepted after the restore's point."]))
