"""The format of log lines, in every process: ``2026-11-26 20:00:00.123+0800 INFO name: text``.

Times are local: Django makes ``SECKILL_SHOP_TIME_ZONE`` the time zone of its process.
``granian-log.json`` is the same for granian, which logs before it loads the site, without
milliseconds.
"""

import logging
import time
from typing import Any

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.utils.log import configure_logging

LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
SECOND, OFFSET = "%Y-%m-%d %H:%M:%S", "%z"

LONGEST_REFUSAL = 200
"""The most characters that a line tells of a refused request."""


class LogLine(logging.Formatter):
    """A line that starts with the time, to the millisecond, and the offset of its zone."""

    def __init__(self) -> None:
        super().__init__(LINE)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        at = time.localtime(record.created)
        second, offset = time.strftime(SECOND, at), time.strftime(OFFSET, at)
        return f"{second}.{int(record.msecs):03}{offset}"


class RefusalLine(LogLine):
    """One short line about a refused request: its sender chooses most of the text.

    Django logs a traceback with it, so that a flood of such requests would fill the disk.
    """

    def format(self, record: logging.LogRecord) -> str:
        words = " ".join(record.getMessage().split())
        if len(words) > LONGEST_REFUSAL:
            words = f"{words[:LONGEST_REFUSAL]}…"
        plain = {"msg": words, "args": (), "exc_info": None, "exc_text": None, "stack_info": None}
        return super().format(logging.makeLogRecord({**record.__dict__, **plain}))


class OutageInOneLine(logging.Filter):
    """A filter that takes the traceback from the line of a task that an outage ended.

    While the database is away, each task says so every two seconds, and the line names the error.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, OperationalError | InterfaceError):
            record.exc_info = None
        return True


def log_as_the_site(*, loglevel: int | None = None, **_: Any) -> None:
    """Let Celery write lines of this format, not its own, at the level of its ``--loglevel``."""
    configure_logging(settings.LOGGING_CONFIG, settings.LOGGING)
    if loglevel is not None:
        logging.getLogger().setLevel(loglevel)
