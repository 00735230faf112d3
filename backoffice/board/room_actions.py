"""The actions on the waiting room of a sale."""

from typing import Any

from django import forms
from django.core.validators import MaxValueValidator
from django.utils.translation import gettext_lazy as _

from backoffice.board.action_base import Action, NewNumberForm, OptionalReasonForm
from backoffice.board.snapshot import Board
from seckill_site.clocks.machine import epoch_ms
from seckill_site.formatting import grouped
from vouchers.catalogue.history import Change, field_change
from vouchers.catalogue.live_changes import TermsChanged, change_room_rate, close_room, open_room
from vouchers.models import MAX_ROOM_RATE, SeckillVoucher


def _rate() -> forms.IntegerField:
    """Return the field for how many people a waiting room lets in per second."""
    return forms.IntegerField(
        label=_("People let in per second"),
        min_value=1,
        validators=[MaxValueValidator(MAX_ROOM_RATE)],
    )


class RoomForm(OptionalReasonForm):
    """The rate of a waiting room."""

    field_order = ("rate", "reason")
    rate = _rate()


class RoomRateForm(NewNumberForm):
    """The new rate of a waiting room."""

    field, unchanged = "rate", _("This is already the current rate.")
    field_order = ("rate", "reason")
    rate = _rate()


class _RoomAction(Action):
    """A change of the waiting room that is open."""

    def check(self, board: Board) -> None:
        super().check(board)
        if not board.sale.room_opened_ms:
            raise TermsChanged


class OpenRoom(Action):
    name = "open-room"
    form = RoomForm

    def check(self, board: Board) -> None:
        super().check(board)
        if board.sale.room_opened_ms or board.sale.is_draw:
            raise TermsChanged

    def initial(self, board: Board) -> dict[str, Any]:
        return {"rate": board.sale.room_rate}

    def do(self, sale_id: int, data: dict[str, Any]) -> SeckillVoucher:
        return open_room(sale_id=sale_id, rate=data["rate"])

    def history(self, sale: SeckillVoucher, data: dict[str, Any]) -> list[Change]:
        return [("room_opened", {"rate": sale.room_rate})]


class ChangeRoomRate(_RoomAction):
    name = "room-rate"
    form = RoomRateForm

    def initial(self, board: Board) -> dict[str, Any]:
        return {"seen": board.sale.room_rate, "rate": board.sale.room_rate}

    def figures(self, board: Board) -> dict[str, Any]:
        line = board.snapshot.line if board.snapshot else None
        waiting = line.length(epoch_ms(board.now)) if line else None
        return {"waiting": grouped(waiting), "rate": grouped(board.sale.room_rate)}

    def do(self, sale_id: int, data: dict[str, Any]) -> SeckillVoucher:
        return change_room_rate(sale_id=sale_id, rate=data["rate"], seen=data["seen"])

    def history(self, sale: SeckillVoucher, data: dict[str, Any]) -> list[Change]:
        return [field_change("room_rate", data["seen"], sale.room_rate)]


class LetEverybodyIn(_RoomAction):
    name = "close-room"
    code = "room_closed"

    def do(self, sale_id: int, data: dict[str, Any]) -> SeckillVoucher:
        return close_room(sale_id=sale_id)
