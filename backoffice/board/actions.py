"""The actions on a sale's board: those on its terms, and all by name."""

import datetime as dt
from contextlib import suppress
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from backoffice.board.action_base import Action, NewNumberForm, OptionalReasonForm, ReasonForm
from backoffice.board.limit_actions import LiftLimits
from backoffice.board.room_actions import ChangeRoomRate, LetEverybodyIn, OpenRoom
from backoffice.board.snapshot import Board
from backoffice.board.unwritten_actions import RefuseUnwritten, RetryUnwritten
from backoffice.job_engine import UNAVAILABLE
from seckill_site.formatting import grouped, timestamp
from seckill_site.web.text_files import counted
from vouchers.catalogue.history import Change, field_change, moment
from vouchers.catalogue.live_changes import (
    SaleNotStarted,
    TermsChanged,
    end_sale,
    extend_sale,
    pause_sale,
    resize_sale,
    resume_sale,
)
from vouchers.catalogue.staff_texts import StaffRefusal
from vouchers.forms.fields import MomentField
from vouchers.forms.moments import MomentInput
from vouchers.inventory.sale_state import BelowTaken
from vouchers.models import MAX_STOCK, YEARS, SaleStage, SeckillVoucher

ACTION_REFUSALS = (StaffRefusal, BelowTaken, ValidationError, *UNAVAILABLE)
UNTIL = "until"


class SeenEndForm(forms.Form):
    """The end that the page showed, to the microsecond: the action is refused if it has changed."""

    seen = forms.CharField(widget=forms.HiddenInput)

    def clean_seen(self) -> dt.datetime:
        try:
            seen = dt.datetime.fromisoformat(self.cleaned_data["seen"])
        except ValueError:
            seen = None
        if seen is None or seen.tzinfo is None or not YEARS[0] <= seen.year <= YEARS[1]:
            raise ValidationError("not a time that our page sends")
        return seen


class EndSaleForm(SeenEndForm, ReasonForm):
    """The reason for ending a sale."""


class ExtendForm(SeenEndForm, OptionalReasonForm):
    """The duration by which to extend a sale, or its new end."""

    field_order = ("by", "until", "reason")

    by = forms.ChoiceField(
        label=_("Extend"),
        choices=[
            ("5", _("by 5 minutes")),
            ("15", _("by 15 minutes")),
            ("60", _("by 60 minutes")),
            (UNTIL, _("until this time:")),
        ],
        initial="5",
        widget=forms.RadioSelect,
    )
    until = MomentField(
        label=_("New end"),
        required=False,
        widget=MomentInput(attrs={"step": 1}),
    )

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        seen, by = data.get("seen"), data.get("by")
        if seen is None or by is None or "until" in self.errors:
            return data
        ends_at = data["until"] if by == UNTIL else seen + dt.timedelta(minutes=int(by))
        if ends_at is None:
            self.add_error("until", gettext("Choose the new end."))
        elif ends_at.year > YEARS[1]:
            self.add_error("until", gettext("This is too far in the future."))
        elif ends_at <= seen:
            self.add_error("until", gettext("The new end must be after the current one."))
        return {**data, "ends_at": ends_at}


class StockForm(NewNumberForm):
    """The new stock."""

    field, unchanged = "stock", _("This is already the current stock.")
    field_order = ("stock", "reason")

    stock = forms.IntegerField(
        label=_("New stock"), min_value=0, validators=[MaxValueValidator(MAX_STOCK)]
    )


def offered(board: Board) -> list[str]:
    names = []
    for name, action in ACTIONS.items():
        with suppress(*ACTION_REFUSALS):
            action.check(board)
            names.append(name)
    return names


class Pause(Action):
    name = "pause"
    code = "paused"
    form = ReasonForm

    def check(self, board: Board) -> None:
        super().check(board)
        if board.sale.paused:
            raise TermsChanged

    def effects(self, board: Board) -> list[str]:
        nobody_buys, kept = super().effects(board)
        return [nobody_buys, *_draft(board), *_queue(board), kept]

    def do(self, sale_id: int, data: dict[str, Any]) -> SeckillVoucher:
        return pause_sale(sale_id=sale_id)


