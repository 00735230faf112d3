"""The import of vouchers from a file: a preview, then all of it or nothing (``docs/adr/0014``).

In between, the rows are in the cache, which all web machines share. If the cache loses them, the
file must be uploaded again. A confirmed import is planned again with its vouchers locked, and must
do what the preview showed.
"""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.cache import cache
from django.db import models, transaction
from django.utils import translation
from django.utils.text import Truncator

from vouchers.catalogue.history import Change, Value, cents, entry, field_change
from vouchers.catalogue.prices import close_to_reprice, lock_to_reprice, once_at_rest
from vouchers.catalogue.series import PlannedSale, create_sales
from vouchers.catalogue.staff_texts import StaffRefusal
from vouchers.imports.plan import Importer, Plan, PlannedRow, make_plan
from vouchers.imports.rows import TextRow, read_row, text_rows
from vouchers.imports.spreadsheet import read_sheet
from vouchers.imports.texts import OUTCOME
from vouchers.models import Merchant, Voucher

KEPT_S = 3600
"""Seconds for which a preview can be confirmed."""


class PreviewGone(StaffRefusal):
    """There is no such preview: it was confirmed before, is too old, or the cache has lost it."""

    message = OUTCOME["gone"]


class PreviewNotKept(StaffRefusal):
    """The cache did not store the preview, so it could not be confirmed."""

    message = OUTCOME["not_kept"]


class VouchersChanged(StaffRefusal):
    """Vouchers or sales have changed since the preview; ``preview`` is the new one."""

    message = OUTCOME["changed"]

    def __init__(self, preview: Preview) -> None:
        super().__init__()
        self.preview = preview


class ReasonMissing(VouchersChanged):
    """A price of what is on sale now would change, or vouchers be refunded, without a reason."""

    message = OUTCOME["no_reason"]


@dataclass(frozen=True)
class Preview:
    """A plan to review; ``key`` confirms it, or adds its merchants, if there is anything to do."""

    file_name: str
    plan: Plan
    key: str


def preview_import(*, content: bytes, file_name: str, by: Importer, now: dt.datetime) -> Preview:
    """Return what a file would do; nothing is written.

    :raises vouchers.imports.spreadsheet.FileRefused: the file cannot be read.
    :raises PreviewNotKept: the cache did not respond.
    """
    return _preview(text_rows(read_sheet(content)), file_name, by, now)


def confirm_import(*, key: str, by: Importer, now: dt.datetime, why: str = "") -> Plan:
    """Do what a preview has shown, all or nothing, and return the plan.

    :raises PreviewGone: there is no such preview; nothing was written.
    :raises VouchersChanged: the plan has changed since; nothing was written.
    :raises ReasonMissing: a price of what is on sale now would change; nothing was written.
    :raises OrdersOnTheirWay: a price would change; nothing was written.
    """
    file_name, rows, digest, language = _take(key, by)
    with translation.override(language):  # its texts count among what was shown
        read = [read_row(row) for row in rows]
    prices = {
        it.voucher_id: it.details["price_cents"] for it in read if "price_cents" in it.details
    }

    def carry_out() -> Plan | None:
        with transaction.atomic(durable=True):
            locked = lock_to_reprice(prices=prices)
            with translation.override(language):
                plan = make_plan(rows=read, by=by, now=now, hold=True)
                is_shown = plan.digest == digest and plan.writes
            if not is_shown or (plan.needs_reason and not why):
                return None
            repriced = [
                it.voucher.pk for it in plan.rows if it.voucher and "price_cents" in it.after
            ]
            close_to_reprice(voucher_ids=repriced, locked=locked)
            _write(plan, file_name, by, why)
            return plan

    plan = once_at_rest(carry_out)
    if plan is None:
        preview = _preview(rows, file_name, by, now)
        is_missing = preview.plan.needs_reason and not why
        raise (ReasonMissing if is_missing else VouchersChanged)(preview)
    return plan


def add_merchants(*, key: str, names: Collection[str], by: Importer, now: dt.datetime) -> Preview:
    """Add merchants that a previewed file names, and return its new preview.

    :raises PreviewGone: there is no such preview; nothing was written.
    """
    file_name, rows, _digest, _language = _take(key, by)
    plan = make_plan(rows=[read_row(row) for row in rows], by=by, now=now)
    why = entry(("imported", {"file": file_name}))
    with transaction.atomic(durable=True):
        Merchant.default()  # the oldest one: it must not become one of these
        for name in plan.unknown_merchants if by.may_add_merchants else ():
            if name in names:
                merchant, is_new = Merchant.objects.get_or_create(name=name)
                if is_new:
                    _log_entry(by, merchant, ADDITION, why).save()
    return _preview(rows, file_name, by, now)


def _preview(rows: Sequence[TextRow], file_name: str, by: Importer, now: dt.datetime) -> Preview:
    plan = make_plan(rows=[read_row(row) for row in rows], by=by, now=now)
    has_use = plan.writes or plan.unknown_merchants
    key = secrets.token_urlsafe(16) if has_use else ""
    cells = [(row.number, row.cells, row.bad) for row in rows]
    kept = (file_name, cells, plan.digest, translation.get_language())
    if key and not cache.add(_cache_key(by, key), kept, timeout=KEPT_S):
        raise PreviewNotKept
    return Preview(file_name, plan, key)


def _take(key: str, by: Importer) -> tuple[str, list[TextRow], str, str]:
    """Return what a preview has kept: its file, rows, digest and language; nobody else gets it.

    :raises PreviewGone: there is no such preview.
    """
    name = _cache_key(by, key)
    kept = cache.get(name)
    if kept is None or not cache.delete(name):  # if two confirm it, only one deletes it
        raise PreviewGone
    file_name, cells, digest, language = kept
    return file_name, [TextRow(*row) for row in cells], digest, language


def _cache_key(by: Importer, key: str) -> str:
    return f"voucher-import-3:{by.user_id}:{key[:64]}"


def _write(plan: Plan, file_name: str, by: Importer, why: str) -> None:
    log: list[LogEntry] = []
    on_sale = []
    for row in plan.rows:
        voucher = _write_voucher(row)
        if row.after:
            flag = CHANGE if row.voucher else ADDITION
            log.append(_log_entry(by, voucher, flag, _history_entry(row, file_name, why)))
        if row.terms:
            on_sale.append(PlannedSale(row.number, voucher, row.terms))
    source = entry(("imported", {"file": file_name}))
    log += [_log_entry(by, sale, ADDITION, source) for sale in create_sales(plan=on_sale)]
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


def _history_entry(row: PlannedRow, file_name: str, why: str) -> str:
    changes: list[Change] = [("imported_row", {"file": file_name, "row": row.number})]
    for name, after in row.after.items() if row.voucher else ():
        values = (_as_value(name, it) for it in (row.before.get(name), after))
        changes.append(field_change(name, *values))
    return entry(*changes, why=why if row.running or row.due else "")


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
