"""Tasks that say when they ran, for a worker with ``--include`` of this module."""

from __future__ import annotations

import os
import time
from pathlib import Path

from celery import shared_task

NOTES = Path(os.environ.get("TEST_NOTES", "/nowhere"))


@shared_task(name="tests.note")
def note(*, number: int, work_ms: int = 0) -> None:
    """Note the time, by the clock that all processes of this machine share, and work a little."""
    with NOTES.open("a", encoding="utf-8") as file:
        file.write(f"{number} {time.monotonic()}\n")
    time.sleep(work_ms / 1000)
