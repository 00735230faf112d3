"""The shim that gives a process another wall clock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.faults.conftest import with_clock

READ = """
import datetime as dt, json, logging, time
from django.utils import timezone
monotonic = time.monotonic()
print(json.dumps({
    "time": time.time(),
    "time_ns": time.time_ns() / 10**9,
    "clock_gettime": time.clock_gettime(time.CLOCK_REALTIME),
    "gmtime": __import__("calendar").timegm(time.gmtime()),
    "localtime": time.mktime(time.localtime()),
    "logging": time.mktime(logging.Formatter().converter(time.time())),
    "now": dt.datetime.now().timestamp(),
    "utcnow": dt.datetime.now(dt.UTC).timestamp(),
    "django": timezone.now().timestamp(),
    "monotonic": monotonic,
    "later": (timezone.now() + dt.timedelta(0)).timestamp(),
    "same": isinstance(timezone.now(), dt.date) and dt.date.today() == dt.datetime.now().date(),
}))
"""

SLACK_S = 30
"""More than a start of Python takes."""


def clocks(shift_s: float) -> dict[str, Any]:
    """Return what a process with such a clock reads."""
    read = subprocess.run(
        [sys.executable, "-c", READ],
        env={**os.environ, **with_clock(shift_s)},
        stdout=subprocess.PIPE,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    return dict(json.loads(read.stdout))


def test_every_wall_clock_is_shifted_and_no_other() -> None:
    shift_s = -3_600
    read = clocks(shift_s)
    assert read.pop("same")
    assert abs(read.pop("monotonic") - time.monotonic()) < SLACK_S
    assert {name: abs(at - shift_s - time.time()) < SLACK_S for name, at in read.items()} == (
        dict.fromkeys(read, True)
    )
