"""Pausing and resuming the chosen sales, after a page that asks for the reason."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext

from backoffice.admin.board import carry_out
from backoffice.admin.pages import SALE, check_may, office
from backoffice.board.actions import ACTION_REFUSALS, ACTIONS
from vouchers.admin.sale_list import list_of, page_action
from vouchers.admin.series import chosen_sales
from vouchers.catalogue.history import text_of
from vouchers.catalogue.live_changes import TermsChanged
from vouchers.catalogue.staff_texts import refusal_text
from vouchers.models import RUN_PERMISSION, SeckillVoucher

PAUSES = ("pause", "resume")
PAUSE_ACTIONS = [page_action(it, ACTIONS[it].texts["button"], permission="run") for it in PAUSES]


def pause_page(request: HttpRequest, *, action_name: str) -> HttpResponse:
    """Ask for the reason, then pause or resume each sale that allows it; say which do not."""
    check_may(request, RUN_PERMISSION)
    action = ACTIONS[action_name]
    sales = chosen_sales(request, office.get_model_admin(SeckillVoucher))
    form = action.form(request.POST or None)
    if not form.is_valid():
        texts = {"title": action.texts["button"], "yes": action.texts["confirm"]}
        shown = {"opts": SALE, "sales": sales, "form": form, "back": list_of([]), **texts}
        return office.show(request, "vouchers/seckillvoucher/pauses.html", **shown)
    for sale in sales:
        try:
            _, change = carry_out(request, sale.pk, action, form.cleaned_data)
            level, text = messages.SUCCESS, text_of(change)
        except TermsChanged:
            level, text = messages.WARNING, action.texts["already"]
        except (*ACTION_REFUSALS, SeckillVoucher.DoesNotExist) as error:
            level, text = messages.ERROR, refusal_text(error)
        said = gettext("%(names)s: %(reason)s") % {"names": sale, "reason": text}
        messages.add_message(request, level, said)
    return HttpResponseRedirect(list_of([it.pk for it in sales]))


for _name in PAUSES:
    _route = f"vouchers/seckillvoucher/{_name}/"
    office.page(_route, name=f"sale-{_name}", action_name=_name)(pause_page)
