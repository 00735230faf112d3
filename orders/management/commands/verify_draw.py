"""``manage.py verify_draw``: compute a published draw again."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orders.draws.publishing import ListOpen, NoDraw, record_text
from orders.draws.record import DrawRecord, WrongDraw, verify
from orders.published_files import MalformedRecord, read_file, sale_of
from vouchers.models import SeckillVoucher


class Command(BaseCommand):
    """Verify the record of a draw."""

    help = (
        "Compute a draw again from its published record and print the winners, one entry id a line."
        " Compare the commitment that it prints with the one that the page showed before the end."
        " Exit status 1 if the result does not follow from list and seed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "record",
            metavar="FILE|ID",
            help="the record that the draw's page offers, or the id of a sale in this database",
        )

    def handle(self, *, record: str, **options: Any) -> None:
        try:
            sale_id = sale_of(record)
            text = record_text(sale_id=sale_id) if sale_id else read_file(Path(record))
            parsed = DrawRecord.parse(text)
            verify(parsed)
        except (MalformedRecord, WrongDraw, NoDraw, ListOpen) as error:
            raise CommandError(str(error)) from error
        except SeckillVoucher.DoesNotExist as error:
            raise CommandError(f"there is no public sale {record}") from error
        self.stderr.write(f"commitment {parsed.commitment}")
        self.stderr.write(f"digest {parsed.digest}")
        self.stderr.write(f"{len(parsed.winners)} of {len(parsed.entry_ids)} entries won: verified")
        for entry_id in parsed.winners:
            self.stdout.write(str(entry_id))
