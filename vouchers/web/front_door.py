"""``live/`` at the front door, which reuses a recent snapshot."""

import asyncio
import re
from dataclasses import dataclass
from time import monotonic

from django.db import DatabaseError

from seckill_site.front_door.requests import Environ, request_language
from seckill_site.front_door.threads import Busy
from seckill_site.process_memory import Flights, Memory
from seckill_site.web.responses import Answer, names_html, unavailable_answer
from vouchers.catalogue.public_sales import KnownSale, last_public
from vouchers.inventory.keys import LedgerUnavailable, NotLoaded, ask
from vouchers.inventory.sale_state import LedgerRemoved, Snapshot, snapshot_call
from vouchers.models import SeckillVoucher
from vouchers.web.live_answer import NOT_LOADED_TEXT, live_answer
from vouchers.web.loading import load_once
from vouchers.web.public import known_sale

FRESH_S = 0.1
"""A process asks the ledger for a sale at most once in this time, however many requests come."""

MAX_AGE_S = 1.0
"""The oldest snapshot that is shown while a newer one is fetched."""

_PATH = re.compile(r"/vouchers/([1-9][0-9]{0,17})/live/")


@dataclass(frozen=True)
class _Sample:
    """A snapshot, and when it was requested and received on the monotonic clock."""

    snapshot: Snapshot | None
    requested_at: float
    received_at: float


_samples = Memory[int, _Sample](most=1_000)
_asking = Flights[int, _Sample]()


async def live(environ: Environ) -> Answer | None:
    """Answer ``live/`` of a public sale; None if Django has to answer."""
    match = _PATH.fullmatch(environ["PATH_INFO"])
    if match is None or environ["REQUEST_METHOD"] != "GET":
        return None
    sale_id = int(match[1])
    try:
        sale = await _sale(sale_id)
        if not sale.is_public:
            return None
        return live_answer(await recent_snapshot(sale_id), sale)
    except (SeckillVoucher.DoesNotExist, DatabaseError):
        return None
    except (LedgerUnavailable, NotLoaded):
        if names_html(environ):
            return None
        return unavailable_answer(NOT_LOADED_TEXT, language=request_language(environ))


async def _sale(sale_id: int) -> KnownSale:
    try:
        return await known_sale(sale_id)
    except (DatabaseError, Busy):
        if sale := last_public(sale_id=sale_id):
            return sale
        raise


async def recent_snapshot(sale_id: int) -> Snapshot:
    """Return a snapshot of a sale that is at most ``MAX_AGE_S`` old, at the present time.

    :raises SeckillVoucher.DoesNotExist: there is no such sale.
    :raises LedgerUnavailable: Redis did not respond.
    :raises NotLoaded: the sale cannot be loaded.
    """
    try:
        sample, snapshot = await _loaded_sample(sale_id)
    except LedgerRemoved as removed:
        return removed.snapshot
    # Advance the time, so that the state changes at start and end: a little late, because the
    # snapshot is older than its arrival, but never early.
    age_ms = round((monotonic() - sample.received_at) * 1000)
    return snapshot._replace(now_ms=snapshot.now_ms + age_ms)


async def _loaded_sample(sale_id: int) -> tuple[_Sample, Snapshot]:
    """Return a sample and its snapshot; load the sale first if it is not loaded."""
    sample = await _fresh_sample(sale_id)
    if sample.snapshot is None:
        await load_once(sale_id=sale_id)
        _samples.drop(sale_id)
        sample = await _fresh_sample(sale_id)
    if sample.snapshot is None:
        raise NotLoaded(f"sale {sale_id} is not loaded")
    return sample, sample.snapshot


async def _fresh_sample(sale_id: int) -> _Sample:
    """Return a sample at most ``FRESH_S`` old; while one request asks, the others use the last."""
    last = _samples.last(sale_id)
    age_s = monotonic() - last.requested_at if last else MAX_AGE_S
    if last and age_s < FRESH_S:
        return last
    task = _asking.join(sale_id, lambda: _sample(sale_id))
    if last and age_s < MAX_AGE_S:
        return last
    return await asyncio.shield(task)


async def _sample(sale_id: int) -> _Sample:
    requested_at = monotonic()
    sample = _Sample(
        await ask(snapshot_call(sale_id=sale_id)), requested_at, received_at=monotonic()
    )
    _samples.keep(sale_id, sample)
    return sample
