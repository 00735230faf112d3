"""What a race knows of a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lab.answers import Answer

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


class Writer(Protocol):
    """The background half of a step that has one; it lives in a process that sells."""

    def work_once(self) -> bool:
        """Write what waits, waiting a little for it; False where nothing came."""


class Buy(Protocol):
    def __call__(self, *, sale_id: int, user_id: int) -> Answer: ...


@dataclass(frozen=True)
class Step:
    """One design.

    ``open`` makes a sale of so many units with its keys and returns its id. ``buyers`` returns the
    ids of so many buyers. ``rows`` returns the user id of each order of a sale that is written and
    counts. ``clear`` removes a sale with its rows and keys, when nobody is at it any more.

    ``writer`` makes the background half for one process, where the step has one; ``name`` tells it
    from those of other processes.
    """

    name: str
    title: StrOrPromise
    buy: Buy
    open: Callable[[int], int]
    buyers: Callable[[int], list[int]]
    rows: Callable[[int], list[int]]
    clear: Callable[[int], None]
    writer: Callable[[str], Writer] | None = None

    @property
    def is_ours(self) -> bool:
        """Whether this is the shop itself, with its ledger, its tokens and its receipts."""
        return self.name == "ours"
