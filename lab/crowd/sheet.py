"""The sheet of a crowd race: the state of each press, in memory that all its processes share.

A process records an answer at the moment the buyer gets it, so the answer survives the process.
"""

import time
from collections.abc import Iterable, Sequence
from ctypes import Structure, c_ubyte, c_uint, c_ulonglong, sizeof
from mmap import mmap
from pathlib import Path
from typing import Any

from lab.crowd.crowd import Crowd
from lab.steps.step import PROMISES, Answer
from lab.verdict import Answers

FRESH, IN_HAND, UNANSWERED, FAILED = "fresh", "in hand", "unanswered", "failed"
OPEN = (FRESH, IN_HAND, UNANSWERED, FAILED)
STATES: tuple[str, ...] = (*OPEN, *Answer)
"""The states of a press; the sheet holds their numbers."""

_NUMBER = {state: number for number, state in enumerate(STATES)}
_PROMISES = bytes(_NUMBER[answer] for answer in sorted(PROMISES))


def now_us() -> int:
    """Return the time of a clock that all processes share."""
    return time.monotonic_ns() // 1_000


class Sheet:
    """A file in memory; every process opens it by its path. Each cell has one writer at a time.

    ``began_us`` and ``ended_us`` have the last try of each press. ``places``, ``ready`` and
    ``done`` have a cell for each lane. ``flags`` has the rest: ``go``, ``closing``, ``struck_us``,
    ``struck_pid`` and ``resumed``.
    """

    def __init__(self, path: Path, crowd: Crowd) -> None:
        self._path = path
        fields: list[tuple[str, Any]] = [
            ("began_us", c_ulonglong * crowd.presses),
            ("ended_us", c_ulonglong * crowd.presses),
            ("struck_us", c_ulonglong),
            ("struck_pid", c_uint),
            ("places", c_uint * crowd.lane_count),
            ("ready", c_ubyte * crowd.lane_count),
            ("done", c_ubyte * crowd.lane_count),
            ("go", c_ubyte),
            ("closing", c_ubyte),
            ("resumed", c_ubyte),
            ("states", c_ubyte * crowd.presses),
        ]
        layout: Any = type("Layout", (Structure,), {"_fields_": fields})
        with path.open("a+b") as file:
            file.truncate(sizeof(layout))
            self.flags: Any = layout.from_buffer(mmap(file.fileno(), sizeof(layout)))
        self.began_us, self.ended_us = self.flags.began_us, self.flags.ended_us
        self.places, self.ready, self.done = self.flags.places, self.flags.ready, self.flags.done
        self._states = self.flags.states

    # --- For the sellers --------------------------------------------------------------------------

    def begin(self, press: int) -> None:
        """Record that a press, or its retry, has been sent."""
        self.began_us[press] = now_us()
        self._states[press] = _NUMBER[IN_HAND]

    def note(self, press: int, state: str) -> None:
        """Record the answer to a press."""
        self.ended_us[press] = now_us()
        self._states[press] = _NUMBER[state]

    def promises(self) -> int:
        """Count the presses that have been promised a unit."""
        states = bytes(self._states)
        return sum(states.count(number) for number in _PROMISES)

    def claim_strike(self) -> bool:
        """Return True to the first process that calls this, False to all others."""
        try:
            self._path.with_suffix(".struck").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    # --- For the director -------------------------------------------------------------------------

    def state(self, press: int) -> str:
        return STATES[int(self._states[press])]

    def answers(self, crowd: Crowd, user_ids: Sequence[int], *, faultless: bool) -> Answers:
        """Return the crowd's answers.

        Buyers turned away or denied are counted only without a fault: after one, the units of dead
        buyers come back and are sold to later presses.
        """
        states = [STATES[number] for number in bytes(self._states)]
        promised = [press for press, state in enumerate(states) if state in PROMISES]
        last_began_us = max((self.began_us[press] for press in promised), default=0)
        sold_out = [
            press for press, state in enumerate(states) if faultless and state == Answer.SOLD_OUT
        ]
        turned_away = [press for press in sold_out if self.ended_us[press] < last_began_us]
        took_us = [
            self.ended_us[press] - self.began_us[press]
            for press, state in enumerate(states)
            if state not in OPEN
        ]

        def buyers(presses: Iterable[int]) -> frozenset[int]:
            return frozenset(user_ids[crowd.buyer_of(press)] for press in presses)

        return Answers(
            promised=buyers(promised),
            turned_away=buyers(turned_away),
            denied=buyers(promised) & buyers(sold_out),
            unanswered=len(states) - len(took_us),
            errors=states.count(FAILED),
            took_ms=[microseconds / 1_000 for microseconds in sorted(took_us)],
            first_us=min((us for us in self.began_us if us), default=0),
        )
