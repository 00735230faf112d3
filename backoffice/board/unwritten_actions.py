"""The actions on accepted orders that could not be written."""

from typing import Any

from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from backoffice.board.action_base import Action, ReasonForm
from backoffice.board.snapshot import Board
from orders.fulfilment.unwritten import decide_unwritten
from seckill_site.formatting import grouped
from vouchers.catalogue.live_changes import TermsChanged
from vouchers.inventory.batch_journal import Decision
from vouchers.models import SeckillVoucher


class _Decide(Action):
    """A decision about accepted orders that could not be written; possible even after the end."""

    decision: Decision

    def check(self, board: Board) -> None:
        if not (board.snapshot and board.snapshot.set_aside):
            raise TermsChanged

    def do(self, sale_id: int, data: dict[str, Any]) -> SeckillVoucher:
        decide_unwritten(sale_id=sale_id, decision=self.decision)
        return SeckillVoucher.objects.get(pk=sale_id)


class RetryUnwritten(_Decide):
    title = _("Write the orders that could not be written")
    button = _("Write again")
    confirm_label = _("Yes, write them again")
    decision = Decision.RETRY
    code = "unwritten_retried"

    def effects(self, board: Board) -> list[str]:
        return [
            _unwritten(board),
            gettext("They are tried again now. Any that still fail come back here."),
        ]


class RefuseUnwritten(_Decide):
    title = _("Refuse the orders that could not be written")
    button = _("Refuse unwritten")
    confirm_label = _("Yes, refuse them")
    form = ReasonForm
    decision = Decision.REFUSE
    code = "unwritten_refused"
    is_final = True

    def effects(self, board: Board) -> list[str]:
        return [
            _unwritten(board),
            gettext("Their buyers get nothing, and the vouchers go back on sale."),
            gettext("They could never be paid, so there is nothing to refund."),
        ]


def _unwritten(board: Board) -> str:
    count = board.snapshot.set_aside if board.snapshot else 0
    text = ngettext(
        "%(count)s accepted order could not be written. Its buyer is waiting.",
        "%(count)s accepted orders could not be written. Their buyers are waiting.",
        count,
    )
    return text % {"count": grouped(count)}
