"""``live/`` from memory: one call to the ledger for many requests, with a running clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from tests.support.inspection import redis_commands
from tests.support.sales import HOUR, make_loaded_sale, make_sale, redis_now_ms
from tests.support.wsgi import Answer, ask
from vouchers.inventory.sale_state import Snapshot, snapshot
from vouchers.web import fast_path as gate

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Start as a new process, and stop the monotonic clock until a test sets it."""
    gate._samples.clear()
    now = [1000.0]
    monkeypatch.setattr(gate, "monotonic", lambda: now[0])
    yield now
    gate._samples.clear()


def live(sale_id: int) -> Answer:
    return ask("GET", f"/vouchers/{sale_id}/live/")


def test_simultaneous_requests_cost_one_command_and_no_sql(
    django_assert_num_queries: DjangoAssertNumQueries,
) -> None:
    sale = make_loaded_sale(stock=7)
    with redis_commands() as commands, django_assert_num_queries(0):
        answers = [live(sale.pk) for _ in range(50)]
    assert {answer.status for answer in answers} == {200}
    assert {answer.json["remaining"] for answer in answers} == {7}
    assert len(commands.ledger) == 1


def test_sample_expires_after_a_tenth_of_a_second(clock: list[float]) -> None:
    sale = make_loaded_sale()
    live(sale.pk)
    clock[0] += gate.FRESH_S
    with redis_commands() as commands:
        live(sale.pk)
    assert len(commands.ledger) == 1


def test_server_time_advances_between_samples(clock: list[float]) -> None:
    sale = make_loaded_sale()
    first = live(sale.pk).json["server_time_ms"]
    clock[0] += 0.05
    assert live(sale.pk).json["server_time_ms"] == first + 50


def test_server_time_is_never_early(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*, sale_id: int) -> Snapshot:
        clock[0] += 0.5
        return snapshot(sale_id=sale_id)

    monkeypatch.setattr(gate, "snapshot", slow)
    server_time_ms = live(make_loaded_sale().pk).json["server_time_ms"]
    assert server_time_ms <= redis_now_ms()


def test_sale_starts_between_samples(clock: list[float]) -> None:
    now = timezone.now()
    sale = make_loaded_sale(begins_at=now + HOUR, ends_at=now + 2 * HOUR)
    assert live(sale.pk).json["state"] == "scheduled"
    taken = gate._samples[sale.pk]
    shortly_before = replace(taken.snapshot, now_ms=taken.snapshot.terms.begins_at_ms - 30)
    gate._samples[sale.pk] = replace(taken, snapshot=shortly_before)
    clock[0] += 0.05
    assert live(sale.pk).json["state"] == "open"


def test_live_answers_like_django() -> None:
    sale = make_loaded_sale()
    from_gate = live(sale.pk)
    from_django = ask("HEAD", f"/vouchers/{sale.pk}/live/")
    assert set(from_gate.json) == {
        "state", "server_time_ms", "begins_at_ms", "ends_at_ms", "total", "remaining",
    }  # fmt: skip
    for name in ("content-type", "cache-control", "x-content-type-options"):
        assert from_gate.headers[name] == from_django.headers[name]


def test_unloaded_sale_is_loaded_by_django() -> None:
    sale = make_sale(stock=3)
    assert live(sale.pk).json["remaining"] == 3


def test_missing_sale_returns_404() -> None:
    assert live(999_999).status == 404


def test_redis_down_returns_503(
    redis_gone: Callable[[], AbstractContextManager[None]],
) -> None:
    sale = make_loaded_sale()
    with redis_gone():
        answer = live(sale.pk)
    assert (answer.status, answer.json["code"]) == (503, "unavailable")


def test_other_threads_serve_the_last_sample(clock: list[float]) -> None:
    sale = make_loaded_sale()
    live(sale.pk)
    clock[0] += 0.5
    with gate._sampling, redis_commands() as commands:
        assert live(sale.pk).status == 200
    assert list(commands) == []


def test_memory_is_bounded_over_many_sales(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "MAX_SALES", 3)
    for _ in range(5):
        live(make_loaded_sale().pk)
    assert len(gate._samples) <= 3
