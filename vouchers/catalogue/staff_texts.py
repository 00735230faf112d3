"""Texts for staff: refusals, and lines of a sale's history in the admin (before, after, reason)."""

from collections.abc import Iterable

from django.core.exceptions import ValidationError
from django.utils.functional import Promise
from django.utils.translation import gettext, pgettext
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
    """Return the text for staff about a refusal, a broken rule or a failed call."""
    if isinstance(error, StaffRefusal):
        return str(error)
    if isinstance(error, BelowTaken):
        text = gettext("Nothing was changed: %(taken)s vouchers are already taken.")
        return text % {"taken": error.taken}
    if isinstance(error, LedgerUnavailable | NotLoaded):
        return gettext("The change was not saved: Redis did not respond. Try again.")
    if isinstance(error, ValidationError):
        return " ".join([gettext("Nothing was changed."), *error.messages])
    return str(NO_ANSWER)


def join_changes(changes: Iterable[str]) -> str:
    """Return several changes as one text."""
    return pgettext("between changes", "; ").join(changes)


def with_reason(text: str, why: str) -> str:
    """Return a change with its reason, if one was given."""
    if not why:
        return text
    return gettext("%(change)s. Reason: %(why)s") % {"change": text, "why": why}
