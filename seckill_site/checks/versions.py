"""What the start-up checks share: their type, and version numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from django.core.checks import CheckMessage

Check = Callable[..., Iterator[CheckMessage]]
"""A start-up check: yields what it finds."""


def numbers(text: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
