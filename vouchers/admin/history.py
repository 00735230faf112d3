"""The history page of the admin, with its coded entries in the reader's language."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from seckill_site.web.admin_lists import CheckedList
from vouchers.catalogue.history import history_text


class CodedHistory(CheckedList):
    """An admin whose history has codes with values."""

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Write the texts of the entries into them, for Django's page."""
        response = super().history_view(request, object_id, extra_context)
        if isinstance(response, TemplateResponse) and response.context_data:
            for row in response.context_data["action_list"]:
                row.change_message = history_text(row)
        return response
