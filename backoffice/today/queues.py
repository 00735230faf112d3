"""Queues of their own whose work waits: a worker or beat is missing, or cannot keep up.

What waits is in the database, so it says so whatever the broker is, and whether or not it responds.
A shop that takes no payments and has no webhooks has nothing that waits.
"""

import datetime as dt
from collections.abc import Iterator
from typing import Any

from django.core.checks import CheckMessage
from django.db import DatabaseError

from api.webhooks.delivery import webhooks_waiting_since
from orders.payments.service import payments_waiting_since
from seckill_site.checks.findings import finding
from seckill_site.clocks.database import database_now

LATE_AFTER = dt.timedelta(minutes=2)
"""Beat asks for this work every few seconds, and a pass takes at most 15 s."""

CHECK_IDS = {"payments": "W018", "webhooks": "W019"}


def late_queues(*, now: dt.datetime) -> dict[str, dt.timedelta]:
    """Return by how much each queue is late that is."""
    since = {
        "payments": payments_waiting_since(now=now),
        "webhooks": webhooks_waiting_since(now=now),
    }
    return {name: now - it for name, it in since.items() if it and now - it > LATE_AFTER}


def check_queues(**_: Any) -> Iterator[CheckMessage]:
    """Find queues that no worker takes from; ``backoffice/apps.py`` registers this."""
    try:
        late = late_queues(now=database_now())
    except DatabaseError:  # another check says so
        return
    for name, late_by in late.items():
        yield finding(CHECK_IDS[name], minutes=late_by // dt.timedelta(minutes=1))
