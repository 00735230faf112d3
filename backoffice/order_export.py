"""Export any number of orders as a CSV file that Excel opens correctly.

The ids are read first, after the last id of the window before, and then the rows of each part. A
slow download holds no cursor and no transaction, and memory does not grow. Orders written after the
export has started are not in the file.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from django.db.models import Max, Q, QuerySet
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce
from django.utils import timezone
from django.utils.translation import gettext

from backoffice.revenue import EVER_PAID, PAYMENT
from orders.lifecycle.redemption import written_code
from orders.models import OrderEvent, OrderStatus, Payment, RefusalReason, VoucherOrder
from seckill_site.formatting import plain_money, utc_offset
from seckill_site.web.csv_files import Row, exact, harmless
from vouchers.inventory.purchases import purchase_of
from vouchers.models import SeckillVoucher

CHUNK, WINDOW = 2_000, 20_000
"""Orders in one part of the file, and ids read by one statement."""

_FIELDS = (
    "pk", "seckill_voucher_id", "user__username", "unit", "status", "reason", "price_cents",
    "accepted_at", "created_at", "code",
)  # fmt: skip


class Export(NamedTuple):
    """The rows of a file, which are read when they are sent."""

    headings: Row
    chunks: Iterator[Sequence[Row]]


def export_orders(*, orders: QuerySet[VoucherOrder], codes: bool, now: dt.datetime) -> Export:
    """Return the orders as rows of a CSV file, oldest first.

    ``codes`` says whether voucher codes, which are worth money, are shown in full.
    """
    newest = VoucherOrder.objects.aggregate(Max("pk"))["pk__max"] or 0
    chunks = _chunks(orders, newest)
    # In the reader's language and zone, which are others when the parts are sent.
    labels = {it.value: str(it.label) for it in (*OrderStatus, *RefusalReason)}
    zone = timezone.get_current_timezone()
    return Export(_headings(now), (list(_rows(it, labels, zone, codes=codes)) for it in chunks))


def _chunks(orders: QuerySet[VoucherOrder], newest: int) -> Iterator[list[Any]]:
    """Yield the orders in lists, sorted by id."""
    last, sorted_orders = 0, orders.order_by("pk")
    ids = sorted_orders.values_list("pk", flat=True)
    while window := list(ids.filter(pk__gt=last, pk__lte=newest)[:WINDOW]):
        last = window[-1]
        for start in range(0, len(window), CHUNK):
            rows = sorted_orders.filter(pk__in=_among(window[start : start + CHUNK]))
            yield list(rows.values_list(*_FIELDS))
        if len(window) < WINDOW:
            return


def _among(ids: Sequence[int]) -> RawSQL:
    """Return a list for ``IN``: Django takes a fifth of an export to prepare each of its values."""
    return RawSQL(", ".join(map(str, ids)), ())


# --- Rows ----------------------------------------------------------------------------------------


def _headings(now: dt.datetime) -> list[str]:
    # The time zone with its offset, or with both offsets if the clocks change.
    offsets = dict.fromkeys(utc_offset(now.replace(month=month, day=1)) for month in (1, 7))
    zone = f"{timezone.get_current_timezone_name()}, {'/'.join(offsets)}"
    at = [gettext("accepted at"), gettext("written at"), gettext("paid at"), gettext("used at")]
    return [
        gettext("order id"), gettext("sale id"), gettext("voucher"), gettext("buyer"),
        gettext("voucher number"), gettext("status"), gettext("reason"), gettext("price in yuan"),
        *(f"{heading} ({zone})" for heading in at),
        gettext("voucher code"), gettext("payment reference"),
        gettext("merchant"), gettext("purchase"),
    ]  # fmt: skip


def _rows(
    chunk: Sequence[Any], labels: Mapping[str, str], zone: dt.tzinfo, *, codes: bool
) -> Iterator[list[object]]:
    paid = _among([order[0] for order in chunk if order[4] in EVER_PAID] or [0])
    moments, sales = _moments(paid), _sales({order[1] for order in chunk})
    payments = Payment.objects.filter(order__in=paid, settles=True).order_by("pk")
    known_there = Coalesce("charge__reference", "reference")  # what the provider's lists name
    references = dict(payments.values_list("order_id", known_there))
    for pk, sale, buyer, unit, status, reason, cents, accepted, written, code in chunk:
        title, merchant = sales[sale]
        used = moments.get((pk, "used")) if status == OrderStatus.USED else None
        at = (accepted, written, moments.get((pk, "paid")), used)
        yield [
            exact(str(pk)),
            sale,
            title,
            harmless(buyer or ""),
            unit,
            labels[status],
            labels.get(reason, reason),
            plain_money(cents),
            *(_local(moment, zone) for moment in at),
            _code(code or "", codes=codes),
            exact(references.get(pk, "")),
            merchant,
            exact(str(purchase_of(pk))),
        ]


def _sales(ids: Collection[int]) -> dict[int, tuple[str, str]]:
    """Return the title and the merchant of each of these sales, as cells."""
    sales = SeckillVoucher.objects.filter(pk__in=ids)
    rows = sales.values_list("pk", "voucher__title", "voucher__merchant__name")
    return {pk: (harmless(title), harmless(merchant or "")) for pk, title, merchant in rows}


def _moments(order_ids: RawSQL) -> dict[tuple[int, str], dt.datetime]:
    """Return the times at which orders were paid and last used."""
    changes = PAYMENT | Q(after=OrderStatus.USED)
    events = OrderEvent.objects.filter(changes, order__in=order_ids).order_by("pk")
    return {(pk, to): at for pk, to, at in events.values_list("order_id", "after", "at")}


# --- Cells ---------------------------------------------------------------------------------------


def _local(moment: dt.datetime | None, zone: dt.tzinfo) -> str:
    if moment is None:
        return ""
    return str(moment.astimezone(zone))[: len("2026-11-26 20:00:00")]


def _code(code: str, *, codes: bool) -> str:
    """Return a code in groups, which a spreadsheet does not take for a number."""
    if not code:
        return ""
    return written_code(code) if codes else f"****-****-****-{code[-4:]}"
