"""A Celery worker in a thread of the tests' own process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery.contrib.testing.worker import start_worker

from seckill_site.celery import app


@contextmanager
def worker_here(**options: Any) -> Iterator[None]:
    """Run a worker, whose log shows errors only; afterwards this process logs as before."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        with start_worker(
            app, pool="solo", perform_ping_check=False, shutdown_timeout=20, **options
        ):
            yield
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers
