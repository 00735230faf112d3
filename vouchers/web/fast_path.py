"""What the gate may answer of sales: ``live/``, from a snapshot that this process took just now."""

from __future__ import annotations

import json
import re
import threading
from dataclasses import dataclass, replace
from time import monotonic

from seckill_site.web.fast_path import Environ, GateAnswer
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded
from vouchers.inventory.sale_state import Snapshot, snapshot
from vouchers.web.views import live_json

FRESH_S = 0.1
"""However many ask for a sale, its ledger is asked by this process once in so long a time."""

OLDEST_S = 1.0
"""The oldest snapshot that is shown while a newer one is on its way: ``live/`` may be so old."""

MOST_SALES = 1_000
_PATH = re.compile(r"/vouchers/([1-9][0-9]{0,17})/live/")
_HEADERS = (("Cache-Control", "public, max-age=1"), ("Vary", "Accept"))


@dataclass(frozen=True)
class _Taken:
    """A snapshot and when it was asked for and heard, by the clock that only goes forward."""

    snapshot: Snapshot
    asked_at: float
    heard_at: float


_taken: dict[int, _Taken] = {}
_taking = threading.Lock()


def live(environ: Environ) -> GateAnswer | None:
    """Answer ``live/`` of a loaded sale; what is not loaded, unknown or away is Django's affair."""
    match = _PATH.fullmatch(environ.get("PATH_INFO", ""))
    if match is None or environ["REQUEST_METHOD"] != "GET":
        return None
    try:
        taken = _fresh(int(match[1]))
    except (LedgerUnavailable, NotLoaded):
        return None
    # The time goes on by itself, and with it the state at the begin and at the end: a little late,
    # because it was read before it was heard, and never early.
    since_ms = round((monotonic() - taken.heard_at) * 1000)
    now = replace(taken.snapshot, now_ms=taken.snapshot.now_ms + since_ms)
    return GateAnswer("200 OK", json.dumps(live_json(now)).encode(), _HEADERS)


def _fresh(sale_id: int) -> _Taken:
    """Return a snapshot at most ``FRESH_S`` old; while one asks, the others take the last."""
    found = _taken.get(sale_id)
    age_s = monotonic() - found.asked_at if found else OLDEST_S
    if found and age_s < FRESH_S:
        return found
    if not _taking.acquire(timeout=0 if age_s < OLDEST_S else 1):
        if found is None:
            raise LedgerUnavailable("another thread is asking still")
        return found
    try:
        return _take(sale_id)
    finally:
        _taking.release()


def _take(sale_id: int) -> _Taken:
    asked_at = monotonic()
    taken = _Taken(snapshot(sale_id=sale_id), asked_at, heard_at=monotonic())
    if len(_taken) >= MOST_SALES:
        _taken.clear()
    _taken[sale_id] = taken
    return taken
