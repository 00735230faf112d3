"""Celery's processes: beat by itself, and the worker that has beat in it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

import pytest

from seckill_site.celery import app, beat
from seckill_site.clocks.watch import clocks_ahead_s
from tests.support.patience import eventually
from tests.support.stack import ROOT, Stack, signal_each

LOADED = """
import sys
from seckill_site.celery import {app}
{app}.loader.init_worker()
{app}.finalize()
print(*(name for name in ("orders.models", "orders.tasks") if name in sys.modules))
"""
CLOCK = f"beat {socket.gethostname()}"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "loaded"), [("beat", ""), ("app", "orders.models orders.tasks")])
def test_beat_by_itself_loads_neither_models_nor_tasks(name: str, loaded: str) -> None:
    command = [sys.executable, "-c", LOADED.format(app=name)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == loaded


@pytest.mark.quick
def test_beat_by_itself_has_the_settings_of_the_worker() -> None:
    for name in ("broker_url", "beat_schedule", "beat_scheduler", "task_routes"):
        assert beat.conf[name] == app.conf[name]


@pytest.mark.django_db(transaction=True)
def test_beat_by_itself_reports_its_clock(stack: Stack) -> None:
    stack.beat()
    assert eventually(lambda: CLOCK in clocks_ahead_s())


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_worker_ends_with_the_beat_in_it(stack: Stack) -> None:
    worker = stack.worker("--beat", concurrency=1)
    assert eventually(lambda: CLOCK in clocks_ahead_s())
    signal_each(worker.children(), signal.SIGKILL)  # it replaces the others
    assert eventually(lambda: worker.popen.poll() is not None), worker.tail()
