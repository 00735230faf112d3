"""Lists of the admin that answer made-up queries and selections without a server error."""

from typing import Any

from django.contrib.admin import ModelAdmin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import IncorrectLookupParameters
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import BadRequest, ValidationError
from django.db import DataError, ProgrammingError
from django.http import HttpRequest, HttpResponse

_UNFIT = (ValueError, OverflowError, DataError, ProgrammingError)
"""What Python and the database raise for a value that fits no column, such as the year 10^11."""


class CheckedList(ModelAdmin):  # type: ignore[type-arg]
    """An admin whose list checks what a URL or a form may contain."""

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
