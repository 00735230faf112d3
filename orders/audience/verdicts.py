"""Verdicts of a sale's rules on a buyer."""

from typing import NamedTuple


class Verdict(NamedTuple):
    """The rule that refuses a buyer, and the number in it; empty if none does.

    What helps: ``from_ms``, when the account is old enough, or ``unpaid``, the sale and the id of
    an order to pay. ``codes`` are the unused invitation codes of a buyer whom no rule refuses.
    """

    rule: str = ""
    number: int = 0
    from_ms: int | None = None
    unpaid: tuple[int, int] | None = None
    codes: int = 0


ELIGIBLE = Verdict()


class NotEligible(Exception):
    """A rule of the sale, or a cap on every account, refuses this buyer; ``verdict`` names it."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(f"refused by the rule {verdict.rule}")
        self.verdict = verdict
