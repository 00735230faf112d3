"""V5's later form: the script also puts the order into a Redis Stream, which a group reads.

A decision is queued in the same step, so it outlives the process. What a reader has read stays in
the pending list under its name until it is acknowledged, after the commit. A reader looks into its
own list first; nobody looks into the list of a dead reader. And the stream is only as safe as
Redis: if Redis comes back empty, all of it is lost.

Points: "decided"; the writer: "read", V2's, "committed", "acknowledged".
"""

import logging
import time
from typing import Any, ClassVar

from django.db import Error as DatabaseFault
from redis.exceptions import RedisError

from lab.keys import LabKeys
from lab.models import LabSale
from lab.points import point
from lab.steps import v2
from lab.steps.step import Answer
from lab.steps.v4 import LUA, refusal_of, set_stock
from locks.lua_script import LuaScript
from seckill_site.redis.ledger_connection import ledger_connection

logger = logging.getLogger(__name__)

GROUP = "writers"
WAIT_MS = 100
"""Milliseconds that the writer waits for an order; well below the connection's timeout."""

_ONE = {"count": 1, "block": WAIT_MS}

_DECIDE_AND_QUEUE = LuaScript(LUA / "decide_and_queue.lua")


def buy(*, sale_id: int, user_id: int) -> Answer:
    """Let Redis decide and queue in one step."""
    keys = LabKeys(sale_id)
    names = [keys.stock, keys.buyers, keys.stream]
    code = _DECIDE_AND_QUEUE.run(ledger_connection(), keys=names, args=[user_id, sale_id])
    point("decided")
    return refusal_of(code) or Answer.QUEUED


class Reader:
    """One reader of the group, with the name of its process.

    ``retried`` are the errors after which it looks into its pending list again.
    """

    step = "v5-stream"
    retried: ClassVar[tuple[type[Exception], ...]] = (RedisError, DatabaseFault)

    @staticmethod
    def prepare(sale_id: int, units: int) -> None:
        """Put the stock of a new sale into Redis, and make its stream and group."""
        set_stock(sale_id, units)
        ledger_connection().xgroup_create(LabKeys(sale_id).stream, GROUP, id="0", mkstream=True)

    def __init__(self, process_name: str) -> None:
        self.name = process_name
        self._streams: list[str] = []
        self._looks_back = True

    def work_once(self) -> bool:
        """Write one order of any sale: from this reader's pending list first, else a new one.

        After an error, the reader looks into its list again for the order that it failed to write.
        """
        try:
            by_stream = self._next()
            for stream, messages in by_stream:
                for number, order in messages:
                    self._write(stream, number, order)
        except self.retried as error:
            logger.warning("%s will look into its pending list: %r", self.name, error)
            self._streams, self._looks_back = [], True
            time.sleep(WAIT_MS / 1_000)
            return isinstance(error, TimeoutError)  # the order waits for a lock, which expires
        return bool(by_stream)

    def _next(self) -> list[Any]:
        if self._looks_back:
            pending = self._read("0")
            if any(messages for _, messages in pending):
                return pending
            self._looks_back = False
        by_stream = self._read(">")
        if not by_stream:
            self._find_streams()
        return by_stream

    def _read(self, after: str) -> list[Any]:
        if not self._streams:
            self._find_streams()
        if not self._streams:
            time.sleep(WAIT_MS / 1_000)
            return []
        redis, streams = ledger_connection(), dict.fromkeys(self._streams, after)
        read = redis.xreadgroup(GROUP, self.name, streams, **_ONE)  # breaks: lost, undersold, stuck
        return read or []

    def _find_streams(self) -> None:
        """Find the streams of all sales; reading all of them fails if one is lost."""
        sale_ids = (
            LabSale.objects.filter(step=self.step).order_by("pk").values_list("pk", flat=True)
        )
        streams = [LabKeys(sale_id).stream for sale_id in sale_ids]
        self._streams = [stream for stream in streams if ledger_connection().exists(stream)]

    def _write(self, stream: str, number: str, order: dict[str, str]) -> None:
        point("read")
        self._buy(int(order["sale_id"]), int(order["user_id"]))
        ledger_connection().xack(stream, GROUP, number)
        point("acknowledged")

    def _buy(self, sale_id: int, user_id: int) -> None:
        v2.buy(sale_id=sale_id, user_id=user_id)
        point("committed")
