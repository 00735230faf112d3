"""What is known of a named race before it is played."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.interleaving.stage import PlayedStage

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise

Findings = Mapping[str, int]

RIGHT: Findings = {}


@dataclass(frozen=True)
class Race:
    """An order of events; ``expects`` has each step that it is meant for, and what is found there.

    ``play`` opens the sale, lets the actors move, and leaves the judging to whoever called it.
    """

    name: str
    title: StrOrPromise
    story: StrOrPromise
    play: Callable[[PlayedStage], None]
    expects: Mapping[str, Findings]
