"""Lists of the admin: their pills and moments, and no server error for made-up queries."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django.contrib.admin import SimpleListFilter, display
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import BadRequest, FieldDoesNotExist, ValidationError
from django.db import DataError, ProgrammingError
from django.db.models import Q, QuerySet
from django.forms import Media
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from seckill_site.clocks.database import database_now
from seckill_site.formatting import NO_VALUE, timestamp, utc_offset
from seckill_site.web.admin_forms import CheckedForms
from seckill_site.web.large_lists import KeysetList, TypedFilter, typed_media

T = TypeVar("T")

_UNFIT = (ValueError, OverflowError, DataError, ProgrammingError)
"""What Python and the database raise for a value that fits no column, such as the year 10^11."""


_LOOKUP = re.compile(r"(?:__(?:exact|in|isnull|isempty|gte|lt))?$")
"""The lookups of Django's filters. No patterns: the database refuses a broken one."""


class CheckedList(CheckedForms):
    """An admin whose list checks what a URL or a form may contain."""

    list_per_page = 50
    is_large = False
    """Whether the list has the newest ids first and no total, as of a table of millions."""

    @property
    def media(self) -> Media:
        filters = [it[1] for it in self.list_filter if isinstance(it, tuple)]
        return super().media + (typed_media() if TypedFilter in filters else Media())

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return KeysetList if self.is_large else super().get_changelist(request, **kwargs)

    def get_sortable_by(self, request: HttpRequest) -> Any:
        return () if self.is_large else super().get_sortable_by(request)

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest | None = None) -> bool:
        """Allow the primary key and what the list's own filters ask for.

        Any other lookup reads a column that nobody is shown, one character after the other.

        :raises IncorrectLookupParameters: the model has no such field.
        """
        filters: Any = self.list_filter if request is None else self.get_list_filter(request)
        allowed = {"pk", self.opts.pk.name}
        for it in filters:
            if lookup == getattr(it, "parameter_name", None):
                return True
            if not isinstance(it, type):
                name = it if isinstance(it, str) else it[0]
                allowed |= {name, f"{name}__id"}
        if _LOOKUP.sub("", lookup) in allowed:
            return True
        try:
            self.opts.get_field(lookup.partition("__")[0])
        except FieldDoesNotExist as error:
            raise IncorrectLookupParameters(error) from error
        return False

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search for the whole text: a title has spaces, and its further words begin nothing."""
        text = re.sub(r'(["\\])', r"\\\1", search_term.strip())
        return super().get_search_results(request, queryset, f'"{text}"' if text else "")

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """Return the list; the admin shows it without the query if that cannot be answered."""
        try:
            return super().get_changelist_instance(request)
        except _UNFIT as error:
            if not request.GET:
                raise
            raise IncorrectLookupParameters(error) from error

    def response_action(
        self, request: HttpRequest, *args: Any, **kwargs: Any
    ) -> HttpResponse | None:
        """Run an action on the selected rows, unless their ids are no ids."""
        for value in request.POST.getlist(ACTION_CHECKBOX_NAME):
            try:
                self.opts.pk.clean(value, None)
            except ValidationError as error:
                raise BadRequest(f"{value!r} is not an id") from error
        return super().response_action(request, *args, **kwargs)


class ConditionFilter(SimpleListFilter):
    """A filter with a label and a condition for each of its values."""

    labels: Mapping[Any, Any]

    def conditions(self, now: dt.datetime) -> Mapping[Any, Q]:
        raise NotImplementedError

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return list(self.labels.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        if value not in self.labels:
            return queryset
        return queryset.filter(self.conditions(database_now())[value])


def column(
    label: Any, value: Callable[[Any], T], *, ordering: str | None = None
) -> Callable[[Any, Any], T]:
    """Return a column, or a read-only field, with this value of a row."""
    return display(description=label, ordering=ordering)(lambda _admin, row: value(row))


def pill(tone: str, label: object) -> SafeString:
    """Return a status as a pill: ``good``, ``warn``, ``bad``, ``live``, or quiet."""
    return format_html('<span class="pill{}">{}</span>', f" pill--{tone}" if tone else "", label)


def moment(value: dt.datetime | None, text: str = "") -> SafeString | str:
    """Return a moment with the shop's time zone; a script adds how far it is from now."""
    if value is None:
        return NO_VALUE
    iso = timezone.localtime(value).isoformat(timespec="seconds")
    return format_html(
        '<time datetime="{}" data-relative>{} <span class="office-zone">{}</span></time>',
        iso,
        text or timestamp(value),
        utc_offset(value),
    )
