"""``manage.py create_buyers``: a crowd for load tests and rehearsals."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from tqdm import tqdm

from backoffice.buyers import create_buyers
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.models import SeckillVoucher


class Command(BaseCommand):
    help = "Make buyers without usable passwords; print one purchase token per line."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--count", type=int, required=True, help="how many buyers")
        parser.add_argument(
            "--tokens-for", type=int, required=True, metavar="ID", help="the sale's id"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["count"] < 1:
            raise CommandError("--count must be at least 1")
        try:
            with tqdm(total=options["count"], unit="buyer", file=self.stderr, disable=None) as bar:
                for tokens in create_buyers(count=options["count"], sale_id=options["tokens_for"]):
                    self.stdout.write("\n".join(token.sign() for token in tokens))
                    bar.update(len(tokens))
        except SeckillVoucher.DoesNotExist as error:
            raise CommandError(f"there is no sale {options['tokens_for']}") from error
        except LedgerUnavailable as error:
            raise CommandError(f"Redis did not respond: {error}") from error
