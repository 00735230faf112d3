"""What a step tells a buyer."""

from __future__ import annotations

from enum import StrEnum


class Answer(StrEnum):
    """One buyer's answer; who hears one of ``PROMISES`` counts on a unit."""

    BOUGHT = "bought"
    """The order is said to be written."""
    QUEUED = "queued"
    """The order is said to be on its way."""
    SOLD_OUT = "sold out"
    ALREADY_ORDERED = "already ordered"
    BUSY = "busy"
    """Somebody else is at it; try again."""


PROMISES = frozenset({Answer.BOUGHT, Answer.QUEUED})
