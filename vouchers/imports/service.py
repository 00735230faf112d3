"""Importing vouchers from a file: first a preview to look at, then all of it or nothing.

Between the two the rows stand in the cache, which all web machines share, so each step may reach
any of them. A file on a machine's disk would be there only; a hidden field of megabytes is more
than the site takes; a table would want its own clearing up. The cache may lose them: then the file
is uploaded again.

What is confirmed is planned once more, with its vouchers held, and has to be what was looked at.
"""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.cache import cache
from django.db import models, transaction
from django.utils.text import Truncator
from django.utils.translation import gettext, pgettext

from vouchers.catalogue.history import change_line
from vouchers.catalogue.series import PlannedSale, create_sales
from vouchers.imports.plan import Plan, PlannedRow, What, make_plan
from vouchers.imports.rows import TextRow, read_rows, text_rows
from vouchers.imports.spreadsheet import read_sheet
from vouchers.models import Voucher

KEPT_S = 3600
"""So long a preview waits to be confirmed."""


class PreviewGone(Exception):
    """There is no such preview: it was confirmed before, is too old, or the cache has lost it."""


class PreviewNotKept(Exception):
    """The cache did not take the preview, so it could not be confirmed."""


class VouchersChanged(Exception):
    """Vouchers or sales have changed since the preview; ``preview`` is what would be done now."""

    def __init__(self, preview: Preview) -> None:
        super().__init__(preview.file_name)
        self.preview = preview


@dataclass(frozen=True)
class Importer:
    """Who imports, whether they may make sales, and change vouchers that are on sale now."""

    user_id: int
    may_sell: bool
    may_run: bool = True

    @property
    def may(self) -> dict[str, bool]:
        return {"may_sell": self.may_sell, "may_run": self.may_run}


@dataclass(frozen=True)
class Preview:
    """A plan to look at; ``key`` confirms it, and is empty where there is nothing to confirm."""

    file_name: str
    plan: Plan
    key: str


def preview_import(*, content: bytes, file_name: str, by: Importer, now: dt.datetime) -> Preview:
    """Return what a file would do; nothing is written.

    :raises vouchers.imports.spreadsheet.FileRefused: the file cannot be read.
    :raises PreviewNotKept: the cache did not answer.
    """
    rows = text_rows(read_sheet(content))
    return _preview(rows, file_name, by, now)


def confirm_import(*, key: str, by: Importer, now: dt.datetime) -> Plan:
    """Do what a preview has shown, all or nothing, and return it.

    :raises PreviewGone: there is no such preview (any more); nothing was written.
    :raises VouchersChanged: it would not do the same any more; nothing was written.
    """
    file_name, rows, digest = _claim(by.user_id, key)
    read = read_rows(rows)
    with transaction.atomic(durable=True):
        plan = make_plan(rows=read, now=now, hold=True, **by.may)
        if plan.digest == digest:
            _write(plan, file_name, by)
            return plan
    raise VouchersChanged(_preview(rows, file_name, by, now))


# --- Between preview and confirmation ------------------------------------------------------------


def _preview(rows: Sequence[TextRow], file_name: str, by: Importer, now: dt.datetime) -> Preview:
    plan = make_plan(rows=read_rows(rows), now=now, **by.may)
    key = secrets.token_urlsafe(16) if plan.writes else ""
    kept = (file_name, [(row.number, row.cells) for row in rows], plan.digest)
    if key and not cache.add(_name(by.user_id, key), kept, timeout=KEPT_S):
        raise PreviewNotKept
    return Preview(file_name, plan, key)


def _claim(user_id: int, key: str) -> tuple[str, list[TextRow], str]:
    """Take a preview out of the cache: of two who confirm it, one gets it."""
    name = _name(user_id, key)
    kept = cache.get(name)
    if kept is None or not cache.delete(name):
        raise PreviewGone
    file_name, rows, digest = kept
    return file_name, [TextRow(number, cells) for number, cells in rows], digest


def _name(user_id: int, key: str) -> str:
    return f"voucher-import:{user_id}:{key[:64]}"


# --- Writing -------------------------------------------------------------------------------------


def _write(plan: Plan, file_name: str, by: Importer) -> None:
    log: list[LogEntry] = []
    on_sale = []
    for row in plan.rows:
        voucher = _written(row)
        if row.after:
            log.append(
                _entry(
                    by,
                    voucher,
                    CHANGE if row.what == What.CHANGED else ADDITION,
                    _why(row, file_name),
                )
            )
        if row.terms:
            on_sale.append(PlannedSale(row.number, voucher, row.terms))
    why = gettext("Imported from %(file)s.") % {"file": file_name}
    log += [_entry(by, sale, ADDITION, why) for sale in create_sales(plan=on_sale)]
    LogEntry.objects.bulk_create(log, batch_size=500)


def _written(row: PlannedRow) -> Voucher:
    """Write one voucher, unless nothing of it changes."""
    voucher = row.voucher or Voucher()
    for name, value in row.after.items():
        setattr(voucher, name, value)
    if row.after:
        voucher.clean_fields(exclude={"picture"})
        voucher.save(update_fields=list(row.after) if row.voucher else None)
    return voucher


def _why(row: PlannedRow, file_name: str) -> str:
    text = gettext("Imported from %(file)s, row %(row)s.")
    text %= {"file": file_name, "row": row.number}
    if row.what == What.NEW:
        return text
    lines = (change_line(name, _short(old), _short(new)) for name, old, new in row.changes)
    return f"{text} {pgettext('between changes', '; ').join(lines)}"


def _short(text: str) -> str:
    return Truncator(text).chars(40) or "–"


def _entry(by: Importer, thing: models.Model, flag: int, message: str) -> LogEntry:
    return LogEntry(
        user_id=by.user_id,
        content_type=ContentType.objects.get_for_model(thing),
        object_id=str(thing.pk),
        object_repr=str(thing)[:200],
        action_flag=flag,
        change_message=message,
    )
