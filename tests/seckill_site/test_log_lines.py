"""One clock and one format of log lines, in every process."""

from __future__ import annotations

import datetime as dt
import io
import json
import logging
import logging.config
import re
import time
import zoneinfo
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from celery import shared_task
from celery.signals import setup_logging
from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.db import InterfaceError, OperationalError, connections

from seckill_site import log_lines
from seckill_site.log_lines import MOST_LINES, JsonLine, LogLine

pytestmark = pytest.mark.quick

GRANIAN = Path(__file__).resolve().parents[2] / "seckill_site" / "granian-log.json"
AT = dt.datetime(2026, 12, 1, 12, 0, 0, 45_000, tzinfo=dt.UTC)


@pytest.fixture(params=["Asia/Shanghai", "America/St_Johns"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


def record() -> logging.LogRecord:
    found = logging.LogRecord("orders.tasks", logging.INFO, "", 0, "sold %s", ("7",), None)
    found.created, found.msecs = AT.timestamp(), 45.0
    return found


def test_line_starts_with_the_time_of_its_zone(zone: str) -> None:
    line = LogLine().format(record())
    stamp, text = line[:28], line[28:]
    assert text == " INFO orders.tasks: sold 7"
    assert dt.datetime.strptime(stamp, "%Y-%m-%d %H:%M:%S.%f%z") == AT
    assert stamp[-5:] == {"Asia/Shanghai": "+0800", "America/St_Johns": "-0330"}[zone]


def test_granian_writes_the_same_time(zone: str) -> None:
    config = json.loads(GRANIAN.read_text())["formatters"]["line"]
    line = logging.Formatter(config["format"], config["datefmt"]).format(record())
    ours = LogLine().format(record())
    assert line == re.sub(r"\.\d+|orders\.tasks", "", ours).replace(" :", " granian:")


def test_process_has_the_time_zone_of_the_shop() -> None:
    now = dt.datetime.now(tz=dt.UTC)
    shop = zoneinfo.ZoneInfo(settings.SECKILL_SHOP_TIME_ZONE)
    assert now.astimezone().utcoffset() == now.astimezone(shop).utcoffset()


def test_refusal_is_one_short_line(capsys: pytest.CaptureFixture[str]) -> None:
    logging.config.dictConfig(settings.LOGGING)
    text = f"Invalid HTTP_HOST header: {'x' * 9_000}\nERROR root: forged"
    try:
        raise DisallowedHost(text)
    except DisallowedHost as error:
        logging.getLogger("django.security.DisallowedHost").error(str(error), exc_info=error)
    (line,) = capsys.readouterr().err.splitlines()
    assert " ERROR django.security.DisallowedHost: Invalid HTTP_HOST header: xxx" in line
    assert len(line) < 300


@pytest.fixture
def _fresh_root(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The root logger before it is configured; afterwards it is as it was."""
    root = logging.getLogger()
    level = root.level
    monkeypatch.setattr(root, "handlers", [])
    yield
    root.setLevel(level)


@pytest.mark.usefixtures("_fresh_root")
def test_celery_writes_lines_of_the_same_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert setup_logging.send(sender=None, loglevel=logging.INFO)
    logging.getLogger("celery.worker").info("ready")
    stamp = r"[\d-]{10} [\d:.]{12}[+-]\d{4}"
    assert re.fullmatch(f"{stamp} INFO celery.worker: ready\n", capsys.readouterr().err)


@pytest.mark.usefixtures("_fresh_root")
def test_level_of_celery_is_that_of_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    setup_logging.send(sender=None, loglevel=logging.ERROR)
    logging.getLogger("celery.worker").warning("ready")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "is_short"),
    [
        (OperationalError(2002, "no server"), True),
        (InterfaceError("gone"), True),
        (KeyError(), False),
    ],
)
def test_task_that_an_outage_ends_writes_one_line(
    capsys: pytest.CaptureFixture[str], error: Exception, is_short: bool
) -> None:
    def fail() -> None:
        raise error

    ended = shared_task(name=f"tests.ended_by_{type(error).__name__}")(fail)

    logging.config.dictConfig(settings.LOGGING)
    connected = mock.patch.object(connections, "all", return_value=[])  # by an earlier test
    with connected, mock.patch("time.sleep"):  # a process without a database pauses
        ended.apply()

    lines = capsys.readouterr().err.splitlines()
    assert repr(error) in lines[0]
    assert (len(lines) == 1) is is_short


def test_granian_writes_json_with_the_same_fields(
    zone: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads(GRANIAN.with_name("granian-log-json.json").read_text())
    logging.config.dictConfig(config)
    logging.getLogger("_granian").info("started")
    fields = json.loads(capsys.readouterr().out)
    ours = json.loads(JsonLine().format(record()))
    assert fields.keys() == ours.keys() - {"process"}
    assert fields["time"][:11] == dt.datetime.now().astimezone().isoformat()[:11]


# --- places that repeat themselves ----------------------------------------------------------------


class Place:
    """A place in the code that logs, and what comes of it."""

    def __init__(self) -> None:
        self.console, self.stream = log_lines.Console(), io.StringIO()
        self.console.setStream(self.stream)
        self.console.setFormatter(LogLine())
        self.logger = logging.Logger("orders")
        self.logger.addHandler(self.console)

    def complain(self, times: int, *, error: Exception | None = None) -> list[str]:
        for number in range(times):
            self.logger.warning("line %s", number, exc_info=error)
        return self.written()

    def written(self) -> list[str]:
        lines = self.stream.getvalue().splitlines()
        self.stream.truncate(self.stream.seek(0))
        return lines


def test_place_that_repeats_itself_writes_20_lines_and_how_many_more() -> None:
    place = Place()
    assert len(place.complain(50)) == MOST_LINES
    place.logger.warning("another place")
    assert place.written()[0].endswith("another place")

    place.console._until = 0.0  # the window is over
    place.logger.warning("a third place")
    told, _ = place.written()
    assert told.endswith("WARNING orders: 30 more lines of one place were left out")
    assert len(place.complain(1)) == 1  # a new window


def test_without_the_limit_each_line_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "MOST_LINES", 1_000)
    assert len(Place().complain(50)) == 50


def test_end_of_a_process_tells_what_was_left_out() -> None:
    place = Place()
    place.complain(21)
    place.console.close()
    assert place.written()[0].endswith("1 more lines of one place were left out")


def test_only_the_first_line_of_a_place_has_its_traceback() -> None:
    try:
        raise ZeroDivisionError("no number")
    except ZeroDivisionError as error:
        lines = Place().complain(3, error=error)
    assert [line for line in lines if "Traceback" in line] == ["Traceback (most recent call last):"]
    assert lines[-1].endswith("line 2: ZeroDivisionError('no number')")
