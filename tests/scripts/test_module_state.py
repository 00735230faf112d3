"""``script/lint`` refuses what a module remembers by itself."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tests.support.stack import ROOT

pytestmark = pytest.mark.quick


@pytest.fixture
def remembered(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "script" / "lib"))
    import module_state

    return module_state.remembered


@pytest.mark.parametrize(
    "source",
    [
        "_last = None\ndef learn():\n    global _last\n    _last = 1",
        "_seen = []\ndef see(it): _seen.append(it)",
        "_seen: dict[int, str] = {}\ndef see(it): _seen[it] = ''",
        "_seen = {}\nasync def forget(it):\n    del _seen[it]",
        "_seen = dict[int, int]()\ndef count(it): _seen[it] += 1",
        "_seen = {1}\nclass Forgets:\n    def __call__(self): _seen.clear()",
        "_seen = set()\nforget = _seen.clear",
        "_seen = set()\nforget = lambda it: _seen.discard(it)",
        "_seen = collections.deque(maxlen=3)\ndef see(it): return [_seen.append(it)]",
        "_seen = defaultdict(list)\ndef see(it): _seen[it].append(it)",
        "class Last:\n    at = 0\ndef learn(): Last.at = 1",
        "class Last:\n    at = 0\n    @classmethod\n    def learn(cls): cls.at = 1",
        "_seen = {it: 0 for it in 'ab'}\ndef see(it): _seen.update(it=1)",
    ],
)
def test_module_that_remembers_is_refused(remembered: Any, source: str) -> None:
    assert len(remembered(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "urls = []\nurls.append(1)\nurls += [2]",
        "NAMES = {1: 'a'}\ndef name(it): return NAMES.get(it) or NAMES[it]",
        "_seen = []\ndef see(it):\n    _seen = []\n    _seen.append(it)",
        "_seen = []\ndef see(_seen): _seen.append(1)",
        "_known = Memory(most=9)\ndef see(it): _known.drop(it)",
        "@cache\ndef pure(it): return it",
        "ORDERS = Counter('orders', '')\ndef count(): ORDERS.labels('a').inc()",
    ],
)
def test_module_that_only_knows_constants_is_not(remembered: Any, source: str) -> None:
    assert remembered(source) == []


@pytest.mark.slow
def test_apps_of_the_shop_remember_nothing_elsewhere() -> None:
    command = [sys.executable, "script/lib/module_state.py"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (0, "")
