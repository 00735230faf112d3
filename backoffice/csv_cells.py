"""Cells of a CSV file that a spreadsheet takes for what they are: text, and nothing to work out."""

from __future__ import annotations

import re

_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\r\n\0]")
_LIKE_A_NUMBER = re.compile(r"[0-9０-９\s.,:/eE年月日-]+")


def exact(text: str) -> str:
    """Return digits as text that a spreadsheet takes for no number."""
    return f"\t{text}" if text else ""


def unevaluated(text: str) -> str:
    """Return a text that a spreadsheet does not work out as a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def harmless(text: str) -> str:
    """Return what somebody has typed as text that a spreadsheet takes for nothing else."""
    if _FORMULA.match(text):
        return unevaluated(text)
    return exact(text) if _LIKE_A_NUMBER.fullmatch(text) else text
