"""What staff is told where a sale could not be changed: somebody or something was faster."""

from __future__ import annotations

from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from vouchers.catalogue.sales import LimitLowered, SaleHasBuyers, StaysPublic
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded
from vouchers.inventory.sale_state import BelowTaken

NO_ANSWER = _("Redis or the database did not respond. Try again.")
STAYS_PUBLIC = _("The sale has orders, so it has to stay public. Pause it instead.")

REFUSALS = (BelowTaken, LimitLowered, SaleHasBuyers, StaysPublic, LedgerUnavailable, NotLoaded)


def why_not(error: Exception) -> str:
    """Return the sentence for one of the refusals."""
    if isinstance(error, BelowTaken):
        text = gettext("Nothing was changed: %(taken)s units are already taken.")
        return text % {"taken": error.taken}
    if isinstance(error, LimitLowered):
        return gettext("Nothing was changed: the limit has been raised in the meantime.")
    if isinstance(error, SaleHasBuyers):
        return gettext("The sale has buyers and cannot be deleted. Pause it instead.")
    if isinstance(error, StaysPublic):
        return str(STAYS_PUBLIC)
    return gettext("Nothing was changed: Redis did not respond. Try again.")
