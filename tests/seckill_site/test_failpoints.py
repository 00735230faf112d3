"""Failpoints: a test stops the product at a named point, once, and at no other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from seckill_site import failpoints
from seckill_site.failpoints import FailpointReached, armed, failpoint, tell

pytestmark = pytest.mark.quick


def test_failpoint_fails_only_at_the_nth_pass() -> None:
    with armed("place.reserved:2=raise"):
        failpoint("place.read")
        failpoint("place.reserved")
        with pytest.raises(FailpointReached, match=r"place\.reserved"):
            failpoint("place.reserved")
        failpoint("place.reserved")
    failpoint("place.reserved")


@pytest.mark.parametrize("spec", ["a b", "point:0", "point=explode", ":2", "point:2:3"])
def test_malformed_failpoint_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="FAILPOINT is name"), armed(spec):
        pass


def test_no_failpoint_is_armed_by_default() -> None:
    assert failpoints._Points.listener is None


def test_listener_sees_every_failpoint_and_none_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failpoints._Points, "listener", None)  # only for this test
    heard: list[str] = []

    tell(heard.append)
    failpoint("place.read")
    failpoint("place.reserved")
    with armed("place.read=raise"), pytest.raises(FailpointReached):
        failpoint("place.read")
    failpoint("place.read")

    assert heard == ["place.read", "place.reserved", "place.read"]


ALONE = f"""
import os, runpy, threading
failpoint = runpy.run_path({failpoints.__file__!r})['failpoint']
"""
"""Without the package, which would import Celery."""

IN_A_THREAD = """
def reach():
    failpoint('p')
    os.write(1, b'past')

thread = threading.Thread(target=reach)
thread.start()
thread.join()
"""


def started(action: str, code: str) -> subprocess.Popen[Any]:
    return subprocess.Popen(
        [sys.executable, "-c", ALONE + code],
        env={**os.environ, "FAILPOINT": f"p{action}"},
        stdout=subprocess.PIPE,
    )


@pytest.mark.parametrize(
    ("action", "ended_by"), [("", signal.SIGKILL), ("=exit", signal.SIGKILL), ("=stop", None)]
)
def test_environment_arms_a_failpoint(action: str, ended_by: signal.Signals | None) -> None:
    process = started(action, "failpoint('p'); print('past')")
    if ended_by is None:
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
        process.send_signal(signal.SIGCONT)
    said, _ = process.communicate(timeout=20)
    assert (process.returncode, said) == ((-ended_by, b"") if ended_by else (0, b"past\n"))


def test_stop_holds_the_very_thread() -> None:
    for _ in range(5):
        process = started("=stop", IN_A_THREAD)
        assert process.stdout
        os.set_blocking(process.stdout.fileno(), False)
        assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
        assert not process.stdout.read()
        process.kill()
        process.communicate(timeout=20)
