"""Pausing and resuming the chosen sales, after a page that asks for the reason."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext

from backoffice.admin.board import carry_out
from backoffice.admin.pages import SALE, check_may, office
from backoffice.board.action_base import Action
from backoffice.board.actions import ACTION_REFUSALS, ACTIONS
from backoffice.board.snapshot import Board, read_boards
from seckill_site.clocks.database import database_now
from seckill_site.formatting import listed
from seckill_site.web.text_files import read_texts
from vouchers.admin.sale_list import lead_on, list_of
from vouchers.admin.series import chosen_sales
from vouchers.catalogue.history import text_of
from vouchers.catalogue.staff_texts import refusal_text
from vouchers.models import RUN_PERMISSION, SeckillVoucher

PAUSES = ("pause", "resume")

_TEXTS = read_texts(Path(__file__).with_name("stage_texts.toml"))


def pause_action(name: str) -> Any:
    """Return the action of the list that leads to the page."""
    action = partial(lead_on, f"admin:sale-{name}")
    action.__name__ = name  # type: ignore[attr-defined]
    return admin.action(description=ACTIONS[name].texts["button"], permissions=["run"])(action)


def pause_page(request: HttpRequest, *, action_name: str) -> HttpResponse:
    """Show what would happen to the chosen sales, and do it once there is a reason."""
    check_may(request, RUN_PERMISSION)
    action = ACTIONS[action_name]
    chosen = chosen_sales(request, office.get_model_admin(SeckillVoucher))
    boards = read_boards(sales=chosen.order_by("begins_at", "pk"), now=database_now())
    possible = [it for it in boards if _is_possible(action, it)]
    if not possible:
        messages.warning(request, _TEXTS["nothing"])
        return HttpResponseRedirect(list_of([]))
    back = list_of([it.sale.pk for it in possible])
    form = action.form(request.POST or None)
    if form.is_valid():
        _carry_out(request, action, [it.sale for it in possible], form.cleaned_data)
        return HttpResponseRedirect(back)
    return office.show(
        request,
        "vouchers/seckillvoucher/pauses.html",
        opts=SALE,
        title=action.texts["button"],
        sales=[(it.sale, action.effects(it)) for it in possible],
        left_out=len(boards) - len(possible),
        form=form,
        yes=action.texts["confirm"],
        back=back,
    )


for _name in PAUSES:
    _route = f"vouchers/seckillvoucher/{_name}/"
    office.page(_route, name=f"sale-{_name}", action_name=_name)(pause_page)


def _is_possible(action: Action, board: Board) -> bool:
    with suppress(*ACTION_REFUSALS):
        action.check(board)
        return board.snapshot is not None or board.ledger_answers
    return False


def _carry_out(
    request: HttpRequest, action: Action, sales: Sequence[SeckillVoucher], data: dict[str, Any]
) -> None:
    """Do it to each sale that allows it, and say which do not and why."""
    said: dict[tuple[Any, str], list[str]] = {}
    for sale in sales:
        try:
            _, change = carry_out(request, sale.pk, action, data)
            key = messages.success, text_of(change)
        except ACTION_REFUSALS as error:
            key = messages.error, refusal_text(error)
        except SeckillVoucher.DoesNotExist:
            key = messages.error, str(_TEXTS["deleted"])
        said.setdefault(key, []).append(str(sale))
    for (tell, text), names in said.items():
        named = gettext("%(names)s: %(reason)s") % {"names": listed(names), "reason": text}
        tell(request, named)
