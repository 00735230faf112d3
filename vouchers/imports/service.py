"""The import of vouchers from a file: a preview, then all of it or nothing (``docs/adr/0014``).

In between, the rows are in the cache, which all web machines share. If the cache loses them, the
file must be uploaded again. A confirmed import is planned again with its vouchers locked, and must
do what the preview showed.
"""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.cache import cache
from django.db import models, transaction
from django.utils import translation
from django.utils.text import Truncator
from django.utils.translation import gettext_lazy as _

from vouchers.catalogue.history import Change, Value, cents, entry, field_change
from vouchers.catalogue.prices import close_to_reprice, lock_to_reprice, once_at_rest
from vouchers.catalogue.series import PlannedSale, create_sales
from vouchers.catalogue.staff_texts import StaffRefusal
from vouchers.imports.plan import Importer, Plan, PlannedRow, make_plan
from vouchers.imports.rows import TextRow, read_row, text_rows
from vouchers.imports.spreadsheet import read_sheet
from vouchers.models import Merchant, Voucher

KEPT_S = 3600
"""Seconds for which a preview can be confirmed."""


class PreviewGone(StaffRefusal):
    """There is no such preview: it was confirmed before, is too old, or the cache has lost it."""

    message = _(
        "This preview has already been confirmed or is more than an hour old. If "
        "its vouchers do not appear in the list shortly, upload the file again."
    )


class PreviewNotKept(StaffRefusal):
    """The cache did not store the preview, so it could not be confirmed."""

    message = _("The cache did not respond. Nothing was imported. Try again in a moment.")


class VouchersChanged(StaffRefusal):
    """Vouchers or sales have changed since the preview; ``preview`` is the new one."""

    message = _(
        "Nothing was imported: vouchers or sales have changed since the preview. Here is what "
        "the file would do now."
    )

    def __init__(self, preview: Preview) -> None:
        super().__init__()
        self.preview = preview


@dataclass(frozen=True)
class Preview:
    """A plan to review; ``key`` confirms it, and is empty if there is nothing to confirm."""

    file_name: str
    plan: Plan
    key: str


def preview_import(*, content: bytes, file_name: str, by: Importer, now: dt.datetime) -> Preview:
    """Return what a file would do; nothing is written.

    :raises vouchers.imports.spreadsheet.FileRefused: the file cannot be read.
    :raises PreviewNotKept: the cache did not respond.
    """
    return _preview(text_rows(read_sheet(content)), file_name, by, now)


def confirm_import(*, key: str, by: Importer, now: dt.datetime) -> Plan:
    """Do what a preview has shown, all or nothing, and return the plan.

    :raises PreviewGone: there is no such preview; nothing was written.
    :raises VouchersChanged: the plan has changed since; nothing was written.
    :raises OrdersOnTheirWay: a price would change; nothing was written.
    """
    name = _cache_key(by, key)
    kept = cache.get(name)
    if kept is None or not cache.delete(name):  # if two confirm it, only one deletes it
        raise PreviewGone
    file_name, cells, digest, language = kept
    rows = [TextRow(*row) for row in cells]
    read = [read_row(row) for row in rows]
    prices = {
        it.voucher_id: it.details["price_cents"] for it in read if "price_cents" in it.details
    }

    def carry_out() -> Plan | None:
        with transaction.atomic(durable=True):
            locked = lock_to_reprice(prices=prices)
            with translation.override(language):  # its warnings count among what was shown
                plan = make_plan(rows=read, by=by, now=now, hold=True)
            if plan.digest != digest:
                return None
            repriced = [
                it.voucher.pk for it in plan.rows if it.voucher and "price_cents" in it.after
            ]
            close_to_reprice(voucher_ids=repriced, locked=locked)
            _write(plan, file_name, by)
            return plan

    plan = once_at_rest(carry_out)
    if plan is None:
        raise VouchersChanged(_preview(rows, file_name, by, now))
    return plan


def _preview(rows: Sequence[TextRow], file_name: str, by: Importer, now: dt.datetime) -> Preview:
    plan = make_plan(rows=[read_row(row) for row in rows], by=by, now=now)
    key = secrets.token_urlsafe(16) if plan.writes else ""
    cells = [(row.number, row.cells) for row in rows]
    kept = (file_name, cells, plan.digest, translation.get_language())
    if key and not cache.add(_cache_key(by, key), kept, timeout=KEPT_S):
        raise PreviewNotKept
    return Preview(file_name, plan, key)


def _cache_key(by: Importer, key: str) -> str:
    return f"voucher-import-2:{by.user_id}:{key[:64]}"


def _write(plan: Plan, file_name: str, by: Importer) -> None:
    log: list[LogEntry] = []
    on_sale = []
    for row in plan.rows:
        voucher = _write_voucher(row)
        if row.after:
            flag = CHANGE if row.voucher else ADDITION
            log.append(_log_entry(by, voucher, flag, _history_entry(row, file_name)))
        if row.terms:
            on_sale.append(PlannedSale(row.number, voucher, row.terms))
    why = entry(("imported", {"file": file_name}))
    log += [_log_entry(by, sale, ADDITION, why) for sale in create_sales(plan=on_sale)]
    LogEntry.objects.bulk_create(log, batch_size=500)


def _write_voucher(row: PlannedRow) -> Voucher:
    voucher = row.voucher or Voucher()
    for name, value in row.after.items():
        setattr(voucher, name, value)
    if row.voucher is None and voucher.merchant is None:
        voucher.merchant = Merchant.default()
    if row.after:
        voucher.clean_fields(exclude={"picture", "merchant"})
        voucher.save(update_fields=list(row.after) if row.voucher else None)
    return voucher


def _history_entry(row: PlannedRow, file_name: str) -> str:
    changes: list[Change] = [("imported_row", {"file": file_name, "row": row.number})]
    for name, after in row.after.items() if row.voucher else ():
        values = (_as_value(name, it) for it in (row.before.get(name), after))
        changes.append(field_change(name, *values))
    return entry(*changes)


def _as_value(name: str, value: Any) -> Value:
    if value in (None, ""):
        return None
    return cents(value) if name.endswith("_cents") else str(Truncator(value).chars(40))


def _log_entry(by: Importer, thing: models.Model, flag: int, message: str) -> LogEntry:
    return LogEntry(
        user_id=by.user_id,
        content_type=ContentType.objects.get_for_model(thing),
        object_id=str(thing.pk),
        object_repr=str(thing)[:200],
        action_flag=flag,
        change_message=message,
    )
