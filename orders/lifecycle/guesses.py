"""A limit on wrong codes, per account and time window."""

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from django.core.cache import cache


class TooManyGuesses(Exception):
    """Too many guesses were wrong; the next may be made after ``retry_after_s``."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"too many wrong codes; go on in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class GuessesUnknown(Exception):
    """The cache, which counts wrong codes, does not respond, so no code is accepted."""


class GuessLimit(NamedTuple):
    """The most wrong guesses per window, and the error that tells a wrong one."""

    name: str
    most: int
    window_s: int
    wrong: type[Exception]


@contextmanager
def counted_guess(limit: GuessLimit, *, user_id: int, now: dt.datetime) -> Iterator[None]:
    """Allow one guess at a code, and count it if it is wrong.

    It is counted first and uncounted if the code exists, so concurrent guesses gain nothing.

    :raises TooManyGuesses: too many guesses in this window were wrong.
    :raises GuessesUnknown: the cache did not respond.
    """
    window, second = divmod(int(now.timestamp()), limit.window_s)
    key = f"{limit.name}:{user_id}:{window}"
    cache.add(key, 0, timeout=2 * limit.window_s)
    guesses = _count(key, 1)
    if guesses is None:
        raise GuessesUnknown("the cache did not count the guess")
    if guesses > limit.most:
        raise TooManyGuesses(limit.window_s - second)
    try:
        yield
    except limit.wrong:
        raise
    except BaseException:
        _count(key, -1)
        raise
    _count(key, -1)


def _count(key: str, by: int) -> int | None:
    """Add to a counter and return it; None if the cache does not respond or has lost it."""
    try:
        count: int | None = cache.incr(key, by)
    except ValueError:
        return None
    return count
