"""The crowd of a race: who presses, in which order, and where. The same for every step.

A *press* is one click of one buyer. Presses wait in *lanes*, one for each thread of each selling
process, and the clicks of one buyer stand at the same place of neighbouring lanes: they are pressed
at the same moment, in different threads, and where there are several processes in different ones.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

SEED = 6


@dataclass(frozen=True)
class Lane:
    """What one thread presses, in order; ``number`` is its own among all threads of the race.

    ``beside`` are the lanes in which the same buyers press at the same moment.
    """

    number: int
    process: int
    beside: tuple[int, ...]
    presses: Sequence[int]


@dataclass(frozen=True)
class Crowd:
    """How many buyers press how often for how many units, and through how many threads."""

    buyers: int = 1_000
    stock: int = 100
    processes: int = 2
    threads: int = 8
    clicks: int = 2

    @property
    def presses(self) -> int:
        return self.buyers * self.clicks

    def buyer_of(self, press: int) -> int:
        """Return the number of the buyer whose press this is, from 0."""
        return press // self.clicks

    def lanes(self) -> list[Lane]:
        """Deal all presses to the threads, lane by lane; always the same way."""
        order = list(range(self.buyers))
        random.Random(SEED).shuffle(order)
        count = self.processes * self.threads
        abreast = max(1, count // self.clicks)
        dealt: list[list[int]] = [[] for _ in range(count)]
        for place, buyer in enumerate(order):
            for click in range(self.clicks):
                lane = (place % abreast * self.clicks + click) % count
                dealt[lane].append(buyer * self.clicks + click)
        return [
            Lane(number, number % self.processes, self._beside(number), presses)
            for number, presses in enumerate(dealt)
        ]

    def _beside(self, lane: int) -> tuple[int, ...]:
        first = lane - lane % self.clicks
        last = min(first + self.clicks, self.processes * self.threads)
        return tuple(it for it in range(first, last) if it != lane)
