"""``manage.py settle_payments``: compare the providers' lists of a day with our payments."""

import datetime as dt
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser, no_translations
from django.utils import timezone

from orders.models import SettlementDifference
from orders.payments.providers import ProviderUnavailable, offered_providers, provider_named
from orders.payments.settlement import settle_day
from seckill_site.clocks.database import database_now
from seckill_site.formatting import money_in


class Command(BaseCommand):
    help = (
        "Compare each payment provider's list of a day with our payments, name the open "
        "differences, and end with status 1 if there are any. Beat does the same once a day."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--day",
            type=dt.date.fromisoformat,
            metavar="YYYY-MM-DD",
            help="default: yesterday, in the time zone of the provider's lists",
        )
        parser.add_argument("--provider", help="default: all")

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        now = database_now()
        names = [it.name for it in offered_providers()]
        if options["provider"]:
            if options["provider"] not in names:
                raise CommandError(f"the providers are: {', '.join(names)}", returncode=2)
            names = [options["provider"]]
        differences = 0
        for name in names:
            yesterday = timezone.localdate(now, provider_named(name).zone) - dt.timedelta(days=1)
            day = options["day"] or yesterday
            try:
                still_open = settle_day(provider_name=name, day=day, now=now)
            except ProviderUnavailable as error:
                raise CommandError(f"{name} has no list of {day}: {error}", returncode=2) from error
            self.stdout.write(f"{name} {day}: {still_open or 'no'} open differences")
            self._list(name, day)
            differences += still_open
        if differences:
            raise CommandError(f"{differences} open differences", returncode=1)

    def _list(self, name: str, day: dt.date) -> None:
        rows = SettlementDifference.objects.filter(provider=name, day=day, resolved_at=None)
        for it in rows.order_by("pk").select_related("payment"):
            paid_in = it.payment.received_currency if it.payment else ""
            ours = money_in(it.our_cents, paid_in)
            theirs = money_in(it.their_cents, it.their_currency)
            amounts = f"ours {ours}, theirs {theirs}"
            self.stdout.write(f"  {it.direction} {it.reference}: {it.kind}, {amounts}")
