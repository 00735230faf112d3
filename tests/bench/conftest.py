"""What the tests of the benchmarks share."""

from __future__ import annotations

import pytest

from tests.support.stack import ROOT


@pytest.fixture(autouse=True)
def _script_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the benchmarks find what they start their servers with, as ``script/bench`` does."""
    monkeypatch.syspath_prepend(str(ROOT / "script" / "lib"))
