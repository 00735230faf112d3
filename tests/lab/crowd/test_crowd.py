"""The crowd of a race: every press is dealt once, the same way each time, double clicks abreast."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from itertools import chain

import pytest

from lab.crowd.crowd import Crowd

pytestmark = pytest.mark.quick

SIZES = [
    Crowd(),
    Crowd(buyers=60, stock=20, processes=2, threads=4),
    Crowd(buyers=7, stock=3, processes=1, threads=1),
    Crowd(buyers=50, stock=5, processes=3, threads=2, clicks=4),
    Crowd(buyers=10, stock=5, processes=1, threads=2, clicks=5),
]


@pytest.mark.parametrize("crowd", SIZES, ids=str)
def test_each_press_is_dealt_once_and_deterministically(crowd: Crowd) -> None:
    lanes = crowd.lanes()
    assert sorted(chain(*(lane.presses for lane in lanes))) == list(range(crowd.presses))
    assert lanes == replace(crowd).lanes()
    assert len(lanes) == crowd.processes * crowd.threads


def test_clicks_of_a_buyer_meet_in_two_processes() -> None:
    crowd = Crowd()
    lanes = crowd.lanes()
    where = defaultdict(list)
    for lane in lanes:
        for place, press in enumerate(lane.presses):
            where[crowd.buyer_of(press)].append((place, lane.number))
    assert len(where) == crowd.buyers
    for (place, first), (other_place, second) in where.values():
        assert place == other_place
        assert lanes[first].process != lanes[second].process
        assert lanes[first].beside == (second,)


def test_clicks_of_a_buyer_meet_in_two_threads() -> None:
    crowd = Crowd(processes=1)
    for lane in crowd.lanes():
        (beside,) = lane.beside
        assert beside != lane.number
