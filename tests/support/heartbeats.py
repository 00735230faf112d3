"""What ought to run behind the shop, noted as it would note itself."""

from __future__ import annotations

from collections.abc import Mapping

from seckill_site.broker.heartbeats import HEARTBEATS, SINCE, read_heartbeats
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.sales import redis_now_ms

ORDERS = "queue:celery"
DAY_S = 86_400.0


def note(ages_s: Mapping[str, float]) -> None:
    """Note these names, each so many seconds ago."""
    now_ms = redis_now_ms()
    times = {name: now_ms - round(age_s * 1000) for name, age_s in ages_s.items()}
    ledger_connection().hset(HEARTBEATS, mapping=times)


def note_all(but: Mapping[str, float] | None = None, *, without: str = "") -> None:
    """Note that all has run for a day and does so now, but for these ages, and one left out."""
    ledger_connection().delete(HEARTBEATS)
    names = [it.name for it in read_heartbeats({}) if it.name != without]
    note({**dict.fromkeys(names, 0.0), SINCE: DAY_S, **(but or {})})
