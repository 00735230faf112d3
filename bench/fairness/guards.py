"""The guards that are compared, and what an attacker got behind each."""

from dataclasses import dataclass, field
from statistics import median
from typing import Any

from vouchers.models import Work

ADDRESSES = (1, 50)
CONFIRMED = 50
"""The accounts of the attacker with a confirmed contact, at most."""


@dataclass(frozen=True)
class Guard:
    """One way to protect a sale.

    Without ``limited``, neither addresses nor accounts have limits. ``prepares``: the attacker asks
    for all tokens, and does their work, before the sale starts; otherwise only afterwards. With
    ``needs_contact`` only ``CONFIRMED`` of its accounts get a token: it bought them numbers.
    """

    title: str
    limited: bool = True
    work: int = Work.NONE
    prepares: bool = True
    needs_contact: bool = False
    drawn: bool = False


GUARDS = {
    "none": Guard("no guard", limited=False),
    "limits": Guard("limits"),
    "work": Guard("limits and work, tokens from the start on", work=Work.USUAL, prepares=False),
    "prepared": Guard("limits and work, done before the start", work=Work.USUAL),
    "contact": Guard("limits and a confirmed contact", needs_contact=True),
    "draw": Guard("limits and a draw", drawn=True),
    "both": Guard("limits, a draw and a confirmed contact", needs_contact=True, drawn=True),
}


@dataclass(frozen=True)
class Shares:
    """The units an attacker got behind a guard in each contest, by number of addresses."""

    guard: Guard
    addresses: int
    units: list[int] = field(default_factory=list)

    @property
    def median(self) -> float:
        return median(self.units)

    def as_json(self) -> dict[str, Any]:
        return {"guard": self.guard.title, "addresses": self.addresses, "units": self.units}
