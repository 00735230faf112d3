"""The sheet of a race: what became of each press, in memory that all selling processes share.

A seller writes down an answer in the moment in which the buyer hears it. It stays written if the
process is killed in the next one, so nobody's promise is forgotten with who gave it.
"""

from __future__ import annotations

import multiprocessing
import time
from ctypes import c_ubyte, c_uint, c_ulonglong
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray, RawValue
from multiprocessing.synchronize import Lock
from typing import Any

from lab.answers import PROMISES, Answer

FRESH, IN_HAND, UNANSWERED = "fresh", "in hand", "unanswered"
STATES: tuple[str, ...] = (FRESH, IN_HAND, UNANSWERED, *Answer)
"""What a press can be; its number here stands in the sheet."""

_NUMBER = {state: number for number, state in enumerate(STATES)}
_PROMISES = bytes(_NUMBER[answer] for answer in sorted(PROMISES))


def now_us() -> int:
    """Return the time of a clock that all processes share."""
    return time.monotonic_ns() // 1_000


@dataclass(frozen=True)
class Sheet:
    """What is shared; each field has one writer at a time.

    ``states``, ``began_us`` and ``ended_us`` go by presses: the last try of each. ``places``,
    ``ready`` and ``done`` go by lanes. Whoever takes ``fate``, which nobody gives back, is struck.
    """

    states: Any
    began_us: Any
    ended_us: Any
    places: Any
    ready: Any
    done: Any
    go: Any
    closing: Any
    fate: Lock
    struck_us: Any
    struck_pid: Any
    resumed: Any

    @classmethod
    def of(cls, *, presses: int, lanes: int) -> Sheet:
        """Make an empty sheet."""
        return cls(
            states=RawArray(c_ubyte, presses),
            began_us=RawArray(c_ulonglong, presses),
            ended_us=RawArray(c_ulonglong, presses),
            places=RawArray(c_uint, lanes),
            ready=RawArray(c_ubyte, lanes),
            done=RawArray(c_ubyte, lanes),
            go=RawValue(c_ubyte, 0),
            closing=RawValue(c_ubyte, 0),
            fate=multiprocessing.get_context("forkserver").Lock(),
            struck_us=RawValue(c_ulonglong, 0),
            struck_pid=RawValue(c_uint, 0),
            resumed=RawValue(c_ubyte, 0),
        )

    # --- A seller's side --------------------------------------------------------------------------

    def begin(self, press: int) -> None:
        """Note that a press, or its next try, is on its way."""
        self.began_us[press] = now_us()
        self.states[press] = _NUMBER[IN_HAND]

    def note(self, press: int, state: str) -> None:
        """Note what a press was told."""
        self.ended_us[press] = now_us()
        self.states[press] = _NUMBER[state]

    def promised_presses(self) -> int:
        """Count the presses that were promised a unit so far."""
        states = bytes(self.states)
        return sum(states.count(number) for number in _PROMISES)

    # --- What the race asks -----------------------------------------------------------------------

    def state(self, press: int) -> str:
        return STATES[int(self.states[press])]

    def answered(self) -> int:
        """Count the presses that have their last answer, or will have none."""
        states = bytes(self.states)
        return len(states) - states.count(_NUMBER[FRESH]) - states.count(_NUMBER[IN_HAND])

    def took_ms(self) -> list[float]:
        """Return how long each answer took, in ascending order."""
        answered = [press for press, number in enumerate(bytes(self.states)) if number > 2]
        took = [self.ended_us[press] - self.began_us[press] for press in answered]
        return [microseconds / 1_000 for microseconds in sorted(took)]
