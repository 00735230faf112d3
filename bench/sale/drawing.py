"""Row p: a draw, from the end of its entries to the order of the last winner.

The entries go straight to Redis, as in row n, and none of them has a row when they close: the most
that a draw may have to write. Then this process does what beat and a worker do, with their real
locks: it closes the list, draws, writes an order for each winner, and lets all others wait.
"""

import time
from collections.abc import Sequence

from bench.sale.burst import IN_A_WRITE
from bench.sale.data import open_sale, users
from bench.sale.pending import used_bytes
from bench.sale.report import Line, Target
from bench.sale.run import Run
from orders.draws.drawing import take_due_steps
from orders.fulfilment.worker import fulfil_sale
from orders.models import DrawEntry, VoucherOrder, WaitingEntry
from orders.placing.tokens import issue_tokens
from seckill_site.clocks.ledger import read_ledger_ms
from seckill_site.clocks.machine import from_epoch_ms
from vouchers.inventory.entering import enter_call
from vouchers.inventory.keys import send_many
from vouchers.inventory.rebuild import load_sale
from vouchers.inventory.reservations import finish_reservation
from vouchers.models import Draw, SaleMode, SeckillVoucher

LONGEST_S = 30
UNITS_A_HUNDRED = 10
"""The winners of a hundred entries."""


def measure(run: Run) -> list[Line]:
    user_ids = users(count=run.plan.entries)
    steps = run.steps(range(run.plan.draw_repetitions), what="p a draw")
    draws = [_draw(user_ids) for _ in steps]
    seconds, rates, sizes = (list(values) for values in zip(*draws, strict=True))
    count = len(user_ids)
    winners = count * UNITS_A_HUNDRED // 100
    return [
        Line(
            "p",
            f"{count:,} entries drawn and written",
            "–",
            Target.most(LONGEST_S, "s"),
            seconds,
            note=f"{winners:,} orders, {count - winners:,} on the waiting list; no entry had a row",
        ),
        Line("p", "entries accepted by Redis", "–", None, rates, "/s", note="one client"),
        Line("p", "ledger, an entry without a row", "–", None, sizes, "bytes"),
    ]


def _draw(user_ids: Sequence[int]) -> tuple[float, float, float]:
    """Return the seconds of a draw, the entries a second, and the bytes of an entry in Redis."""
    units = len(user_ids) * UNITS_A_HUNDRED // 100
    sale = open_sale(stock=units, mode=SaleMode.DRAW, draw_wait_s=3_600)
    before = used_bytes(sale_id=sale.pk)
    rate = _enter(sale, user_ids)
    size = (used_bytes(sale_id=sale.pk) - before) / len(user_ids)
    ends_at = from_epoch_ms(read_ledger_ms())
    SeckillVoucher.objects.filter(pk=sale.pk).update(ends_at=ends_at)
    began_at = time.perf_counter()
    load_sale(sale_id=sale.pk)
    draw = Draw.of(sale)
    while not draw.finished_at:
        if take_due_steps(sale_id=sale.pk):
            continue
        while fulfil_sale(sale_id=sale.pk):
            pass  # as the next task would continue
        draw.refresh_from_db()
    seconds = time.perf_counter() - began_at
    _check(sale, entries=len(user_ids))
    return seconds, rate, size


def _enter(sale: SeckillVoucher, user_ids: Sequence[int]) -> float:
    tokens = issue_tokens(sale=sale, user_ids=user_ids)
    calls = [
        enter_call(sale_id=sale.pk, order_id=it.order_id, user_id=it.user_id).finished_by(
            finish_reservation
        )
        for it in tokens
    ]
    began_at = time.perf_counter()
    for start in range(0, len(calls), IN_A_WRITE):
        send_many(calls[start : start + IN_A_WRITE])
    return len(calls) / (time.perf_counter() - began_at)


def _check(sale: SeckillVoucher, *, entries: int) -> None:
    winners = entries * UNITS_A_HUNDRED // 100
    assert DrawEntry.objects.filter(seckill_voucher=sale, live=True).count() == entries
    assert VoucherOrder.objects.filter(seckill_voucher=sale, live=True).count() == winners
    waiting = WaitingEntry.objects.filter(seckill_voucher=sale, live=True)
    assert waiting.count() == entries - winners
