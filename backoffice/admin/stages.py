"""Publishing and withdrawing sales, one or many, each after a page that asks first."""

from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path

from django import forms
from django.contrib import messages
from django.db import transaction
from django.db.models import Count
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext

from backoffice.admin.pages import SALE, check_may, log_change, office
from backoffice.board.action_base import OptionalReasonForm
from orders.models import InvitationCode
from seckill_site.clocks.database import database_now
from seckill_site.formatting import listed
from seckill_site.web.text_files import counted, read_texts
from vouchers.admin.sale_list import list_of, page_action
from vouchers.admin.series import PlanChanged, chosen_sales
from vouchers.catalogue.form_hints import Hint, checklist
from vouchers.catalogue.history import choice, entry, field_change
from vouchers.catalogue.live_changes import TermsChanged
from vouchers.catalogue.public_sales import revision_of
from vouchers.catalogue.sales import stage_sale, terms_of
from vouchers.catalogue.series import overlapping_sales
from vouchers.catalogue.staff_texts import SALE_REFUSALS, refusal_text
from vouchers.inventory.rebuild import load_unless_removed
from vouchers.models import SaleStage, SeckillVoucher

STEPS = {
    "publish": (SaleStage.DRAFT, SaleStage.PUBLIC),
    "withdraw": (SaleStage.PUBLIC, SaleStage.DRAFT),
}
"""From which stage to which."""

_TEXTS = read_texts(Path(__file__).with_name("stage_texts.toml"))


class ShownForm(OptionalReasonForm):
    """The sales as the page showed them, and a reason."""

    looked_at = forms.CharField(widget=forms.HiddenInput)


STAGE_ACTIONS = [page_action(it, _TEXTS[it]["label"], permission="change") for it in STEPS]


def stage_page(request: HttpRequest, *, step: str) -> HttpResponse:
    """Show the chosen sales, and publish or withdraw them once that is confirmed."""
    check_may(request, "vouchers.change_seckillvoucher")
    model_admin = office.get_model_admin(SeckillVoucher)
    named = chosen_sales(request, model_admin).order_by("begins_at", "pk")
    chosen = named.select_related("voucher__merchant", "group")
    may = model_admin.has_change_permission
    sales = [it for it in chosen if it.stage == STEPS[step][0] and may(request, it)]
    if not sales:
        messages.warning(request, _TEXTS["nothing"])
        return HttpResponseRedirect(list_of([]))
    back = list_of([it.pk for it in sales])
    # So that nothing is published that nobody has seen.
    shown = repr([(it.pk, _shown(it)) for it in sales])
    looked_at = sha256(shown.encode()).hexdigest()
    form = ShownForm(request.POST or None, initial={"looked_at": looked_at})
    if form.is_valid():
        if form.cleaned_data["looked_at"] == looked_at:
            _carry_out(request, step, sales, form.cleaned_data["reason"])
            return HttpResponseRedirect(back)
        messages.warning(request, str(PlanChanged()))
        form = ShownForm(initial={"looked_at": looked_at})
    return office.show(
        request,
        "vouchers/seckillvoucher/stages.html",
        opts=SALE,
        title=_TEXTS[step]["label"],
        step=step,
        sales=_checked(sales),
        left_out=len(chosen) - len(sales),
        form=form,
        yes=_TEXTS[step]["label"],
        back=back,
    )


for _step in STEPS:
    office.page(f"vouchers/seckillvoucher/{_step}/", name=f"sale-{_step}", step=_step)(stage_page)


def _checked(sales: Sequence[SeckillVoucher]) -> list[tuple[SeckillVoucher, list[Hint]]]:
    """Return each sale with its checklist, with a fixed number of statements."""
    now = database_now()
    codes = InvitationCode.objects.filter(seckill_voucher__in=sales, uses=None).order_by()
    counts = dict(codes.values_list("seckill_voucher").annotate(Count("pk")))
    overlaps = overlapping_sales([(it.voucher_id, it) for it in sales])
    checked = []
    for sale, others in zip(sales, overlaps, strict=True):
        others = [it for it in others if it != sale]
        hints = checklist(sale=sale, now=now, others=others, codes=counts.get(sale.pk, 0))
        checked.append((sale, hints))
    return checked


def _shown(sale: SeckillVoucher) -> tuple[object, ...]:
    return terms_of(sale), revision_of(sale)


def _check(shown: tuple[object, ...], locked: SeckillVoucher) -> None:
    if _shown(locked) != shown:
        raise TermsChanged


def _carry_out(request: HttpRequest, step: str, sales: Sequence[SeckillVoucher], why: str) -> None:
    """Do it to each sale that allows it, and say which do not and why."""
    refused: dict[str, list[str]] = {}
    before, after = STEPS[step]
    change = entry(field_change("stage", *(choice("stage", it) for it in STEPS[step])), why=why)
    for sale in sales:
        try:
            if before == SaleStage.PUBLIC:
                load_unless_removed(sale_id=sale.pk)  # only a loaded sale can be closed in Redis
            with transaction.atomic():
                stage_sale(sale_id=sale.pk, stage=after, check=partial(_check, _shown(sale)))
                log_change(request, sale, change)
        except SALE_REFUSALS as error:
            refused.setdefault(refusal_text(error), []).append(str(sale))
        except SeckillVoucher.DoesNotExist:
            refused.setdefault(str(_TEXTS["deleted"]), []).append(str(sale))
    if done := len(sales) - sum(map(len, refused.values())):
        messages.success(request, _TEXTS[step]["done"] % counted(done))
    for text, names in refused.items():
        said = gettext("%(names)s: %(reason)s") % {"names": listed(names), "reason": text}
        messages.error(request, said)
