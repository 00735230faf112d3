"""Processor time: counted for the processes that work, and for their children."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from bench.processes import cpu_s, family_of, wake_ups

pytestmark = pytest.mark.quick

BUSY = "import time; begun = time.process_time()\nwhile time.process_time() < begun + 0.05: pass\n"
WITH_CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"


def test_cpu_time_is_counted_for_a_process() -> None:
    before = cpu_s([os.getpid()])
    begun = time.process_time()
    exec(BUSY)
    assert cpu_s([os.getpid()]) - before >= 0.05
    assert abs(cpu_s([os.getpid()]) - before - (time.process_time() - begun)) < 0.01


def test_family_includes_descendants() -> None:
    command = [sys.executable, "-c", WITH_CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as parent:
        deadline = time.monotonic() + 60
        while len(found := family_of(parent.pid)) < 2:
            assert time.monotonic() < deadline
        assert found[0] == parent.pid
        assert found[1] in family_of(os.getpid())
        assert parent.stdin is not None
        parent.stdin.close()


def test_each_end_of_a_sleep_is_a_wake_up() -> None:
    before = wake_ups([os.getpid()])
    for _ in range(20):
        time.sleep(0.001)
    assert (wake_ups([os.getpid()]) - before).total() >= 20
