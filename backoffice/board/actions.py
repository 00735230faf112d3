"""What can be done to a sale from its board: what each will do in words, its form, its doing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import InterfaceError, OperationalError
from django.utils.functional import Promise
from django.utils.text import capfirst
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from backoffice.board.forms import (
    EndSaleForm,
    ExtendForm,
    OptionalReasonForm,
    ReasonForm,
    StockForm,
)
from backoffice.board.snapshot import Board
from seckill_site.formatting import NO_VALUE, grouped, timestamp
from vouchers.catalogue.history import change_line
from vouchers.catalogue.live_changes import (
    NotBegun,
    NotLater,
    SaleOver,
    TermsChanged,
    end_sale,
    extend_sale,
    pause_sale,
    resize_sale,
    resume_sale,
)
from vouchers.catalogue.refusals import NO_ANSWER
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.sale_state import BelowTaken
from vouchers.models import MAX_STOCK, SaleStage, SaleState, SeckillVoucher

REFUSALS = (
    BelowTaken, LedgerUnavailable, SaleOver, NotBegun, NotLater, TermsChanged, ValidationError,
    OperationalError, InterfaceError,
)  # fmt: skip


@dataclass(frozen=True)
class Action:
    """One thing to be done to a sale.

    ``check`` raises why it cannot be done now; ``initial`` is what its form begins with; ``will``
    says beforehand what it does, by the live figures; ``do`` is the one call; ``done`` says what
    was before and is now.
    """

    title: Promise
    link: Promise
    yes: Promise
    form: type[forms.Form]
    check: Callable[[Board], None]
    initial: Callable[[Board], dict[str, Any]]
    will: Callable[[Board], list[str]]
    do: Callable[[int, dict[str, Any]], SeckillVoucher]
    done: Callable[[SeckillVoucher, dict[str, Any]], str]
    is_final: bool = False


def offered(board: Board) -> list[str]:
    """Return the actions that can be done now."""
    return [name for name, action in ACTIONS.items() if _fits(action, board)]


def why_not(error: Exception) -> str:
    """Return in words why nothing was changed, and what to do instead."""
    if isinstance(error, ValidationError):
        return " ".join([gettext("Nothing was changed."), *error.messages])
    return str(_WORDS.get(type(error), NO_ANSWER))


_WORDS = {
    BelowTaken: _("Nothing was changed: more units than that are already taken."),
    LedgerUnavailable: _("Nothing was changed: Redis did not respond. Try again."),
    SaleOver: _("Nothing was changed: the sale has ended. To sell again, copy it."),
    NotBegun: _(
        "Nothing was changed: the sale has not started, so there is nothing to "
        "end. Delete it or set it back to draft."
    ),
    NotLater: _("Nothing was changed: the new end must be after the current one."),
    TermsChanged: _(
        "Nothing was changed: someone else changed the sale first. Check its current state."
    ),
}


def _fits(action: Action, board: Board) -> bool:
    try:
        action.check(board)
    except REFUSALS:
        return False
    return True


def _check_running(board: Board) -> None:
    if board.state is SaleState.ENDED:
        raise SaleOver


def _check_paused(board: Board, *, paused: bool) -> None:
    _check_running(board)
    if board.sale.paused != paused:
        raise TermsChanged


def _check_begun(board: Board) -> None:
    _check_running(board)
    if board.now <= board.sale.begins_at:
        raise NotBegun


def _nothing(board: Board) -> dict[str, Any]:
    return {}


def _end_seen(board: Board) -> dict[str, Any]:
    end = board.sale.ends_at
    return {"seen": end.isoformat(), "until": end + dt.timedelta(minutes=5)}


def _stock_seen(board: Board) -> dict[str, Any]:
    return {"seen": board.sale.stock, "stock": board.sale.stock}


def _pause_will(board: Board) -> list[str]:
    return [
        gettext("Nobody can buy until the sale is resumed. Its end does not move."),
        *_draft(board),
        *_queue(board),
        gettext("Existing orders are kept and can be paid."),
    ]


def _resume_will(board: Board) -> list[str]:
    begun = board.now >= board.sale.begins_at
    words = {"left": _left(board), "total": grouped(board.sale.stock)}
    text = (
        gettext("Buyers can buy again at once: %(left)s of %(total)s units are left.")
        if begun
        else gettext("Buyers can buy once the sale starts: %(left)s of %(total)s units are left.")
    )
    return [text % words, *_draft(board)]


def _extend_will(board: Board) -> list[str]:
    text = gettext("The sale currently ends at %(end)s. Buyers can buy until the new end.")
    left = gettext("%(left)s of %(total)s units are left.")
    words = {"left": _left(board), "total": grouped(board.sale.stock)}
    return [text % {"end": timestamp(board.sale.ends_at)}, left % words]


def _stock_will(board: Board) -> list[str]:
    text = gettext("%(total)s units are now offered, and %(left)s of them are left.")
    words = {"left": _left(board), "total": grouped(board.sale.stock)}
    bounds = gettext("The stock cannot go below the %(taken)s already taken or above %(most)s.")
    taken = board.found.taken if board.found else board.sale.sold
    return [
        text % words,
        bounds % {"taken": grouped(taken), "most": grouped(MAX_STOCK)},
        gettext("Added units go to the waiting list first, then on sale."),
    ]


def _end_will(board: Board) -> list[str]:
    left, waiting = (board.found.remaining, board.found.waiting) if board.found else (0, 0)
    unsold = ngettext("%(count)s unit is unsold.", "%(count)s units are unsold.", left)
    in_line = ngettext(
        "%(count)s buyer on the waiting list gets nothing.",
        "%(count)s buyers on the waiting list get nothing.",
        waiting,
    )
    return [
        gettext("Ends the sale now for everyone."),
        unsold % {"count": grouped(left) if board.found else NO_VALUE},
        *_queue(board),
        *([in_line % {"count": grouped(waiting)}] if waiting else []),
        gettext("Existing orders are kept and can be paid."),
        gettext("This cannot be undone: an ended sale cannot be resumed or extended."),
    ]


def _draft(board: Board) -> list[str]:
    if board.sale.stage != SaleStage.DRAFT:
        return []
    return [gettext("This is a draft: nobody can buy until it is published.")]


def _queue(board: Board) -> list[str]:
    count = board.found.pending if board.found else 0
    text = ngettext(
        "%(count)s order in the queue will still be processed.",
        "%(count)s orders in the queue will still be processed.",
        count,
    )
    return [text % {"count": grouped(count)}] if count else []


def _left(board: Board) -> str:
    return grouped(board.found.remaining if board.found else None)


def _new_end(sale: SeckillVoucher, data: dict[str, Any]) -> str:
    return _changed("ends_at", timestamp(data["seen"]), timestamp(sale.ends_at))


def _new_stock(sale: SeckillVoucher, data: dict[str, Any]) -> str:
    return _changed("stock", grouped(data["seen"]), grouped(sale.stock))


def _changed(field: str, before: str, after: str) -> str:
    label = capfirst(SeckillVoucher._meta.get_field(field).verbose_name)  # type: ignore[union-attr]
    return change_line(label, before, after)


ACTIONS = {
    "pause": Action(
        title=_("Pause the sale"),
        link=_("Pause"),
        yes=_("Yes, pause"),
        form=ReasonForm,
        check=partial(_check_paused, paused=False),
        initial=_nothing,
        will=_pause_will,
        do=lambda sale_id, data: pause_sale(sale_id=sale_id),
        done=lambda sale, data: gettext("Paused"),
    ),
    "resume": Action(
        title=_("Resume the sale"),
        link=_("Resume"),
        yes=_("Yes, resume"),
        form=OptionalReasonForm,
        check=partial(_check_paused, paused=True),
        initial=_nothing,
        will=_resume_will,
        do=lambda sale_id, data: resume_sale(sale_id=sale_id),
        done=lambda sale, data: gettext("Resumed"),
    ),
    "extend": Action(
        title=_("Extend the sale"),
        link=_("Extend"),
        yes=_("Yes, extend"),
        form=ExtendForm,
        check=_check_running,
        initial=_end_seen,
        will=_extend_will,
        do=lambda sale_id, data: extend_sale(
            sale_id=sale_id, ends_at=data["ends_at"], seen=data["seen"]
        ),
        done=_new_end,
    ),
    "stock": Action(
        title=_("Change the stock"),
        link=_("Change stock"),
        yes=_("Yes, change the stock"),
        form=StockForm,
        check=_check_running,
        initial=_stock_seen,
        will=_stock_will,
        do=lambda sale_id, data: resize_sale(
            sale_id=sale_id, stock=data["stock"], seen=data["seen"]
        ),
        done=_new_stock,
    ),
    "end": Action(
        title=_("End the sale now"),
        link=_("End now"),
        yes=_("Yes, end the sale now"),
        form=EndSaleForm,
        check=_check_begun,
        initial=_end_seen,
        will=_end_will,
        do=lambda sale_id, data: end_sale(sale_id=sale_id, seen=data["seen"]),
        done=lambda sale, data: f"{gettext('Ended now')}; {_new_end(sale, data)}",
        is_final=True,
    ),
}
