"""The log of buyers whom a sale refused, and why: for support, board and report.

Each process collects in memory and writes once or twice a second, so a refusal costs a request
nothing. A process that is killed loses half a second. Nothing is decided by these rows.

Refusals by rules stay for a month (``orders/lifecycle/retention.py``). Those of order requests are
for the question "why did I not get one": at most ``MOST_PER_SALE`` of a sale, for ``RETENTION``.
"""

import datetime as dt
import logging
from collections.abc import Collection
from itertools import groupby
from typing import NamedTuple

from django.db import DatabaseError, InterfaceError, OperationalError
from django.db.models import Count, Model

from locks import LockBusy, LockNotOwned
from orders.models import OrderRefusal, RuleRefusal
from seckill_site.clocks.database import database_now
from seckill_site.mysql.bulk_rows import insert_new
from seckill_site.process_memory import Buffer, Memory
from vouchers.catalogue.audience import RULES
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.passes import alone

MOST_PER_SALE = 200_000
RETENTION = dt.timedelta(days=7)

DELETED_AT_ONCE = 2_000

WAIT_MS = 2_000
"""How long a process waits for another one that writes."""

logger = logging.getLogger(__name__)


class Refused(NamedTuple):
    """A buyer who was refused; ``reason`` is the name of a rule, or the answer's code."""

    sale_id: int
    reason: str
    user_id: int


def _write(refusals: Collection[Refused]) -> None:
    """Write refusals; those that the database does not take at all are lost."""
    try:
        now = database_now()
        _insert(RuleRefusal, "rule", sorted(it for it in refusals if it.reason in RULES), now)
        others = [it for it in refusals if it.reason not in RULES]
        if others := sorted(it for it in others if not _full.recall(it.sale_id)):
            with alone("refusals", wait_ms=WAIT_MS):  # it counts what there is
                for sale_id, of_sale in groupby(others, lambda it: it.sale_id):
                    stored = OrderRefusal.objects.filter(seckill_voucher=sale_id).count()
                    room = max(MOST_PER_SALE - stored, 0)
                    _insert(OrderRefusal, "reason", list(of_sale)[:room], now)
                    if not room:
                        _full.keep(sale_id, True)
    except (OperationalError, InterfaceError):
        raise
    except DatabaseError as error:
        logger.warning("%s refusals are not stored: %s", len(refusals), error)
        return
    for it in refusals:
        _written.keep(it, True)


def _insert(model: type[Model], column: str, refusals: list[Refused], now: dt.datetime) -> None:
    at = f"{now:%Y-%m-%d %H:%M:%S.%f}"
    rows = [f"({it.sale_id:d},%({it.reason})s,{it.user_id:d},'{at}')" for it in refusals]
    reasons = {it.reason: it.reason for it in refusals}
    columns = ("seckill_voucher_id", column, "user_id", "refused_at")
    insert_new(model, columns, rows, **reasons)


_log = Buffer[Refused](
    _write,
    most=200_000,
    every_s=0.5,
    retry_on=(OperationalError, InterfaceError, LedgerUnavailable, LockBusy, LockNotOwned),
    retry_s=2.0,
)
_written = Memory[Refused, bool](most=200_000, for_s=86_400.0)
_full = Memory[int, bool](most=1_000, for_s=60.0)  # the sales that have no room


def note_refusal(refused: Refused) -> None:
    """Note that a buyer was refused. Never raises."""
    if not _written.recall(refused):
        _log.count(refused)


flush_refusals = _log.flush
"""Write this process's refusals at once."""


def count_refused(*, sale_id: int) -> dict[str, int]:
    """Return how many buyers each rule has refused in a sale."""
    rows = RuleRefusal.objects.filter(seckill_voucher=sale_id).order_by()
    return dict(rows.values_list("rule").annotate(Count("pk")))


def delete_old_refusals(*, now: dt.datetime) -> bool:
    """Delete the oldest refusals of order requests; return whether some may be left.

    They are read in the order of writing, which is that of their times, so this takes no index.
    """
    oldest = OrderRefusal.objects.order_by("pk").values_list("pk", "refused_at")[:DELETED_AT_ONCE]
    ids = [pk for pk, refused_at in oldest if refused_at <= now - RETENTION]
    OrderRefusal.objects.filter(pk__in=ids).delete()
    return len(ids) == DELETED_AT_ONCE
