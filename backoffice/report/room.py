"""The waiting room in the report of a sale: how long buyers waited, in figures and one by one."""

import csv
import datetime as dt
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db.models import Count, F, QuerySet
from django.db.models.functions import Greatest
from django.utils import timezone
from django.utils.translation import gettext

from backoffice.csv_cells import harmless
from orders.models import RoomVisit
from seckill_site.formatting import timestamp
from vouchers.models import RoomKind, SeckillVoucher

BYTE_ORDER_MARK = "\ufeff"
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
    waits = _let_in(visits, sale).annotate(waited=F("let_in_at") - F("since"))
    ordered, last = waits.order_by("waited").values_list("waited", flat=True), counts["let_in"] - 1

    def quantile(percent: int) -> dt.timedelta | None:
        at = last * percent // 100
        return next(iter(ordered[at : at + 1]), None) if last >= 0 else None

    return RoomFigures(counts["joined"], counts["let_in"], *map(quantile, (50, 95, 100)))


def _let_in(visits: QuerySet[RoomVisit], sale: SeckillVoucher) -> QuerySet[RoomVisit]:
    """Return the visitors who were let in; before the start, nobody waits for others."""
    visits = visits.filter(let_in_at__isnull=False)
    if sale.room == RoomKind.START:
        return visits.annotate(since=Greatest("joined_at", sale.begins_at))
    return visits.annotate(since=F("joined_at"))


def room_csv(*, sale: SeckillVoucher) -> Iterator[str]:
    """Return the parts of a CSV file: who joined the line, when, and when they were let in."""
    head = [
        gettext("buyer"), gettext("joined at"), gettext("number"), gettext("let in at"),
        gettext("waited, in seconds"),
    ]  # fmt: skip
    starts = sale.begins_at if sale.room == RoomKind.START else None
    visits = RoomVisit.objects.filter(seckill_voucher=sale).order_by("pk")
    fields = ("pk", "user__username", "joined_at", "given", "let_in_at")
    zone = timezone.get_current_timezone()

    def parts() -> Iterator[str]:
        yield BYTE_ORDER_MARK + _lines([head])
        last = 0
        while chunk := list(visits.filter(pk__gt=last).values_list(*fields)[:CHUNK]):
            last = chunk[-1][0]
            with timezone.override(zone):
                yield _lines([_cells(*row, starts=starts) for _pk, *row in chunk])

    return parts()


def _cells(
    buyer: str,
    joined: dt.datetime,
    given: int,
    let_in: dt.datetime | None,
    *,
    starts: dt.datetime | None,
) -> list[object]:
    since = max(joined, starts) if starts else joined
    waited = "" if let_in is None else round((let_in - since).total_seconds(), 3)
    moment = "" if let_in is None else timestamp(let_in)
    return [harmless(buyer), timestamp(joined), given, moment, waited]


def _lines(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue()
