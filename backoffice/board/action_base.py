"""What the actions on a sale's board share: a description of the effect, a form, a domain call."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

from django import forms
from django.contrib.admin.widgets import AdminTextInputWidget
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from backoffice.board.snapshot import Board
from seckill_site.web.text_files import read_texts
from vouchers.catalogue.history import Change
from vouchers.catalogue.live_changes import SaleOver
from vouchers.models import SaleState, SeckillVoucher

_TEXTS = read_texts(Path(__file__).with_name("action_texts.toml"))


class OptionalReasonForm(forms.Form):
    """An optional reason for an action."""

    reason = forms.CharField(
        label=_("Reason"),
        max_length=200,
        required=False,
        widget=AdminTextInputWidget,
        help_text=_("Recorded in the sale's history."),
    )


class ReasonForm(OptionalReasonForm):
    """A required reason for an action."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["reason"].required = True


class NewNumberForm(OptionalReasonForm):
    """A new number for a field of the sale, and the number that the page showed."""

    field: str
    unchanged: Promise
    """The error if the two are the same."""

    seen = forms.IntegerField(widget=forms.HiddenInput, min_value=0)

    def clean(self) -> dict[str, Any]:
        data = super().clean() or self.cleaned_data
        if data.get(self.field) is not None and data[self.field] == data.get("seen"):
            self.add_error(self.field, str(self.unchanged))
        return data


class Action(ABC):
    """One action on a sale; the file of texts has its words under its name."""

    shared: ClassVar[dict[str, Any]] = _TEXTS["any"]
    """What several actions say."""

    name: str
    form: type[forms.Form] = OptionalReasonForm
    is_final = False
    code = ""
    """What the sale's history says, if that is all."""

    @property
    def texts(self) -> dict[str, Any]:
        return _TEXTS[self.name]  # type: ignore[no-any-return]

    def check(self, board: Board) -> None:
        """Raise the refusal if the action is not possible now."""
        if board.state is SaleState.ENDED:
            raise SaleOver

    def initial(self, board: Board) -> dict[str, Any]:
        """Return the initial values of the form."""
        return {}

    def effects(self, board: Board) -> list[str]:
        """Describe the effects of the action, based on the live figures."""
        figures = self.figures(board)
        return [text % figures for text in self.texts["effects"]]

    def figures(self, board: Board) -> dict[str, Any]:
        """Return the figures that its effects name."""
        return {}

    @abstractmethod
    def do(self, sale_id: int, data: dict[str, Any]) -> SeckillVoucher:
        """Carry out the action."""

    def history(self, sale: SeckillVoucher, data: dict[str, Any]) -> list[Change]:
        """Return the changes for the sale's history."""
        return [(self.code, {})]