class Resume(Action):
    name = "resume"
    code = "resumed"

    def check(self, board: Board) -> None:
        super().check(board)
        if not board.sale.paused:
            raise TermsChanged

    def effects(self, board: Board) -> list[str]:
        at_once, later = super().effects(board)
        return [at_once if board.now >= board.sale.begins_at else later, *_draft(board)]

    def figures(self, board: Board) -> dict[str, Any]:
        return _stock(board)

    def do(self, sale_id: int, data: dict[str, Any]) -> SeckillVoucher:
        return resume_sale(sale_id=sale_id)


class _ActionOnEnd(Action):
    """An action that depends on the end that the page showed."""

    def initial(self, board: Board) -> dict[str, Any]:
        end = board.sale.ends_at
        return {"seen": end.isoformat(), "until": end + dt.timedelta(minutes=5)}

    def history(self, sale: SeckillVoucher, data: dict[str, Any]) -> list[Change]:
        return [field_change("ends_at", moment(data["seen"]), moment(sale.ends_at))]


class Extend(_ActionOnEnd):
    name = "extend"
    form = ExtendForm

    def figures(self, board: Board) -> dict[str, Any]:
        return {"end": timestamp(board.sale.ends_at), **_stock(board)}

    def do(self, sale_id: int, data: dict[str, Any]) -> SeckillVoucher:
        return extend_sale(sale_id=sale_id, ends_at=data["ends_at"], seen=data["seen"])


class ChangeStock(Action):
    name = "stock"
    form = StockForm

    def initial(self, board: Board) -> dict[str, Any]:
        return {"seen": board.sale.stock, "stock": board.sale.stock}

    def figures(self, board: Board) -> dict[str, Any]:
        taken = board.snapshot.taken if board.snapshot else board.sale.sold
        return {"taken": grouped(taken), "most": grouped(MAX_STOCK), **_stock(board)}

    def do(self, sale_id: int, data: dict[str, Any]) -> SeckillVoucher:
        return resize_sale(sale_id=sale_id, stock=data["stock"], seen=data["seen"])

    def history(self, sale: SeckillVoucher, data: dict[str, Any]) -> list[Change]:
        return [field_change("stock", data["seen"], sale.stock)]


class End(_ActionOnEnd):
    name = "end"
    form = EndSaleForm
    is_final = True

    def check(self, board: Board) -> None:
        super().check(board)
        if board.now <= board.sale.begins_at:
            raise SaleNotStarted

    def effects(self, board: Board) -> list[str]:
        for_everyone, kept, is_final = super().effects(board)
        ledger = board.snapshot
        unsold = self.texts["unsold"] % counted(ledger.remaining if ledger else None)
        waiting = ledger.waiting if ledger else 0
        in_line = [self.texts["waiting"] % counted(waiting)] if waiting else []
        return [for_everyone, unsold, *_queue(board), *in_line, kept, is_final]

    def do(self, sale_id: int, data: dict[str, Any]) -> SeckillVoucher:
        return end_sale(sale_id=sale_id, seen=data["seen"])

    def history(self, sale: SeckillVoucher, data: dict[str, Any]) -> list[Change]:
        return [("ended_now", {}), *super().history(sale, data)]


_ALL: tuple[Action, ...] = (
    Pause(), Resume(), Extend(), ChangeStock(), OpenRoom(), ChangeRoomRate(), LetEverybodyIn(),
    LiftLimits(), End(), RetryUnwritten(), RefuseUnwritten(),
)  # fmt: skip
ACTIONS = {it.name: it for it in _ALL}


def _stock(board: Board) -> dict[str, str]:
    left = board.snapshot.remaining if board.snapshot else None
    return {"left": grouped(left), "total": grouped(board.sale.stock)}


def _draft(board: Board) -> list[str]:
    return [str(Action.shared["draft"])] if board.sale.stage == SaleStage.DRAFT else []


def _queue(board: Board) -> list[str]:
    count = board.snapshot.pending if board.snapshot else 0
    return [Action.shared["queue"] % counted(count)] if count else []
