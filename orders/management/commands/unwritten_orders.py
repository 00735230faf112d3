"""``manage.py unwritten_orders``: list the accepted orders that no row can hold, and decide."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser, no_translations

from orders.fulfilment.unwritten import decide_unwritten
from seckill_site.clocks.machine import from_epoch_ms
from vouchers.inventory.batch_journal import Decision
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.reservations import entries_set_aside
from vouchers.models import SeckillVoucher


class Command(BaseCommand):
    help = (
        "List the accepted orders that could not be written, not even as refused. Their buyers see "
        "them queued, and their units stay taken. With --retry they are written again, once the "
        "cause is mended; with --refuse they end, and their units go back on sale."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("sale_ids", nargs="*", type=int, metavar="SALE_ID")
        decision = parser.add_mutually_exclusive_group()
        decision.add_argument("--retry", action="store_true", help="write them again")
        decision.add_argument("--refuse", action="store_true", help="refuse them for good")

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        known = set(SeckillVoucher.objects.values_list("pk", flat=True))
        sale_ids = options["sale_ids"] or sorted(known)
        if unknown := [sale_id for sale_id in sale_ids if sale_id not in known]:
            raise CommandError(f"there is no sale {unknown[0]}", returncode=2)
        if (options["retry"] or options["refuse"]) and not options["sale_ids"]:
            raise CommandError("name the sales to decide about", returncode=2)
        decision = Decision.RETRY if options["retry"] else Decision.REFUSE
        try:
            for sale_id in sale_ids:
                if options["retry"] or options["refuse"]:
                    for order_id in decide_unwritten(sale_id=sale_id, decision=decision):
                        self.stdout.write(f"{order_id}  to {decision.value}")
                else:
                    self._list(sale_id)
        except LedgerUnavailable as error:
            text = f"Redis did not respond, go on with the same again: {error}"
            raise CommandError(text, returncode=2) from error

    def _list(self, sale_id: int) -> None:
        for entry in entries_set_aside(sale_id=sale_id):
            accepted = f"{from_epoch_ms(entry.accepted_at_ms):%Y-%m-%d %H:%M:%SZ}"
            self.stdout.write(f"{entry.order_id}  {accepted}  user {entry.user_id}  sale {sale_id}")
