"""The format of log lines, in every process: ``2026-11-26 20:00:00.123+0800 INFO name: text``.

Times are local: Django makes ``SECKILL_SHOP_TIME_ZONE`` the time zone of its process.
``granian-log.json`` is the same for granian, which logs before it loads the site, without
milliseconds; ``granian-log-json.json`` is that as JSON. With ``SECKILL_LOG_FORMAT=json`` a line is
an object, with the fields of ``log_context.py``.
"""

import copy
import datetime as dt
import logging
import time
from collections import Counter
from socket import gethostname
from typing import Any, TextIO

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.utils.log import configure_logging
from pythonjsonlogger.json import JsonFormatter

from seckill_site.log_context import fields_here

LINE = "%(asctime)s %(levelname)s %(name)s: %(message)s"
SECOND, OFFSET = "%Y-%m-%d %H:%M:%S", "%z"

LONGEST_REFUSAL = 200
"""The most characters that a line tells of a refused request."""

MOST_LINES, WINDOW_S = 20, 10.0
"""How many lines a place in the code writes in a window before the rest are counted only."""


class LogLine(logging.Formatter):
    """A line that starts with the time, to the millisecond, and the offset of its zone."""

    def __init__(self) -> None:
        super().__init__(LINE)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        at = time.localtime(record.created)
        second, offset = time.strftime(SECOND, at), time.strftime(OFFSET, at)
        return f"{second}.{int(record.msecs):03}{offset}"


class JsonLine(JsonFormatter):
    """A line as a JSON object, with these fields alone: a record's others may hold anything."""

    def __init__(self) -> None:
        super().__init__(json_ensure_ascii=False)

    def add_fields(
        self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]
    ) -> None:
        at = dt.datetime.fromtimestamp(record.created).astimezone()
        log_data["time"] = at.isoformat(timespec="milliseconds")
        log_data |= {"level": record.levelname, "place": record.name, "text": record.getMessage()}
        log_data |= {"process": f"{gethostname()}/{record.process}", **fields_here()}
        if traceback := message_dict.get("exc_info"):
            log_data["traceback"] = traceback


class OneShortLine(logging.Filter):
    """Make one short line of a refused request: its sender chooses most of the text.

    Django logs a traceback with it, so that a flood of such requests would fill the disk.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        words = " ".join(record.getMessage().split())
        is_long = len(words) > LONGEST_REFUSAL
        _say_only(record, f"{words[:LONGEST_REFUSAL]}…" if is_long else words)
        return True


def _say_only(record: logging.LogRecord, text: str) -> None:
    record.msg, record.args = text, None
    record.exc_info = record.exc_text = record.stack_info = None


class Console(logging.StreamHandler[TextIO]):
    """Standard error. Of a place that repeats itself, the first line alone has its traceback."""

    def __init__(self) -> None:
        super().__init__()
        self._until, self._lines = 0.0, Counter[tuple[str, str, int]]()

    def emit(self, record: logging.LogRecord) -> None:
        if time.monotonic() >= self._until:
            self._tell()
            self._until = time.monotonic() + WINDOW_S
        place = record.name, record.pathname, record.lineno
        self._lines[place] += 1
        error = record.exc_info[1] if record.exc_info else None
        if error and self._lines[place] > 1:
            record = copy.copy(record)
            _say_only(record, f"{record.getMessage()}: {error!r}")
        if self._lines[place] <= MOST_LINES:
            super().emit(record)

    def close(self) -> None:
        self._tell()
        super().close()

    def _tell(self) -> None:
        """Write how many lines were left out in the window that is over."""
        for (name, *_), count in self._lines.items():
            if count > MOST_LINES:
                text = f"{count - MOST_LINES} more lines of one place were left out"
                fields = {"name": name, "levelname": "WARNING", "msg": text}
                super().emit(logging.makeLogRecord(fields))
        self._lines.clear()


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
