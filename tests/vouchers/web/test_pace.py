"""The pace of a crowd's requests for ``me/``."""

from __future__ import annotations

import pytest

from vouchers.web import pace
from vouchers.web.pace import COMFORTABLE_PER_S, LONGEST_MS, count_me_request, me_pace_ms

pytestmark = pytest.mark.quick


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_000.0]
    monkeypatch.setattr(pace, "monotonic", lambda: now[0])
    return now


def come(crowd: int) -> None:
    for _ in range(crowd):
        count_me_request()


@pytest.mark.usefixtures("clock")
def test_few_need_no_pace() -> None:
    come(COMFORTABLE_PER_S // 3)
    assert me_pace_ms() == 0


@pytest.mark.usefixtures("clock")
def test_crowd_spreads_over_the_time_that_a_process_needs_for_it() -> None:
    come(COMFORTABLE_PER_S * 7)
    assert me_pace_ms() == 7_000


@pytest.mark.usefixtures("clock")
def test_pace_has_a_limit() -> None:
    come(COMFORTABLE_PER_S * LONGEST_MS // 1000 * 2)
    assert me_pace_ms() == LONGEST_MS


def test_crowd_is_forgotten(clock: list[float]) -> None:
    come(COMFORTABLE_PER_S * 7)
    clock[0] += 60
    assert 2_000 <= me_pace_ms() <= 3_000
    clock[0] += 240
    assert me_pace_ms() == 0
