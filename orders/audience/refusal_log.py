"""The log of buyers whom a sale's rules refused, for board and report.

Each process collects in memory and writes once or twice a second, so a refusal costs a request
nothing. A process that is killed loses half a second. Nothing is decided by these rows.
"""

import logging
from collections.abc import Collection
from typing import NamedTuple

from django.db import DatabaseError
from django.db.models import Count

from orders.models import RuleRefusal
from seckill_site.clocks.database import database_now
from seckill_site.process_memory import Buffer, Memory

logger = logging.getLogger(__name__)


class Refused(NamedTuple):
    """A buyer whom a rule has refused."""

    sale_id: int
    rule: str
    user_id: int


def _write(refusals: Collection[Refused]) -> None:
    """Write refusals; those that the database does not take now are not counted."""
    try:
        now = database_now()
        rows = [
            RuleRefusal(
                seckill_voucher_id=it.sale_id, rule=it.rule, user_id=it.user_id, refused_at=now
            )
            for it in sorted(refusals)
        ]
        RuleRefusal.objects.bulk_create(rows, batch_size=500, ignore_conflicts=True)
    except DatabaseError as error:
        logger.warning("%s refusals by rules are not counted: %s", len(refusals), error)
        return
    for it in refusals:
        _written.keep(it, True)


_log = Buffer[Refused](_write, most=50_000, every_s=0.5)
_written = Memory[Refused, bool](most=100_000)


def note_refusal(refused: Refused) -> None:
    """Note that a rule has refused a buyer. Never raises."""
    if not _written.last(refused):
        _log.count(refused)


flush_refusals = _log.flush
"""Write this process's refusals at once."""


def count_refused(*, sale_id: int) -> dict[str, int]:
    """Return how many buyers each rule has refused in a sale."""
    rows = RuleRefusal.objects.filter(seckill_voucher=sale_id).order_by()
    return dict(rows.values_list("rule").annotate(Count("pk")))
