"""The actions on accepted orders that could not be written."""

from typing import Any

from backoffice.board.action_base import Action, ReasonForm
from backoffice.board.snapshot import Board
from orders.fulfilment.unwritten import decide_unwritten
from seckill_site.web.text_files import counted
from vouchers.catalogue.live_changes import TermsChanged
from vouchers.inventory.batch_journal import Decision
from vouchers.models import SeckillVoucher


class _Decide(Action):
    """A decision about accepted orders that could not be written; possible even after the end."""

    decision: Decision

    def check(self, board: Board) -> None:
        if not (board.snapshot and board.snapshot.set_aside):
            raise TermsChanged

    def figures(self, board: Board) -> dict[str, Any]:
        return counted(board.snapshot.set_aside if board.snapshot else 0)

    def do(self, sale_id: int, data: dict[str, Any]) -> SeckillVoucher:
        decide_unwritten(sale_id=sale_id, decision=self.decision)
        return SeckillVoucher.objects.get(pk=sale_id)


class RetryUnwritten(_Decide):
    name = "retry-unwritten"
    decision = Decision.RETRY
    code = "unwritten_retried"


class RefuseUnwritten(_Decide):
    name = "refuse-unwritten"
    form = ReasonForm
    decision = Decision.REFUSE
    code = "unwritten_refused"
    is_final = True
