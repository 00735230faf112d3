"""Beat's pace: the shop is awake for a minute after a sign of life, then quiet (ADR 0035)."""

from redis.exceptions import RedisError

from seckill_site.process_memory import Buffer, Latest
from seckill_site.redis.ledger_connection import ledger_connection

AWAKE = "seckill:awake"
AWAKE_S = 60

QUIET_PACE = 5
"""How many times longer the intervals of ``MAY_WAIT`` are while the shop is quiet."""

MAY_WAIT = {
    *("expire", "expire_being_paid", "poll_payments", "finish_refunds", "tell_buyers"),
    *("send_notices", "send_webhooks", "store_tallies", "store_visits", "advance_draws"),
    "refund_unused",
}
"""The tasks that find nothing while nothing happens. The others mend, or are rare."""


def stay_awake(*_: object) -> None:
    """Keep the shop awake for a minute."""
    ledger_connection().set(AWAKE, 1, ex=AWAKE_S)


_noted = Latest(None, for_s=10.0)
_signs = Buffer[str](stay_awake, most=1, every_s=0.0, retry_on=RedisError, retry_s=10.0)


def note_life() -> None:
    """Note a sign of life; a thread tells Redis, at most once in ten seconds."""
    if _noted.claim():
        _signs.count(AWAKE)
