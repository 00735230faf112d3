"""Refusals of what staff asks for: exceptions whose text is shown to staff."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.utils.functional import Promise
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from vouchers.inventory.keys import LedgerUnavailable, NotLoaded
from vouchers.inventory.sale_state import BelowTaken

NO_ANSWER = _("Redis or the database did not respond. Try again.")


class StaffRefusal(Exception):
    """Nothing was changed; the text says why, and what to do instead."""

    message: str | Promise = NO_ANSWER

    def __str__(self) -> str:
        return super().__str__() or str(self.message)


SALE_REFUSALS = (StaffRefusal, BelowTaken, LedgerUnavailable, NotLoaded)


def refusal_text(error: Exception) -> str:
    """Return what staff is told of a refusal, of a rule that is broken, or of a failed call."""
    if isinstance(error, StaffRefusal):
        return str(error)
    if isinstance(error, BelowTaken):
        text = gettext("Nothing was changed: %(taken)s units are already taken.")
        return text % {"taken": error.taken}
    if isinstance(error, LedgerUnavailable | NotLoaded):
        return gettext("Nothing was changed: Redis did not respond. Try again.")
    if isinstance(error, ValidationError):
        return " ".join([gettext("Nothing was changed."), *error.messages])
    return str(NO_ANSWER)
