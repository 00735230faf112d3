"""The Celery application: ``celery -A seckill_site worker`` and ``celery -A seckill_site beat``."""

import gc
import os
import signal
from typing import Any

from celery import Celery
from celery.exceptions import WorkerTerminate
from celery.signals import (
    beat_init,
    setup_logging,
    task_postrun,
    task_prerun,
    task_success,
    worker_init,
    worker_ready,
    worker_shutting_down,
)
from django.db import connections

from seckill_site.broker import transport
from seckill_site.broker.heartbeats import note_queues, note_task
from seckill_site.clocks.watch import report_from_beat
from seckill_site.log_context import note_task as name_task
from seckill_site.log_lines import log_as_the_site

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seckill_site.settings")

transport.register()
app = Celery("seckill_site")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
setup_logging.connect(log_as_the_site)
beat_init.connect(report_from_beat)
worker_ready.connect(note_queues)
task_success.connect(note_task)
task_prerun.connect(name_task)
task_postrun.connect(name_task)

beat = Celery("seckill_site", set_as_current=False, fixups=[])
"""Beat by itself: it needs the schedule and the broker, so it loads neither models nor tasks."""
beat.config_from_object("django.conf:settings", namespace="CELERY")


@worker_init.connect
def share_memory(**_: Any) -> None:
    """Exempt what is loaded from garbage collection, which would copy it into every child."""
    gc.collect()
    gc.freeze()


@worker_ready.connect
def end_without_beat(sender: Any, **_: Any) -> None:
    """End a worker whose beat (``--beat``) was killed, so that both are started again."""

    def look() -> None:
        if sender.controller.beat.exitcode not in (None, -signal.SIGTERM):  # which stops it
            stop_looking()
            raise WorkerTerminate(1)

    def stop_looking(**_: Any) -> None:
        watch.cancel()  # a worker that ends fires its timers in a thread

    if sender.controller.beat:
        watch = sender.timer.call_repeatedly(2, look)
        worker_shutting_down.connect(stop_looking, weak=False)


@task_prerun.connect
def close_old_connections(**_: Any) -> None:
    """Close connections that are too old or have met an error; Celery keeps them between tasks.

    Django's function of this name keeps one that has met an error but responds. Its server may no
    longer be the one that takes writes.
    """
    for connection in connections.all(initialized_only=True):
        if connection.errors_occurred:
            connection.close()
        connection.close_if_unusable_or_obsolete()
