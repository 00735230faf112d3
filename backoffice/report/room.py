"""The waiting room in the report of a sale: how long buyers waited, in figures and one by one."""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db.models import Count, F
from django.db.models.functions import Greatest, Least
from django.utils import timezone
from django.utils.translation import gettext

from orders.models import RoomVisit
from seckill_site.formatting import timestamp
from seckill_site.web.csv_files import Row, csv_parts, harmless
from vouchers.models import SeckillVoucher

CHUNK = 2_000


@dataclass(frozen=True)
class RoomFigures:
    """Visits to a waiting room, and how long those waited whom it has let in."""

    joined: int
    let_in: int
    median: dt.timedelta | None
    p95: dt.timedelta | None
    longest: dt.timedelta | None


def read_room(*, sale: SeckillVoucher) -> RoomFigures | None:
    """Return the figures of all openings of a sale's waiting room; None if nobody came."""
    visits = RoomVisit.objects.filter(seckill_voucher=sale)
    counts = visits.aggregate(joined=Count("pk"), let_in=Count("let_in_at"))
    if not counts["joined"]:
        return None
    # Before the start, nobody waits for others.
    since = Least("let_in_at", Greatest("joined_at", sale.begins_at))
    waits = visits.filter(let_in_at__isnull=False).annotate(waited=F("let_in_at") - since)
    ordered, last = waits.order_by("waited").values_list("waited", flat=True), counts["let_in"] - 1

    def quantile(percent: int) -> dt.timedelta | None:
        at = last * percent // 100
        return next(iter(ordered[at : at + 1]), None) if last >= 0 else None

    return RoomFigures(counts["joined"], counts["let_in"], *map(quantile, (50, 95, 100)))


def room_csv(*, sale: SeckillVoucher) -> Iterator[str]:
    """Return the parts of a CSV file: who joined the line, when, and when they were let in."""
    headings = [
        gettext("buyer"), gettext("joined at"), gettext("number"), gettext("let in at"),
        gettext("waited, in seconds"),
    ]  # fmt: skip
    visits = RoomVisit.objects.filter(seckill_voucher=sale).order_by("pk")
    fields = ("pk", "user__username", "joined_at", "given", "let_in_at")
    zone = timezone.get_current_timezone()

    def chunks() -> Iterator[Sequence[Row]]:
        last = 0
        while chunk := list(visits.filter(pk__gt=last).values_list(*fields)[:CHUNK]):
            last = chunk[-1][0]
            with timezone.override(zone):
                rows = [_cells(*row, begins_at=sale.begins_at) for _pk, *row in chunk]
            yield rows

    return csv_parts(headings, chunks())


def _cells(
    buyer: str,
    joined: dt.datetime,
    given: int,
    let_in: dt.datetime | None,
    *,
    begins_at: dt.datetime,
) -> list[object]:
    cells: list[object] = [harmless(buyer), timestamp(joined), given]
    if let_in is None:
        return [*cells, "", ""]
    waited = max(dt.timedelta(), let_in - max(joined, begins_at))
    return [*cells, timestamp(let_in), round(waited.total_seconds(), 3)]
