"""Row h: the memory of one buyer in Redis, while the order is pending and after it is written."""

from __future__ import annotations

from collections.abc import Sequence

from bench.sale.data import open_sale, reserve_all, strangers
from bench.sale.figures import Line, Target
from bench.sale.run import Run
from orders.receipts.row_copy import ReceiptRow
from seckill_site.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.reservations import PendingEntry, confirm, pending_entries
from vouchers.models import SeckillVoucher

MOST_BYTES = 120
CHUNK = 5_000


def measure(run: Run) -> list[Line]:
    held = run.plan.held
    for _ in run.steps([0], what="h memory"):
        sale = open_sale()
        before = used_bytes(sale_id=sale.pk)
        reserve_all(strangers(sale, count=held))
        pending = used_bytes(sale_id=sale.pk) - before
        while entries := pending_entries(sale_id=sale.pk, skip=0, count=CHUNK):
            confirm(sale_id=sale.pk, entries=entries, rows=rows_of(entries, sale))
        written = used_bytes(sale_id=sale.pk) - before
        ledger_connection().unlink(*LedgerKeys(sale.pk).copies)  # they end after half a minute
        confirmed = used_bytes(sale_id=sale.pk) - before
    target = Target(MOST_BYTES, at_least=False, unit="bytes")
    note = f"MEMORY USAGE of all keys of a sale of {held:,} buyers"
    just_now = "with its copy, for 30 s"
    return [
        Line("h", "a buyer held, order written", "–", target, [confirmed / held], note=note),
        Line("h", "order pending", "–", None, [pending / held], "bytes", note="the same"),
        Line("h", "order written just now", "–", None, [written / held], "bytes", note=just_now),
    ]


def rows_of(entries: Sequence[PendingEntry], sale: SeckillVoucher) -> dict[int, str]:
    """Return the copies of rows that the worker would leave for receipt requests."""
    return {
        it.order_id: ReceiptRow(
            it.user_id, sale.pk, "unpaid", "", 100, it.accepted_at_ms, it.accepted_at_ms + 900_000
        ).pack()
        for it in entries
    }


def used_bytes(*, sale_id: int) -> int:
    """Return the memory of a sale's keys, with every element."""
    redis = ledger_connection()
    pattern = LedgerKeys(sale_id).side("*", "").removesuffix(":")
    return sum(redis.memory_usage(key, samples=0) for key in redis.scan_iter(pattern, count=1000))
