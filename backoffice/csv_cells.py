"""Cells of a CSV file that a spreadsheet keeps as text."""

import re

_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\r\n\0]")
_LIKE_A_NUMBER = re.compile(r"[0-9０-９\s.,:/eE年月日-]+")


def exact(text: str) -> str:
    """Return digits that a spreadsheet does not turn into a number."""
    return f"\t{text}" if text else ""


def unevaluated(text: str) -> str:
    """Return text that a spreadsheet does not evaluate as a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def harmless(text: str) -> str:
    """Return typed text that a spreadsheet neither evaluates nor turns into a number."""
    if _FORMULA.match(text):
        return unevaluated(text)
    return exact(text) if _LIKE_A_NUMBER.fullmatch(text) else text
