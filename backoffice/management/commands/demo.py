"""``manage.py demo``: something to look at and buy, on a fresh installation."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand
from django.utils import timezone

from backoffice.demo import make_demo


class Command(BaseCommand):
    help = (
        "Make three demo sales (open, soon, ended), an admin and two buyers with generated "
        "passwords, printed once. Run again it changes nothing."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        made = make_demo(now=timezone.now().replace(microsecond=0))
        if made is None:
            self.stdout.write("The demo is there already; nothing was changed.")
            return
        self.stdout.write("Demo accounts, shown this once:")
        for name, password in made.passwords.items():
            self.stdout.write(f"  {name:<8} {password}")
        for title, sale_id in made.sales.items():
            self.stdout.write(f"  /vouchers/{sale_id}/  {title}")
