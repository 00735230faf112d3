"""What a race knows of a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from lab.answers import Answer


class Writer(Protocol):
    """The background half of a step that has one; it lives in a process that sells."""

    def work_once(self) -> bool:
        """Write what waits, waiting a little for it; False where nothing came."""


class Buy(Protocol):
    def __call__(self, *, sale_id: int, user_id: int) -> Answer: ...


@dataclass(frozen=True)
class Step:
    """One design.

    ``open`` makes a sale of so many units with its keys and returns its id. ``writer`` makes the
    background half for one process, where the step has one; ``name`` tells it from those of other
    processes.
    """

    name: str
    title: str
    buy: Buy
    open: Callable[[int], int]
    writer: Callable[[str], Writer] | None = None
