"""The order of ``script/test --shuffle``."""

from __future__ import annotations

import random
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.order import shuffled

pytestmark = pytest.mark.quick

ITEMS: list[Any] = [
    SimpleNamespace(path=Path(module), name=f"{module}-{number}")
    for module in ("a", "b", "c", "d")
    for number in range(20)
]


def names(seed: int) -> list[str]:
    return [item.name for item in shuffled(ITEMS, random.Random(seed))]


def test_seed_gives_one_order_of_modules_and_tests():
    assert names(7) == names(7)
    assert names(7) != names(8)
    assert sorted(names(7)) == sorted(item.name for item in ITEMS)


def test_tests_of_a_module_stay_together():
    assert [module for module, _ in groupby(name[0] for name in names(7))] == sorted(
        "abcd", key=[name[0] for name in names(7)].index
    )
