"""The history of the admin: its page in the reader's language, and forms that write to it."""

from functools import partial
from typing import Any

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse

from seckill_site.web.admin_lists import CheckedList
from vouchers.catalogue.history import history_text
from vouchers.catalogue.prices import AsksFirst, once_at_rest
from vouchers.catalogue.staff_texts import SALE_REFUSALS, refusal_text
from vouchers.models import SeckillVoucher, Voucher


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


class RecordedAdmin(CodedHistory):
    """An admin of vouchers and sales: what is refused keeps the entries, and may be a question."""

    def get_form(self, request: Any, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form: Any = super().get_form(request, obj, change, **kwargs)
        form.refusal = getattr(request, "refusal", "")
        form.entries = lambda form: _entries_about(form.instance)
        return form

    def hold(self, request: HttpRequest, form: Any) -> None:
        """Leave it to ``save_model``, which locks sales before their voucher."""

    def prepare(self, object_id: str) -> None:
        """Do what an edit needs before its transaction; raises as the edit."""

    def changeform_view(
        self, request: Any, object_id: str | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        show = partial(super().changeform_view, request, object_id, *args, **kwargs)
        try:
            if request.method == "POST" and object_id:
                self.prepare(object_id)
            return once_at_rest(show)
        except AsksFirst as question:
            asked = {"question": question, "why": request.POST.get("why", "")}
            request.refusal = render_to_string("admin/vouchers/asks_first.html", asked)
            request.asks = True
        except SALE_REFUSALS as error:
            request.refusal = refusal_text(error)
        return show()  # again, with the refusal

    def construct_change_message(
        self, request: HttpRequest, form: Any, formsets: Any, add: bool = False
    ) -> Any:
        if add:
            return super().construct_change_message(request, form, formsets, add)
        return form.history_entry()


def _entries_about(shown: Voucher | SeckillVoucher) -> QuerySet[LogEntry]:
    """Return the log's entries about a voucher and its sales: the form of each has the voucher."""
    voucher_id = shown.pk if isinstance(shown, Voucher) else shown.voucher_id
    sales = SeckillVoucher.objects.filter(voucher=voucher_id).values_list("pk", flat=True)
    kinds = ContentType.objects.get_for_models(Voucher, SeckillVoucher)
    about = Q(content_type=kinds[Voucher], object_id=str(voucher_id))
    about |= Q(content_type=kinds[SeckillVoucher], object_id__in=map(str, sales))
    return LogEntry.objects.filter(about)
