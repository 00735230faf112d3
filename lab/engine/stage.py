"""The stage of a race: a sale of one step, and the processes that race for it."""

import datetime as dt
import signal
from types import TracebackType
from typing import Self

from django.db import connection

from lab.engine.fork_server import ForkServer, Main, Process
from lab.keys import LabKeys, delete_keys
from lab.models import LONG_AGO
from lab.steps.step import Step


class Stage:
    """A sale and its processes; both are removed after the block, however it ends."""

    def __init__(self, step: Step, server: ForkServer) -> None:
        self.step = step
        self.offered = self.sale_id = 0
        self.user_ids: list[int] = []
        self._opened: list[int] = []
        self._server = server
        self._forked: list[Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            for process in self._forked:
                if process.is_alive:
                    process.signal(signal.SIGKILL)
        finally:
            if kind:  # the connection may be amid a reply, which would spoil the next query
                connection.close()
            self._clear()

    def open(self, *, units: int, buyers: int, begins_at: dt.datetime = LONG_AGO) -> None:
        """Put units on sale for a number of buyers."""
        self.offered = units
        self.user_ids = self.step.buyers(buyers)
        self.sale_id = self.open_sale(units, begins_at)

    def open_sale(self, units: int, begins_at: dt.datetime = LONG_AGO) -> int:
        """Put units on sale, and return the id of their sale."""
        self._opened.append(self.step.open(units, begins_at))
        return self._opened[-1]

    def fork(self, main: Main, number: int) -> Process:
        """Start a process of the race; its number is for the reader."""
        self._forked.append(self._server.fork(main, number))
        return self._forked[-1]

    def delete_keys(self) -> None:
        """Delete every key of the sale in Redis, and no other."""
        if self.step.is_ours:
            delete_keys(f"*seckill:{{{self.sale_id}}}*")
        else:
            delete_keys(LabKeys(self.sale_id).pattern)

    def _clear(self) -> None:
        for sale_id in self._opened:
            if self.step.is_ours:
                delete_keys(f"lock:seckill:{{{sale_id}}}*")  # the holders are all dead
            self.step.clear(sale_id)
