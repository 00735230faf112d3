"""Whole numbers as options of commands."""

from argparse import ArgumentTypeError
from collections.abc import Callable


def between(least: int, most: int) -> Callable[[str], int]:
    """Return the type of an option that is a whole number from ``least`` to ``most``."""

    def number(text: str) -> int:
        if not least <= int(text) <= most:
            raise ArgumentTypeError(f"give a number from {least:,} to {most:,}, not {text}")
        return int(text)

    return number
