"""The board of a sale in the admin: its page, its live figures and its actions."""

from typing import Any

from django.contrib import messages
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import BadRequest
from django.db import transaction
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext

from backoffice.admin.pages import SALE, TEXTS, check_may, log_change, office, read_sale, sale_page
from backoffice.board.action_base import Action
from backoffice.board.actions import ACTION_REFUSALS, ACTIONS, offered
from backoffice.board.snapshot import Board, read_board
from backoffice.board.texts import board_json, names_of, sentences_of
from orders.lifecycle.waiting_list import fulfil_line
from seckill_site.formatting import timestamp
from vouchers.catalogue.history import entry, history_text, text_of
from vouchers.catalogue.live_changes import TermsChanged
from vouchers.catalogue.staff_texts import refusal_text
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.rebuild import load_unless_removed
from vouchers.inventory.sale_state import BelowTaken, LedgerTerms, snapshots
from vouchers.models import RUN_PERMISSION, SeckillVoucher

SHOWN_ENTRIES = 10
TEMPLATES = "vouchers/seckillvoucher"


@sale_page("board/", name="sale-board")
def board_page(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Show the board. A script keeps its figures current."""
    board = read_sale(request, read_board, sale_id=sale_id)
    return office.show(
        request,
        f"{TEMPLATES}/board.html",
        opts=SALE,
        title=gettext("Board: %(sale)s") % {"sale": board.sale},
        sale=board.sale,
        board=_json(request, board),
        names=names_of(board.sale),
        sentences={
            **sentences_of(board.sale),
            "time_zone": timezone.get_current_timezone_name(),
        },
        links=_links(sale_id) if request.user.has_perm(RUN_PERMISSION) else [],
    )


@sale_page("board/data/", name="sale-board-data")
def board_data(request: HttpRequest, *, sale_id: int) -> HttpResponse:
    """Return the figures of the board, for its script."""
    return JsonResponse(_json(request, read_sale(request, read_board, sale_id=sale_id)))


def board_action(request: HttpRequest, *, sale_id: int, action_name: str) -> HttpResponse:
    """Confirm an action, then carry it out and redirect to the board."""
    board = read_sale(request, read_board, sale_id=sale_id)
    action = ACTIONS[action_name]
    check_may(request, RUN_PERMISSION)
    posted = request.POST if request.method == "POST" else None
    form = action.form(posted, initial=action.initial(board))
    try:
        action.check(board)
        if form.is_valid():
            sale, change = carry_out(request, sale_id, action, form.cleaned_data)
            messages.success(request, text_of(change))
            if not _is_in_redis(sale):
                messages.warning(request, TEXTS["not_in_redis"])
            return _back(sale_id)
    except BelowTaken as error:
        form.add_error("stock", refusal_text(error))
    except ACTION_REFUSALS as error:
        messages.error(request, refusal_text(error))
        # A form that was read, with a value from its page, is shown again with the current value.
        again = isinstance(error, TermsChanged) and "seen" in getattr(form, "cleaned_data", ())
        return HttpResponseRedirect(request.path) if again else _back(sale_id)
    if "seen" in form.errors:
        raise BadRequest("not a form that our page sends")
    return office.show(
        request,
        f"{TEMPLATES}/board_action.html",
        opts=SALE,
        title=action.texts["title"],
        sale=board.sale,
        will=action.effects(board),
        form=form,
        yes=action.texts["confirm"],
        is_final=action.is_final,
        back=reverse("admin:sale-board", args=[sale_id]),
    )


for _name in ACTIONS:
    sale_page(f"board/{_name}/", name=f"sale-board-{_name}", action_name=_name)(board_action)


def _back(sale_id: int) -> HttpResponse:
    return HttpResponseRedirect(reverse("admin:sale-board", args=[sale_id]))


def _json(request: HttpRequest, board: Board) -> dict[str, Any]:
    may_run = request.user.has_perm(RUN_PERMISSION)
    shown = board_json(board, actions=offered(board) if may_run else [])
    if not may_run:  # addresses are personal: only for staff who may act on them
        shown["limited"] = []
    return {**shown, "history": _history(board)}


def _history(board: Board) -> list[dict[str, str]]:
    """Return the latest changes of the sale, from this board and elsewhere."""
    entries = LogEntry.objects.filter(
        content_type=ContentType.objects.get_for_model(SeckillVoucher), object_id=str(board.sale.pk)
    )
    return [
        {
            "at": timestamp(row.action_time),
            "by": row.user.get_username(),
            "what": history_text(row),
        }
        for row in entries.select_related("user").order_by("-pk")[:SHOWN_ENTRIES]
    ]


def _links(sale_id: int) -> list[tuple[str, Any, str]]:
    return [
        (name, action.texts["button"], reverse(f"admin:sale-board-{name}", args=[sale_id]))
        for name, action in ACTIONS.items()
    ]


def carry_out(
    request: HttpRequest, sale_id: int, action: Action, data: dict[str, Any]
) -> tuple[SeckillVoucher, str]:
    """Carry out an action and record it in the sale's history, in one transaction."""
    # Before the transaction: only a loaded sale can be changed in Redis.
    load_unless_removed(sale_id=sale_id)
    with transaction.atomic():
        sale = action.do(sale_id, data)
        change = entry(*action.history(sale, data), why=data["reason"])
        log_change(request, sale, change)
    fulfil_line(sale_id=sale_id)
    return sale, change


def _is_in_redis(sale: SeckillVoucher) -> bool:
    try:
        ledger = snapshots(sale_ids=[sale.pk])[sale.pk]
    except LedgerUnavailable:
        return False
    return ledger is not None and ledger.terms == LedgerTerms.from_sale(sale)
