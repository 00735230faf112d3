"""``manage.py reconcile``: compare ledger and database, and repair."""

import json
import sys
from dataclasses import asdict, astuple, fields
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from tqdm import tqdm

from orders.fulfilment.reconcile import Comparison, reconcile_many
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.models import SeckillVoucher


class Command(BaseCommand):
    help = (
        "Compare ledger and database, sale by sale, and repair what differs with --repair; "
        "exit status 1 if a difference is left."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("sale_ids", nargs="*", type=int, metavar="ID", help="default: all")
        parser.add_argument("--repair", action="store_true", help="repair what is different")
        parser.add_argument("--json", action="store_true", help="a list with one object a sale")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            results = list(
                tqdm(
                    reconcile_many(sale_ids=options["sale_ids"], repair=options["repair"]),
                    unit="sale",
                    file=self.stderr,
                    disable=None,
                )
            )
        except SeckillVoucher.DoesNotExist as error:
            raise CommandError(str(error), returncode=2) from error
        except LedgerUnavailable as error:
            raise CommandError(f"Redis did not respond: {error}", returncode=2) from error
        if options["json"]:
            # An id is a string in JSON, here as everywhere.
            rows = [{**asdict(result), "voucher_id": str(result.voucher_id)} for result in results]
            self.stdout.write(json.dumps(rows, indent=2))
        else:
            self.stdout.write(_as_table(results))
        if any(result.difference for result in results):
            sys.exit(1)


def _as_table(results: list[Comparison]) -> str:
    rows = [[field.name for field in fields(Comparison)]] + [
        ["-" if value is None else str(value) for value in astuple(result)] for result in results
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
