"""The action on addresses and accounts that are limited now."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _
from redis.exceptions import RedisError

from backoffice.board.action_base import Action, OptionalReasonForm
from backoffice.board.limits import LimitedRow
from backoffice.board.snapshot import Board
from seckill_site.web.request_rates import lift_limits
from seckill_site.web.text_files import counted
from vouchers.catalogue.history import Change
from vouchers.catalogue.live_changes import TermsChanged
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.order_limits import lift_order_limits
from vouchers.models import SeckillVoucher


class LiftForm(OptionalReasonForm):
    """Which limits to lift, out of those that the board shows."""

    field_order = ("limits", "reason")

    limits = forms.MultipleChoiceField(label=_("Limits"), widget=forms.CheckboxSelectMultiple)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._rows: dict[str, LimitedRow] = {it.key: it for it in self.initial["rows"]}
        self.fields["limits"].choices = [  # type: ignore[attr-defined]
            (it.key, f"{it.subject} ({it.limit})") for it in self._rows.values()
        ]

    def clean_limits(self) -> list[LimitedRow]:
        return [self._rows[key] for key in self.cleaned_data["limits"]]


class LiftLimits(Action):
    name = "lift-limits"
    form = LiftForm

    def check(self, board: Board) -> None:
        if not board.limited:
            raise TermsChanged

    def initial(self, board: Board) -> dict[str, Any]:
        return {"rows": board.limited}

    def figures(self, board: Board) -> dict[str, Any]:
        return counted(len(board.limited))

    def do(self, sale_id: int, data: dict[str, Any]) -> SeckillVoucher:
        rows: list[LimitedRow] = data["limits"]
        of_sale = [it.of_sale for it in rows if it.of_sale]
        lift_order_limits(sale_id=sale_id, subjects=of_sale)
        try:
            lift_limits([it.of_site for it in rows if it.of_site])
        except RedisError as error:
            raise LedgerUnavailable(str(error)) from error
        return SeckillVoucher.objects.get(pk=sale_id)

    def history(self, sale: SeckillVoucher, data: dict[str, Any]) -> list[Change]:
        names = ", ".join(f"{it.subject} ({it.limit})" for it in data["limits"])
        return [("limits_lifted", {"names": names})]
