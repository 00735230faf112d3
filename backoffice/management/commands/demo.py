"""``manage.py demo``: sales, an admin and buyers for a fresh installation."""

import datetime as dt
from typing import Any

from django.core.management.base import BaseCommand, CommandParser, no_translations
from django.utils import timezone

from backoffice.demo.sales import renew_next_sale
from backoffice.demo.service import make_demo
from vouchers.catalogue.staff_texts import SALE_REFUSALS

UNCHANGED = "The demo is there already; nothing was changed."


class Command(BaseCommand):
    help = (
        "Make three demo sales (open, soon, ended), an admin and two buyers with generated "
        "passwords, printed once. Run again it changes nothing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--renew",
            action="store_true",
            help="if the demo is there and nobody has bought anything, let its next sale start in "
            "five minutes",
        )

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        now = timezone.now().replace(microsecond=0)
        demo = make_demo(now=now)
        if demo is None:
            self.stdout.write(_renewed(now) if options["renew"] else UNCHANGED)
            return
        self.stdout.write("Demo accounts, shown this once:")
        for name, password in demo.passwords.items():
            self.stdout.write(f"  {name:<8} {password}")
        for title, sale_id in demo.sale_ids.items():
            self.stdout.write(f"  /vouchers/{sale_id}/  {title}")


def _renewed(now: dt.datetime) -> str:
    """Renew the next sale; a refusal does not stop the shop from starting."""
    try:
        sale_id = renew_next_sale(now=now)
    except SALE_REFUSALS as error:
        return f"The demo's next sale was not renewed: {error}"
    return f"  /vouchers/{sale_id}/  starts in five minutes" if sale_id else UNCHANGED
