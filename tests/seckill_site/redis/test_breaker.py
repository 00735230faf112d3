"""The circuit breaker: one failure opens it, one attempt at a time tries the server."""

import pytest

from seckill_site.redis import breaker as module
from seckill_site.redis.breaker import LONGEST_ATTEMPT_S, PAUSE_S, Breaker

pytestmark = pytest.mark.quick


class Refused(Exception):
    """What an attempt that is not made raises."""


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found = [1_000.0]
    monkeypatch.setattr(module, "monotonic", lambda: found[0])
    return found


@pytest.fixture
def breaker(now: list[float]) -> Breaker:
    return Breaker(Refused)


def fail(breaker: Breaker) -> None:
    with pytest.raises(OSError, match="gone"), breaker.attempt():
        raise OSError("gone")


def succeed(breaker: Breaker) -> None:
    with breaker.attempt():
        pass


def test_closed_breaker_lets_everybody_try(breaker: Breaker) -> None:
    with breaker.attempt(), breaker.attempt():
        assert not breaker.open


def test_failure_opens_it_for_a_moment(breaker: Breaker, now: list[float]) -> None:
    fail(breaker)
    with pytest.raises(Refused, match="gone"):
        succeed(breaker)
    now[0] += PAUSE_S
    succeed(breaker)
    assert not breaker.open


def test_only_one_attempt_tries_a_sick_server(breaker: Breaker, now: list[float]) -> None:
    fail(breaker)
    now[0] += PAUSE_S
    with breaker.attempt(), pytest.raises(Refused):
        succeed(breaker)


def test_attempt_without_a_result_does_not_last_for_ever(
    breaker: Breaker, now: list[float]
) -> None:
    fail(breaker)
    now[0] += PAUSE_S
    breaker.attempt().__enter__()  # of a thread that never comes back
    now[0] += LONGEST_ATTEMPT_S
    succeed(breaker)


def test_silence_opens_it_too(breaker: Breaker) -> None:
    breaker.trip(TimeoutError("no reply"))
    with pytest.raises(Refused, match="no reply"):
        succeed(breaker)
