"""Verdicts of a sale's rules on a buyer."""

from typing import NamedTuple


class UnpaidOrder(NamedTuple):
    """An order to pay, and its sale."""

    sale_id: int
    order_id: int


class Verdict(NamedTuple):
    """The rule that refuses a buyer, and the number in it; empty if none does.

    What helps: ``from_ms``, when the account is old enough, or the order to pay.
    """

    rule: str = ""
    number: int = 0
    from_ms: int | None = None
    unpaid: UnpaidOrder | None = None


ELIGIBLE = Verdict()


class NotEligible(Exception):
    """A rule of the sale, or a cap on every account, refuses this buyer; ``verdict`` names it."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(f"refused by the rule {verdict.rule}")
        self.verdict = verdict
