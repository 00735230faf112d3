"""What the crowd of a race heard, read from the sheet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.answers import PROMISES, Answer
from lab.crowds.crowd import Crowd
from lab.crowds.sheet import FRESH, IN_HAND, UNANSWERED, Sheet


@dataclass(frozen=True)
class Told:
    """What was heard. ``first_us`` is when the first press began, ``took_ms`` is ascending.

    ``promised`` are the user ids of those who heard a promise. ``turned_away`` are those who heard
    "sold out" before somebody pressed who then was given a unit: there was one left for them.
    """

    promised: frozenset[int]
    turned_away: frozenset[int]
    unanswered: int
    took_ms: Sequence[float]
    first_us: int


def read_sheet(sheet: Sheet, *, crowd: Crowd, user_ids: Sequence[int], faultless: bool) -> Told:
    """Return what the crowd heard.

    Who was turned away can be said only of a sale without a fault: units of those who died come
    back, and are sold to whoever presses then.
    """
    states = [sheet.state(press) for press in range(crowd.presses)]
    promised = [press for press, state in enumerate(states) if state in PROMISES]
    last_began_us = max((sheet.began_us[press] for press in promised), default=0)
    turned_away = [
        press
        for press, state in enumerate(states)
        if faultless and state == Answer.SOLD_OUT and sheet.ended_us[press] < last_began_us
    ]
    return Told(
        promised=frozenset(user_ids[crowd.buyer_of(press)] for press in promised),
        turned_away=frozenset(user_ids[crowd.buyer_of(press)] for press in turned_away),
        unanswered=sum(state in (FRESH, IN_HAND, UNANSWERED) for state in states),
        took_ms=sheet.took_ms(),
        first_us=min((us for us in sheet.began_us if us), default=0),
    )
