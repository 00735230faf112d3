"""``manage.py retry_orders``: list the orders that were set aside, and try them again."""

import sys
from collections.abc import Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser, no_translations
from django.db import InterfaceError, OperationalError
from tqdm import tqdm

from orders.fulfilment.retry import retry_orders, set_aside_orders
from vouchers.inventory.keys import LedgerUnavailable


class Command(BaseCommand):
    help = (
        "Try orders again that could not be written and were set aside. They were never payable "
        "and their units went back on sale at once, so there is nothing to refund. Exit status 1 "
        "where one could not be retried."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("order_ids", nargs="*", type=int, metavar="ORDER_ID")
        parser.add_argument(
            "--list", action="store_true", help="only print those that could not be written"
        )
        parser.add_argument(
            "--all", action="store_true", help="every order that could not be written"
        )

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        if sum(map(bool, (options["order_ids"], options["list"], options["all"]))) != 1:
            raise CommandError("give order ids, or --list, or --all", returncode=2)
        if options["list"]:
            for order in set_aside_orders().select_related("user", "seckill_voucher__voucher"):
                accepted = f"{order.accepted_at:%Y-%m-%d %H:%M:%SZ}"
                buyer = order.user.get_username() if order.user else "-"
                self.stdout.write(f"{order.pk}  {accepted}  {buyer}  {order.seckill_voucher}")
            return
        order_ids = options["order_ids"] or list(set_aside_orders().values_list("pk", flat=True))
        try:
            refused = self._retry(order_ids, progress=options["all"])
        except (LedgerUnavailable, OperationalError, InterfaceError) as error:
            text = f"Redis or the database did not respond, go on with the same again: {error}"
            raise CommandError(text, returncode=2) from error
        if refused:
            sys.exit(1)

    def _retry(self, order_ids: Sequence[int], *, progress: bool) -> int:
        """Retry each order and print the outcome; return how many were refused."""
        refused = 0
        for retry in tqdm(
            retry_orders(order_ids=order_ids),
            total=len(order_ids),
            unit="order",
            file=self.stderr,
            disable=None if progress else True,
        ):
            refused += retry.refusal is not None
            outcome = f"not retried: {retry.reason}" if retry.refusal else "live, to be paid"
            self.stdout.write(f"{retry.order_id}  {outcome}")
        return refused
