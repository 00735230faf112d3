"""``manage.py export_orders``: print orders as CSV, as the admin exports them."""

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from django.core.management.base import BaseCommand, CommandError, CommandParser, no_translations
from django.db import InterfaceError, OperationalError
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from tqdm import tqdm

from backoffice.order_export import export_orders
from orders.models import VoucherOrder
from seckill_site.web.csv_files import Row, csv_parts
from vouchers.models import SaleStage


def moment(text: str) -> dt.datetime:
    """Parse a time; without an offset it is in the shop's time zone."""
    time = parse_datetime(text)
    if time is None:
        raise ValueError
    return time if timezone.is_aware(time) else timezone.make_aware(time)


def _counted(chunks: Iterator[Sequence[Row]], bar: "tqdm[NoReturn]") -> Iterator[Sequence[Row]]:
    """Yield the chunks, and note their rows in the progress bar."""
    for rows in chunks:
        yield rows
        bar.update(len(rows))


class Command(BaseCommand):
    help = "Print orders as CSV for a spreadsheet, oldest first: export_orders > orders.csv"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--sale", type=int, metavar="ID", help="only orders of this sale")
        parser.add_argument(
            "--since",
            type=moment,
            metavar="TIME",
            help="only orders accepted since, such as 2026-12-01T10:00",
        )
        parser.add_argument(
            "--codes", action="store_true", help="show voucher codes, which are worth money"
        )

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        orders = VoucherOrder.objects.exclude(seckill_voucher__stage=SaleStage.REHEARSAL)
        if options["sale"] is not None:
            orders = orders.filter(seckill_voucher=options["sale"])
        if options["since"]:
            orders = orders.filter(accepted_at__gte=options["since"])
        now = timezone.now()
        try:
            with tqdm(total=orders.count(), unit="order", file=self.stderr, disable=None) as bar:
                export = export_orders(orders=orders, codes=options["codes"], now=now)
                for part in csv_parts(export.headings, _counted(export.chunks, bar)):
                    self.stdout.write(part, ending="")
        except (OperationalError, InterfaceError) as error:
            text = f"the database did not respond, the file ends here: {error}"
            raise CommandError(text) from error
