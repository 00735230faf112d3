"""Threads of a test that meet at the points of a step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from django.db import connections

from lab.points import listening
from lab.steps import STEPS
from lab.steps.step import Answer, Step, Writer
from orders.fulfilment.worker import fulfil_sale
from tests.support.patience import GENEROUS_S, wait_for


class Died(Exception):
    """The process of this thread died."""


def passed(press: Callable[[], Any]) -> list[str]:
    """Return the points that a press passes, in order."""
    names: list[str] = []
    with listening(names.append):
        press()
    return names


@contextmanager
def at(point: str, do: Callable[[], Any]) -> Iterator[None]:
    """Do something when this thread passes a point for the first time."""
    todo = [do]

    def listen(name: str) -> None:
        if name == point and todo:
            todo.pop()()

    with listening(listen):
        yield


def die() -> None:
    raise Died


def elsewhere(function: Callable[[], Any]) -> Any:
    """Call something in another thread, with another connection, and return its result."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_with_own_connection, function).result(GENEROUS_S)


@contextmanager
def beside(
    function: Callable[[], Any], *, until: str, held_for: threading.Event | None = None
) -> Iterator[Future[Any]]:
    """Start something in another thread and continue when it passes a point.

    If an event is given, the other thread waits there for it.
    """
    there = threading.Event()

    def arrive() -> None:
        there.set()
        assert held_for is None or held_for.wait(GENEROUS_S)

    def reaching() -> Any:
        with at(until, arrive):
            return function()

    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(_with_own_connection, reaching)
        assert there.wait(GENEROUS_S), f"nobody passed {until!r}"
        yield future


def buy(step: str, sale_id: int, user_id: int) -> Answer:
    return STEPS[step].buy(sale_id=sale_id, user_id=user_id)


def writer_of(step: Step, process_name: str = "p1") -> Writer:
    assert step.writer is not None
    return step.writer(process_name)


def write_all(step: Step, sale_id: int, *, until: int) -> None:
    """Let the step's writer or the shop's worker write until there are this many orders."""
    if step.name == "ours":
        fulfil_sale(sale_id=sale_id)
    if step.writer is None:
        assert len(step.rows(sale_id)) == until
        return
    writer = writer_of(step)

    def written() -> bool:
        writer.work_once()
        return len(step.rows(sale_id)) >= until

    wait_for(written, what="the last order")


def _with_own_connection(function: Callable[[], Any]) -> Any:
    try:
        return function()
    finally:
        connections.close_all()
