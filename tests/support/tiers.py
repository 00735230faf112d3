"""Which tier of ``script/test`` a test is in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

PARAMETER = type(pytest.param())


def slow_after(count: int, values: Iterable[Any]) -> list[Any]:
    """Return the values for ``pytest.mark.parametrize``: those after the first ``count`` are slow.

    A tuple is one value for each of several names. For one name, write it as a ``pytest.param``.
    """
    kept = list(values)
    return kept[:count] + [_slow(value) for value in kept[count:]]


def _slow(value: Any) -> Any:
    if isinstance(value, PARAMETER):
        return pytest.param(*value.values, marks=(*value.marks, pytest.mark.slow), id=value.id)
    values = value if type(value) is tuple else (value,)
    return pytest.param(*values, marks=pytest.mark.slow)
