"""The current time and its two forms: aware datetimes and milliseconds since 1970."""

import datetime as dt
import time

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MILLISECOND = dt.timedelta(milliseconds=1)


def now_ms() -> int:
    """Return the current time in milliseconds since 1970.

    Only the edges (views, tasks, commands) read the clock; domain functions take the time.
    """
    return time.time_ns() // 1_000_000


def epoch_ms(moment: dt.datetime) -> int:
    """Return an aware moment as whole milliseconds since 1970."""
    return (moment - _EPOCH) // MILLISECOND


def from_epoch_ms(milliseconds: int) -> dt.datetime:
    """Return milliseconds since 1970 as a moment in UTC."""
    return _EPOCH + milliseconds * MILLISECOND
