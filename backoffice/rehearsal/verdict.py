"""The verdict of a rehearsal: what was sold, to whom, how fast, and whether it adds up."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from django.db.models import Count, Max

from backoffice.rehearsal.buyers import AnswerLog, clicks_of
from backoffice.rehearsal.crowd import BUSY, UNANSWERED
from orders.fulfilment.reconcile import reconcile
from orders.models import OrderStatus, Rehearsal, VoucherOrder
from seckill_site.clocks.machine import epoch_ms
from vouchers.models import SeckillVoucher

INCONCLUSIVE = {UNANSWERED, "unavailable", "rate_limited", *map(str, BUSY)}
"""Final answers after which a buyer does not know whether there is an order."""


@dataclass(frozen=True)
class Verdict:
    """The result of a rehearsal: counts, times in the unit that their name says, rates per second.

    ``accepted`` counts the order ids that buyers were told, ``orders`` the rows of the shadow sale,
    ``refused`` those rows that ended without a purchase. ``unanswered`` clicks got no conclusive
    answer in any attempt. ``difference`` is what reconcile finds between ledger and database.
    ``drain_s`` is the time from the first request to the last row.
    """

    buyers: int
    stock: int
    requests: int
    answers: dict[str, int]
    unanswered: int
    accepted: int
    orders: int
    refused: int
    oversold: int
    lost: int
    doubled: int
    undersold: int
    difference: int
    drained: bool
    p50_ms: int | None
    p90_ms: int | None
    p99_ms: int | None
    max_ms: int | None
    requests_per_s: float | None
    drain_s: float | None
    orders_per_s: float | None
    interruptions: int
    cleared: bool = False

    @property
    def is_right(self) -> bool:
        """Whether the sale was correct: every unit sold once, nothing lost."""
        off = (self.oversold, self.lost, self.doubled, self.undersold, self.difference)
        return self.drained and self.accepted > 0 and not any(off)

    @classmethod
    def of(cls, stored: dict[str, Any]) -> Verdict:
        return cls(**{name: stored[name] for name in cls.__dataclass_fields__})

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "is_right": self.is_right}


def find_verdict(
    *, rehearsal: Rehearsal, shadow: SeckillVoucher, log: AnswerLog, drained: bool
) -> Verdict:
    """Compare the crowd's answers with the shadow sale's rows and its ledger.

    :raises LedgerUnavailable: Redis did not respond.
    """
    comparison = reconcile(sale_id=shadow.pk)
    rows = VoucherOrder.objects.filter(seckill_voucher=shadow)
    accepted = {log.first_order_id + offset for offset in log.accepted}
    live = comparison.live_orders
    drain_s = _drain_s(shadow, log)
    unanswered = sum(count for code, count in log.answers.items() if code in INCONCLUSIVE)
    return Verdict(
        buyers=rehearsal.buyers,
        stock=rehearsal.stock,
        requests=log.requests,
        answers=dict(sorted(log.answers.items())),
        unanswered=unanswered,
        accepted=len(accepted),
        orders=rows.count(),
        refused=rows.filter(status=OrderStatus.REFUSED).count(),
        oversold=max(0, live - rehearsal.stock),
        lost=len(accepted - set(rows.values_list("pk", flat=True))),
        doubled=_doubled(shadow),
        undersold=max(0, min(rehearsal.stock, _demand(rehearsal, shadow) - unanswered) - live),
        difference=comparison.difference,
        drained=drained,
        p50_ms=_percentile(log, 50),
        p90_ms=_percentile(log, 90),
        p99_ms=_percentile(log, 99),
        max_ms=_percentile(log, 100),
        requests_per_s=_rate(log.requests, log.firing_ms / 1000),
        drain_s=drain_s,
        orders_per_s=_rate(rows.count(), drain_s),
        interruptions=log.interruptions,
    )


def _doubled(shadow: SeckillVoucher) -> int:
    """Return the number of live orders above the limit of their buyer."""
    live = VoucherOrder.objects.filter(seckill_voucher=shadow, live=True).order_by()
    counts = live.values("user").annotate(orders=Count("pk")).filter(orders__gt=shadow.limit)
    return sum(row["orders"] - shadow.limit for row in counts)


def _demand(rehearsal: Rehearsal, shadow: SeckillVoucher) -> int:
    clicks = clicks_of(buyers=rehearsal.buyers, duplicates=rehearsal.duplicates)
    wanted = Counter(click.buyer for click in set(clicks))
    return sum(min(count, shadow.limit) for count in wanted.values())


def _percentile(log: AnswerLog, percent: int) -> int | None:
    """Return the time in ms within which ``percent`` of the answers came; None without answers."""
    times = sorted((int(ms), count) for ms, count in log.took_ms.items())
    total = sum(count for _, count in times)
    seen = 0
    for ms, count in times:
        seen += count
        if seen * 100 >= total * percent:
            return ms
    return None


def _drain_s(shadow: SeckillVoucher, log: AnswerLog) -> float | None:
    """Return the seconds from the first request to the last written order."""
    newest = VoucherOrder.objects.filter(seckill_voucher=shadow).aggregate(last=Max("created_at"))
    if newest["last"] is None or not log.started_ms:
        return None
    return round(max(epoch_ms(newest["last"]) - log.started_ms, 1) / 1000, 3)


def _rate(count: int, seconds: float | None) -> float | None:
    return round(count / seconds, 1) if seconds else None
