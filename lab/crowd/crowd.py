"""The crowd of a race: which buyer presses when, and in which thread. The same for every step.

A *press* is one click of one buyer. Presses wait in *lanes*, one for each thread of each process.
The clicks of one buyer have the same place in neighboring lanes, so they are pressed at the same
moment in different threads and, if there are several, in different processes.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

SEED = 6


@dataclass(frozen=True)
class Lane:
    """The presses of one thread, in order; ``number`` counts the threads of all processes.

    ``beside`` are the lanes in which the same buyers press at the same moment.
    """

    number: int
    process: int
    beside: tuple[int, ...]
    presses: Sequence[int]


@dataclass(frozen=True)
class Crowd:
    """The sizes of a crowd: ``threads`` are per process, ``clicks`` per buyer."""

    buyers: int = 1_000
    stock: int = 100
    processes: int = 2
    threads: int = 8
    clicks: int = 2

    @property
    def presses(self) -> int:
        return self.buyers * self.clicks

    @property
    def lane_count(self) -> int:
        return self.processes * self.threads

    def buyer_of(self, press: int) -> int:
        """Return the number (from 0) of the buyer of a press."""
        return press // self.clicks

    def lanes(self) -> list[Lane]:
        """Distribute all presses over the threads, the same way each time."""
        order = list(range(self.buyers))
        random.Random(SEED).shuffle(order)
        abreast = max(1, self.lane_count // self.clicks)
        dealt: list[list[int]] = [[] for _ in range(self.lane_count)]
        for place, buyer in enumerate(order):
            for click in range(self.clicks):
                lane = (place % abreast * self.clicks + click) % self.lane_count
                dealt[lane].append(buyer * self.clicks + click)
        lanes = []
        for number, presses in enumerate(dealt):
            first = number - number % self.clicks
            group = range(first, min(first + self.clicks, self.lane_count))
            beside = tuple(it for it in group if it != number)
            lanes.append(Lane(number, number % self.processes, beside, presses))
        return lanes
