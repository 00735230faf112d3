"""Row s: a storm that begins while the unpaid orders of another sale run out.

The slowest row counts: from the acceptance, by the clock of Redis, to the transaction of the row,
by the database's. The same storm without an expiry runs before each.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import F, Q
from django.utils import timezone

from bench.sale.burst import accept, longest_wait_s
from bench.sale.data import open_sale, users
from bench.sale.generator import Shot, order_request
from bench.sale.plan import SALE_CONNECTIONS
from bench.sale.report import Line, Target
from bench.sale.run import Run, back_half, expect_soon
from bench.sale.whole_sales import LONGEST_S, LOOK_S, expect_exact, ours_agree
from lab.waiting import wait_until
from orders.models import OrderEvent, VoucherOrder
from orders.placing.tokens import issue_tokens
from vouchers.models import SeckillVoucher

WORKERS = {
    "one worker": ["celery,payments,webhooks"],
    "separate workers": ["celery", "payments", "webhooks"],
}
"""The queues of each worker: as in a small shop, and as ``deploy/`` starts them."""

TWO_TASKS_S = 2.2
MOST_TIMES, MOST_S = 1.5, 20.0


@dataclass(frozen=True)
class Storms:
    """The slowest row of each storm, and how long each expiry took."""

    alone_s: list[float]
    beside_s: list[float]
    gone_s: list[float]


def measure(run: Run) -> list[Line]:
    lines = []
    for name, workers in WORKERS.items():
        with back_half(run.site, workers):
            lines += _lines(run, name, _storms(run, name))
    return lines


def _storms(run: Run, name: str) -> Storms:
    storms = Storms([], [], [])
    user_ids = users(count=max(run.plan.overdue, run.plan.sale_buyers))
    buyers = user_ids[: run.plan.sale_buyers]
    _storm(run, buyers[: run.plan.warm_up])
    for _ in run.steps(range(run.plan.expiry_repetitions), what=f"s an expiry, {name}"):
        storms.alone_s.append(_storm(run, buyers))
        sale = _unpaid(user_ids[: run.plan.overdue])
        began_at = _run_out(sale)
        storms.beside_s.append(_storm(run, buyers))
        storms.gone_s.append(_gone_at(sale) - began_at)
    return storms


def _storm(run: Run, user_ids: Sequence[int]) -> float:
    """Sell a sale out and return how long its slowest row took, in seconds."""
    sale = open_sale(stock=min(run.plan.sale_units, len(user_ids)))
    tokens = issue_tokens(sale=sale, user_ids=user_ids)
    requests = [order_request(sale.pk, token.sign(), attempt=1) for token in tokens]
    hits = run.start(Shot(run.web.port, requests, SALE_CONNECTIONS)).result()
    failure = "not all rows of the storm came"
    expect_soon(lambda: _sold(sale) == sale.stock, failure, within_s=LONGEST_S)
    expect_exact(sale, hits, user_ids)
    return longest_wait_s(sale)


def _unpaid(user_ids: Sequence[int]) -> SeckillVoucher:
    """Sell every unit of a sale; nobody pays. What beat does after that is done at once."""
    sale = open_sale(stock=len(user_ids))
    accept(issue_tokens(sale=sale, user_ids=user_ids))
    failure = "not all rows came before the expiry"
    expect_soon(lambda: _sold(sale) == len(user_ids), failure, within_s=LONGEST_S)
    open_events = OrderEvent.objects.filter(Q(notified_at=None) | Q(webhooks_due=True))
    open_events.update(notified_at=timezone.now(), webhooks_due=None)
    return sale


def _run_out(sale: SeckillVoucher) -> float:
    """Let the time to pay of all orders of a sale be over; return when, once they are expiring.

    That is after beat has sent its task twice, unless only a quarter of the orders is left.
    """
    times = {name: F(name) - timedelta(hours=1) for name in ("created_at", "accepted_at", "pay_by")}
    VoucherOrder.objects.filter(seckill_voucher=sale).update(**times)
    began_at = time.monotonic()
    failure = "no order expired"
    expect_soon(lambda: _sold(sale) < sale.stock, failure, within_s=LONGEST_S)
    wait_until(lambda: _sold(sale) <= sale.stock / 4, within_s=TWO_TASKS_S, every_s=LOOK_S)
    return began_at


def _gone_at(sale: SeckillVoucher) -> float:
    """Return the time at which the last order of a sale had expired.

    :raises WrongAnswers: some did not, or ledger and database disagree.
    """
    expect_soon(lambda: _sold(sale) == 0, "not all orders expired", within_s=LONGEST_S)
    gone_at = time.monotonic()
    expect_soon(lambda: ours_agree(sale.pk, 0), "units were not returned", within_s=LONGEST_S)
    return gone_at


def _sold(sale: SeckillVoucher) -> int:
    return SeckillVoucher.objects.values_list("sold", flat=True).get(pk=sale.pk)


def _lines(run: Run, name: str, storms: Storms) -> list[Line]:
    plan = run.plan
    slowest = f"{plan.sale_units:,} units sold while {plan.overdue:,} orders expire: slowest row"
    most, against = Target.most(MOST_TIMES), "the same without"
    beside, alone = storms.beside_s, storms.alone_s
    gone = f"{plan.overdue:,} unpaid orders gone"
    return [
        Line.ratio("s", slowest, against, most, "s", beside, alone, note=name),
        Line("s", gone, "–", Target.most(MOST_S, "s"), storms.gone_s, note=name),
    ]
