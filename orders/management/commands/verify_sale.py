"""``manage.py verify_sale``: compute the chain of a first-come sale again."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orders.proof.chain_list import ChainList
from orders.proof.rows import NoChain, check_rows
from orders.published_files import MalformedRecord, read_file, sale_of
from vouchers.models import SeckillVoucher


class Command(BaseCommand):
    """Verify the chain of a sale."""

    help = (
        "Compute the chain of a first-come sale again and print the orders that staff gave by "
        "hand, one id a line. Exit status 1 if an order was added, removed, moved or changed, or "
        "if a head that a buyer kept is not in the chain."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "sale",
            metavar="FILE|ID",
            help="the list that the sale's page offers, or the id of a sale in this database",
        )
        about_head = "a head that somebody kept; may be given several times"
        parser.add_argument("--head", action="append", default=[], help=about_head)

    def handle(self, *, sale: str, head: list[str], **options: Any) -> None:
        try:
            if sale_id := sale_of(sale):
                chain, problems = check_rows(SeckillVoucher.objects.get(pk=sale_id))
            else:
                chain, problems = ChainList.parse(read_file(Path(sale))), []
        except (MalformedRecord, NoChain) as error:
            raise CommandError(str(error)) from error
        except SeckillVoucher.DoesNotExist as error:
            raise CommandError(f"there is no sale {sale}") from error
        problems += chain.problems(old_heads=[it.strip().lower() for it in head])
        if problems:
            raise CommandError("\n".join(problems))
        by_hand = chain.given_by_hand
        self.stderr.write(f"head {chain.head}")
        self.stderr.write(f"{chain.entries} orders, {len(by_hand)} given by staff: verified")
        for order_id in by_hand:
            self.stdout.write(str(order_id))
