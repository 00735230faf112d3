"""Row n: a burst of units that are all accepted at once, until each has its row.

The reservations go straight to Redis, many in a write, because no web server here is as fast. The
worker starts with the first of them. The longest wait is that of a receipt: from the acceptance, by
the clock of Redis, to the transaction of its row, by the database's; both run on this machine.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.around.measuring import sql
from bench.sale.data import open_sale, users
from bench.sale.pending import write_orders
from bench.sale.report import Line, Target
from bench.sale.run import Run, WrongAnswers, back_half, expect_soon
from bench.sale.whole_sales import LONGEST_S, ours_agree
from orders.placing.publishing import publish_fulfilment
from orders.placing.tokens import PurchaseToken, issue_tokens
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import send_many
from vouchers.inventory.reservations import (
    Reply,
    Reservation,
    SaleBehind,
    finish_reservation,
    reserve_call,
)
from vouchers.models import SeckillVoucher

IN_A_WRITE = 500
MORE_S = 2.0
"""How much longer than the burst divided by the rate of row e a receipt may take."""

MOST_GROWTH_MB = 64
"""The worker itself keeps two batches. But a reconcile that comes during the burst compares all ids
of the sale, at some 450 bytes each."""

MOST_BYTES = 300


@dataclass(frozen=True)
class Burst:
    """The figures of one burst."""

    accepted_s: float
    written_s: float
    longest_wait_s: float
    allowed_s: float
    refused: int
    worker_grew_mb: float
    bytes_a_unit: float


def measure(run: Run) -> list[Line]:
    user_ids = users(count=run.plan.burst)
    bursts = []
    with back_half(run.site) as worker:
        for number in run.steps(range(run.plan.burst_repetitions + 1), what="n a burst"):
            rate = write_orders(user_ids[: run.plan.written])
            burst = _burst(worker, user_ids[: None if number else run.plan.warm_up], rate)
            bursts.append(burst)
    return _lines(run.plan.burst, bursts[1:])  # the first has warmed up both processes


def _burst(worker: Sequence[int], user_ids: Sequence[int], rate: float) -> Burst:
    sale, units = open_sale(stock=len(user_ids)), len(user_ids)
    tokens = issue_tokens(sale=sale, user_ids=user_ids)
    memory, used = _status_mb(worker, "VmRSS"), _used_bytes()
    began_at = time.monotonic()
    refused = accept(tokens)
    accepted_at, peak = time.monotonic(), _used_bytes()
    sold = SeckillVoucher.objects.filter(pk=sale.pk).values_list("sold", flat=True)
    failure = f"not all {units - refused:,} rows came"
    expect_soon(lambda: sold.get() >= units - refused, failure, within_s=LONGEST_S)
    written_at = time.monotonic()
    if not ours_agree(sale.pk, units - refused):
        raise WrongAnswers("ledger and database disagree after a burst")
    return Burst(
        accepted_s=accepted_at - began_at,
        written_s=written_at - began_at,
        longest_wait_s=longest_wait_s(sale),
        allowed_s=units / rate + MORE_S,
        refused=refused,
        worker_grew_mb=max(
            after - before
            for before, after in zip(memory, _status_mb(worker, "VmHWM"), strict=True)
        ),
        bytes_a_unit=(peak - used) / units,
    )


def accept(tokens: Sequence[PurchaseToken]) -> int:
    """Reserve a unit for each token, and return how many were refused because of the backlog."""
    refused = 0
    for start in range(0, len(tokens), IN_A_WRITE):
        calls = [
            reserve_call(sale_id=it.sale_id, order_id=it.order_id, user_id=it.user_id).finished_by(
                _unless_behind
            )
            for it in tokens[start : start + IN_A_WRITE]
        ]
        replies = send_many(calls)
        refused += replies.count(None)
        if any(reply and reply.kick_due for reply in replies):
            publish_fulfilment(sale_id=tokens[0].sale_id)
    return refused


def _unless_behind(reply: Reply) -> Reservation | None:
    try:
        return finish_reservation(reply)
    except SaleBehind:
        return None


def longest_wait_s(sale: SeckillVoucher) -> float:
    """Return the longest time from an order's acceptance to the transaction of its row."""
    longest = "SELECT MAX(TIMESTAMPDIFF(MICROSECOND, accepted_at, created_at)) / 1e6"
    rows = sql(f"{longest} FROM orders_voucherorder WHERE seckill_voucher_id = %s", sale.pk)
    return float(rows[0][0])


def _status_mb(pids: Sequence[int], name: str) -> list[float]:
    """Return this figure of each process, which the kernel gives in KiB."""
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return [int(text.partition(f"{name}:")[2].split()[0]) / 1024 for text in texts]


def _used_bytes() -> int:
    return int(ledger_connection().info("memory")["used_memory"])


def _lines(units: int, bursts: Sequence[Burst]) -> list[Line]:
    waits, allowed = [it.longest_wait_s for it in bursts], [it.allowed_s for it in bursts]
    refused = [float(it.refused) for it in bursts]
    grew, ledger = [it.worker_grew_mb for it in bursts], [it.bytes_a_unit for it in bursts]
    last = bursts[-1]
    times = f"accepted within {last.accepted_s:.1f} s, last row after {last.written_s:.1f} s"

    name = f"{units:,} units accepted at once: the longest wait for a row"
    against, most = f"burst ÷ rate of row e + {MORE_S:.0f} s", Target.most
    return [
        Line.ratio("n", name, against, most(1), "s", waits, allowed, note=times),
        Line("n", "its buyers refused because orders are late", "–", most(0, ""), refused),
        Line("n", "growth of a worker process", "–", most(MOST_GROWTH_MB, "MB"), grew),
        Line("n", "ledger, a unit at the peak", "–", most(MOST_BYTES, "bytes"), ledger),
    ]
