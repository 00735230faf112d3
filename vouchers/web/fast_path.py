"""``live/``: its JSON, and its fast path, which reuses a recent snapshot."""

import json
import re
import threading
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from seckill_site.web.fast_path import Environ
from seckill_site.web.responses import Answer
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded
from vouchers.inventory.sale_state import Snapshot, snapshot

FRESH_S = 0.1
"""A process asks the ledger for a sale at most once in this time, however many requests come."""

MAX_AGE_S = 1.0
"""The oldest snapshot that is shown while another thread fetches a newer one."""

MAX_SALES = 1_000
_PATH = re.compile(r"/vouchers/([1-9][0-9]{0,17})/live/")


def live_answer(snapshot: Snapshot) -> Answer:
    """Return the answer of ``live/``, cacheable for a second."""
    headers = (("Cache-Control", "public, max-age=1"), ("Vary", "Accept"))
    return Answer(200, json.dumps(live_json(snapshot)), headers)


def live_json(snapshot: Snapshot) -> dict[str, Any]:
    """Return the public figures of a sale."""
    return {
        "state": snapshot.state.value,
        "server_time_ms": snapshot.now_ms,
        "begins_at_ms": snapshot.terms.begins_at_ms,
        "ends_at_ms": snapshot.terms.ends_at_ms,
        "total": snapshot.terms.total,
        "remaining": snapshot.remaining,
    }


@dataclass(frozen=True)
class _Sample:
    """A snapshot, and when it was requested and received on the monotonic clock."""

    snapshot: Snapshot
    requested_at: float
    received_at: float


_samples: dict[int, _Sample] = {}
_sampling = threading.Lock()


def live(environ: Environ) -> Answer | None:
    """Answer ``live/`` of a loaded sale; None if Django has to answer."""
    match = _PATH.fullmatch(environ.get("PATH_INFO", ""))
    if match is None or environ["REQUEST_METHOD"] != "GET":
        return None
    try:
        sample = _fresh_sample(int(match[1]))
    except (LedgerUnavailable, NotLoaded):
        return None
    # Advance the time, so that the state changes at start and end: a little late, because the
    # snapshot is older than its arrival, but never early.
    age_ms = round((monotonic() - sample.received_at) * 1000)
    return live_answer(replace(sample.snapshot, now_ms=sample.snapshot.now_ms + age_ms))


def _fresh_sample(sale_id: int) -> _Sample:
    """Return a sample at most ``FRESH_S`` old; while one thread asks, the others use the last."""
    last = _samples.get(sale_id)
    age_s = monotonic() - last.requested_at if last else MAX_AGE_S
    if last and age_s < FRESH_S:
        return last
    if not _sampling.acquire(timeout=0 if age_s < MAX_AGE_S else 1):
        if last is None:
            raise LedgerUnavailable("another thread is still asking")
        return last
    try:
        requested_at = monotonic()
        sample = _Sample(snapshot(sale_id=sale_id), requested_at, received_at=monotonic())
        if len(_samples) >= MAX_SALES:
            _samples.clear()
        _samples[sale_id] = sample
        return sample
    finally:
        _sampling.release()
