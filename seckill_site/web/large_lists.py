"""Lists of large tables: by id without a total, and filters that complete what is typed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import PAGE_VAR, ChangeList
from django.contrib.admin.widgets import AutocompleteSelect
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from seckill_site.web.url_converters import LARGEST_ID


class KeysetList(ChangeList):
    """A list of the newest ids; ``p`` is the last id of the page before.

    It reads the ids first and then the rows of one page, and counts nothing. ``older`` is the query
    of the next page, if there is one, and ``newest`` that of the first one, if this is another.
    """

    older = newest = ""

    def get_results(self, request: HttpRequest) -> None:
        ids = self.queryset.order_by("-pk").values_list("pk", flat=True)
        if self.page_num > LARGEST_ID:
            raise IncorrectLookupParameters
        if self.page_num > 1:
            self.newest = self.get_query_string()
            ids = ids.filter(pk__lt=self.page_num)
        found = list(ids[: self.list_per_page + 1])
        page = found[: self.list_per_page]
        if is_more := len(found) > len(page):
            self.older = self.get_query_string({PAGE_VAR: page[-1]})
        rows = self.apply_select_related(self.root_queryset.filter(pk__in=page))
        self.result_list = list(rows.order_by("-pk"))
        self.result_count = self.full_result_count = len(page) + is_more
        self.can_show_all = self.multi_page = self.show_full_result_count = False
        self.show_admin_actions = True
        self.paginator = Paginator(page, self.list_per_page)


def typed_media() -> forms.Media:
    """Return the scripts and styles of a list with a :class:`TypedFilter`."""
    return AutocompleteSelect(None, admin.site).media


class TypedFilter(admin.RelatedFieldListFilter):
    """The rows of one thing, such as a sale, which is found by what is typed.

    A path over several tables leads to the ids of the first one, so the list joins none.
    """

    template = "admin/typed_filter.html"
    lookup_val: Any

    def field_choices(self, field: Any, request: HttpRequest, model_admin: Any) -> Any:
        """Return no choices: there may be thousands."""
        self.site = model_admin.admin_site
        return []

    def has_output(self) -> bool:
        return True

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> Any:
        first, _dunder, rest = self.field_path.partition("__")
        if not rest or not self.used_parameters:
            return super().queryset(request, queryset)
        rows: Any = queryset.model._meta.get_field(first).related_model
        ids = rows.objects.filter(**{rest: int(self.lookup_val[-1])}).values_list("pk", flat=True)
        return queryset.filter(**{f"{first}__in": list(ids)})

    def choices(self, changelist: ChangeList) -> Iterator[Any]:
        """Yield what leads back to all rows; what is chosen is in the field itself."""
        name = self.lookup_kwarg
        back = changelist.get_query_string(remove=[name])
        yield {"display": _("All"), "selected": not self.lookup_val, "query_string": back}
        field: Any = self.field
        related = field.remote_field.model
        widget = AutocompleteSelect(field, self.site, attrs={"data-width": "18rem"})
        typed = forms.ModelChoiceField(related.objects, required=False, widget=widget)
        chosen = related.objects.filter(pk__in=self.lookup_val or [])
        for it in chosen:
            yield {"display": str(it), "selected": True, "query_string": "?"}
        self.html = typed.widget.render(name, [str(it.pk) for it in chosen])
        params = changelist.get_filters_params().items()
        self.others = [(key, it) for key, values in params if key != name for it in values]
