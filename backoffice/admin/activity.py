"""The list of activity: what staff did and saw, with Django's history, for owners."""

import datetime as dt
import heapq
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import F, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.dateparse import parse_date
from django.utils.http import urlencode
from django.utils.translation import gettext

from accounts.usernames import find_by_username
from backoffice.activity import MODELS
from backoffice.admin.pages import office
from seckill_site.models import Activity
from seckill_site.web.text_files import read_texts
from vouchers.catalogue.history import history_text

TEXTS = read_texts(Path(__file__).parents[1] / "activity_texts.toml")
PER_PAGE = 50


@office.page("activity/", name="activity")
def activity_page(request: HttpRequest) -> HttpResponse:
    """Show what staff did and saw, by time, person and kind."""
    if not request.user.is_superuser:
        raise PermissionDenied
    names = ("who", "kind", "day", "before")
    asked: dict[str, Any] = {name: request.GET.get(name, "").strip()[:254] for name in names}
    rows = newest(user=asked["who"], kind=asked["kind"], before=_before(asked))
    last = rows[PER_PAGE - 1].at.isoformat() if len(rows) > PER_PAGE else ""
    older = urlencode(asked | {"before": last}) if last else ""
    title, kinds, rows = gettext("Activity"), TEXTS["labels"].items(), rows[:PER_PAGE]
    shown = asked | {"title": title, "kinds": kinds, "lines": _lines(rows), "older": older}
    return office.show(request, "activity.html", **shown)


def newest(*, user: str = "", kind: str = "", before: dt.datetime | None = None) -> list[Any]:
    """Return the newest entries of both tables before a time, one more than a page shows.

    Each is read backwards by its key: both grow for years.
    """
    own, django = Activity.objects.all(), LogEntry.objects.annotate(at=F("action_time"))
    tables: list[QuerySet[Any]] = [own.filter(kind=kind) if kind else own]
    if kind in ("", "history"):
        tables.append(django.select_related("content_type"))
    if user:
        found = find_by_username(user)
        tables = [it.filter(user_id=found.pk if found else 0) for it in tables]
    if before:
        tables = [it.filter(at__lt=before) for it in tables]
    parts = [it.order_by("-pk")[: PER_PAGE + 1] for it in tables]
    merged = heapq.merge(*parts, key=lambda row: row.at, reverse=True)
    return list(islice(merged, PER_PAGE + 1))


def _before(asked: dict[str, str]) -> dt.datetime | None:
    with suppress(ValueError, OverflowError):
        if asked["before"]:
            return dt.datetime.fromisoformat(asked["before"]).astimezone(dt.UTC)
        if day := parse_date(asked["day"]):
            return dt.datetime.combine(day, dt.time.max).astimezone(dt.UTC)
    return None


def _lines(rows: list[Any]) -> list[dict[str, Any]]:
    """Return what the page shows of these rows, with the names of now."""
    about = [getattr(row, "about", "").partition(":")[::2] for row in rows]
    ids = {row.user_id for row in rows} | {number for noun, number in about if noun == "user"}
    names = {str(it.pk): it.get_username() for it in User.objects.filter(pk__in=ids)}
    lines = []
    for row, (noun, number) in zip(rows, about, strict=True):
        unnamed = TEXTS["about"]["user"] % {"id": row.user_id}
        line = {"at": row.at, "who": names.get(str(row.user_id), unnamed)}
        if isinstance(row, LogEntry):
            line |= {"what": history_text(row), "about": row.object_repr}
            line["url"] = row.get_admin_url()
        else:
            line |= {"what": TEXTS["labels"].get(row.kind, row.kind), "address": row.address}
            if text := TEXTS["about"].get(noun):
                line["about"] = (noun == "user" and names.get(number)) or text % {"id": number}
                line["url"] = reverse(f"admin:{MODELS[noun]}_change", args=[number])
        lines.append(line)
    return lines
