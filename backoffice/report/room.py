"""The waiting room in the report of a sale: how long buyers waited, in figures and one by one."""

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db.models import Count, F, Max
from django.db.models.functions import Greatest, Least
from django.utils import timezone
from django.utils.translation import gettext

from backoffice.report.durations import Durations, measure_durations
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
    longest: dt.timedelta | None
    waited: Durations


def read_room(*, sale: SeckillVoucher) -> RoomFigures | None:
    """Return the figures of all openings of a sale's waiting room; None if nobody came."""
    visits = RoomVisit.objects.filter(seckill_voucher=sale)
    # Before the start, nobody waits for others.
    waited = F("let_in_at") - Least("let_in_at", Greatest("joined_at", sale.begins_at))
    counts = visits.aggregate(joined=Count("pk"), let_in=Count("let_in_at"), longest=Max(waited))
    if not counts["joined"]:
        return None
    durations = measure_durations(
        visits.filter(let_in_at__isnull=False),
        waited,
        sampled={"pk__in": visits},
        count=counts["let_in"],
    )
    return RoomFigures(**counts, waited=durations)


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
