"""The order of the tests: random on request, and always written down.

A plugin, loaded by name by ``script/test``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest

WRITTEN_TO = Path(__file__).resolve().parents[2] / ".run" / "order"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in a random order")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle the modules, and the tests of each: those of a module share what is slow to make."""
    seed = config.getoption("--shuffle")
    if seed is not None:
        items[:] = shuffled(items, random.Random(seed))


def shuffled(items: list[pytest.Item], chance: random.Random) -> Iterator[pytest.Item]:
    modules = [list(tests) for _, tests in groupby(items, key=lambda item: item.path)]
    chance.shuffle(modules)
    for tests in modules:
        chance.shuffle(tests)
        yield from tests


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Write the tests down as they start, one file for each process, for pytest's ``@file``."""
    config = session.config
    if not config.option.collectonly and not getattr(config.option, "numprocesses", None):
        worker = getattr(config, "workerinput", {}).get("workerid", "gw0")
        config.pluginmanager.register(Order(WRITTEN_TO / worker))


class Order:
    """Writes the id of each test to a file before it runs."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w", encoding="utf-8")

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        print(nodeid, file=self._file, flush=True)

    def pytest_unconfigure(self) -> None:
        self._file.close()
