"""What a test puts into a process: another wall clock, and faults in the children of a worker.

Python imports this by its name from ``PYTHONPATH``. With ``SHIFT_CLOCK_S`` the wall clock of the
process is ahead by so many seconds, or behind; its monotonic clock is right. In ``FAULT_DIRECTORY``
may be these files:

``failpoint``
    The name of a point. The first child that reaches it takes the file away and dies; the others,
    and so the one that takes its place, live.
``database``
    Which statements of which sales fail, as JSON: sale id -> [error number, statement, until when].
    The statement is a key of ``STATEMENTS``; the time is of ``time.monotonic()``, or 0 for once.
``blind``
    Control writes do nothing, and seem to succeed.
``trusting``
    No answer of Redis makes a child look for another server.
``together``
    A pass of a task keeps no other out.
``own clock``
    Orders are written by the clock of the worker, not by the database's.
``deadly``
    ``<order id> kill`` or ``<order id> hang``: what happens to a child that is about to make a live
    order of it. Read when the child is forked.
"""

from __future__ import annotations

import datetime
import itertools
import json
import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, Self

DIRECTORY = Path(os.environ.get("FAULT_DIRECTORY", "/nowhere"))


def die_at(name: str) -> None:
    """Die at the failpoint that the test names, unless another child was faster."""
    try:
        wanted = (DIRECTORY / "failpoint").read_text()
        if wanted == name:
            (DIRECTORY / "failpoint").rename(DIRECTORY / "taken")
            os.kill(os.getpid(), signal.SIGKILL)
    except FileNotFoundError:
        return


def prepare_child() -> None:
    """Arm the child that was forked just now."""
    failpoints: Any = sys.modules.get("seckill_site.failpoints")
    attempts: Any = sys.modules.get("orders.fulfilment.attempts")
    if failpoints is None or attempts is None:
        return
    failpoints.tell(die_at)
    if (DIRECTORY / "own clock").exists():
        trust_own_clock()
    if (DIRECTORY / "database").exists():
        break_database(attempts)
    if (DIRECTORY / "trusting").exists():
        from seckill_site.broker import pace
        from seckill_site.redis.watched_connections import WatchedConnections

        WatchedConnections.distrust = lambda self: None  # type: ignore[method-assign]
        # The thread that notes life opens a connection of its own, and would meet the new server.
        pace._noted.claim = lambda: False  # type: ignore[method-assign]
    if (DIRECTORY / "together").exists():
        keep_nobody_out()
    if (DIRECTORY / "deadly").exists():
        order_id, how = (DIRECTORY / "deadly").read_text().split()
        poison(attempts, int(order_id), how)


def poison(attempts: Any, order_id: int, how: str) -> None:
    """Let a batch with this order kill or hold up its process, unless it is to be refused."""
    write_batch = attempts.write_batch

    def poisoned(**kwargs: Any) -> Any:
        deadly = order_id in {entry.order_id for entry in kwargs["entries"]}
        if deadly and kwargs.get("refuse_as") is None:
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(3_600)
        return write_batch(**kwargs)

    attempts.write_batch = poisoned


def keep_nobody_out() -> None:
    """Give each pass a lock of its own."""
    passes: Any = sys.modules["vouchers.inventory.passes"]
    lock, numbers = passes.RedisLock, itertools.count()

    def own_lock(client: Any, name: str, **options: Any) -> Any:
        return lock(client, f"{name}:{os.getpid()}:{next(numbers)}", **options)

    passes.RedisLock = own_lock


def trust_own_clock() -> None:
    """Let a batch be written by the clock of this process."""
    batch: Any = sys.modules["orders.fulfilment.batch"]
    lock = batch.lock_seckill_voucher

    def locked(**kwargs: Any) -> Any:
        sale = lock(**kwargs)
        sale.locked_at = datetime.datetime.now(datetime.UTC)
        return sale

    batch.lock_seckill_voucher = locked


STATEMENTS = {
    "first read": "SELECT",
    "insert orders": "INSERT INTO `orders_voucherorder`",
    "insert events": "INSERT INTO `orders_orderevent`",
    "update sale": "UPDATE `vouchers_seckillvoucher`",
    "commit": "COMMIT",
}


def break_database(attempts: Any) -> None:
    """Let statements of a batch, and of a control write, fail as the file says."""
    from django.db.backends.mysql.base import CursorWrapper, DatabaseWrapper

    writing = threading.local()
    execute, commit = CursorWrapper.execute, DatabaseWrapper._commit  # type: ignore[attr-defined]

    def with_sale(write: Any) -> Any:
        def wrapped(**kwargs: Any) -> Any:
            writing.sale_id = str(kwargs["sale_id"])
            try:
                return write(**kwargs)
            finally:
                writing.sale_id = ""

        return wrapped

    def executed(self: Any, query: str, args: Any = None) -> Any:
        fail_if_wanted(getattr(writing, "sale_id", ""), query)
        return execute(self, query, args)

    def committed(self: Any) -> Any:
        with self.wrap_database_errors:
            fail_if_wanted(getattr(writing, "sale_id", ""), "COMMIT")
        return commit(self)

    attempts.write_batch = with_sale(attempts.write_batch)
    attempts.write_control = with_sale(attempts.write_control)
    if (DIRECTORY / "blind").exists():
        attempts.write_control = lambda **kwargs: None
    CursorWrapper.execute = executed  # type: ignore[method-assign]
    DatabaseWrapper._commit = committed  # type: ignore[attr-defined]


def fail_if_wanted(sale_id: str, statement: str) -> None:
    """Raise what the file says about such a statement of this sale."""
    from MySQLdb import OperationalError, ProgrammingError

    wanted = json.loads((DIRECTORY / "database").read_text()).get(sale_id)
    if not wanted or not statement.startswith(STATEMENTS[wanted[1]]):
        return
    number, _, until = wanted
    if until == 0:
        try:
            (DIRECTORY / f"failed-{sale_id}").mkdir()
        except FileExistsError:
            return
    elif time.monotonic() >= until:
        return
    raise (ProgrammingError if number == 1146 else OperationalError)(number, "a fault of a test")


class LikeBase(type):
    """Let true dates count as instances: those made in C are."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, cls.__mro__[1])


class ShiftedDate(datetime.date, metaclass=LikeBase):
    @classmethod
    def today(cls) -> Self:
        return cls.fromtimestamp(time.time())


class ShiftedDatetime(datetime.datetime, metaclass=LikeBase):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Self:
        return cls.fromtimestamp(time.time(), tz)

    @classmethod
    def utcnow(cls) -> Self:
        return cls.now(datetime.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Self:
        return cls.now()


def shift_clock(shift_s: float) -> None:
    """Shift the wall clock for what imports ``time`` or ``datetime`` later."""
    now, now_ns, read, strftime = time.time, time.time_ns, time.clock_gettime, time.strftime

    def of_now(convert: Any) -> Any:
        return lambda moment=None: convert(time.time() if moment is None else moment)

    shifted: dict[str, Any] = {
        "time": lambda: now() + shift_s,
        "time_ns": lambda: now_ns() + round(shift_s * 10**9),
        "clock_gettime": lambda clock: read(clock) + shift_s * (clock == time.CLOCK_REALTIME),
        "gmtime": of_now(time.gmtime),
        "localtime": of_now(time.localtime),
        "strftime": lambda form, moment=None: strftime(form, moment or time.localtime()),
    }
    for name, function in shifted.items():
        setattr(time, name, partial(function))  # as an attribute of a class it gets no self
    datetime.date, datetime.datetime = ShiftedDate, ShiftedDatetime  # type: ignore[misc]


if shift_s := float(os.environ.get("SHIFT_CLOCK_S", "0")):
    shift_clock(shift_s)
os.register_at_fork(after_in_child=prepare_child)
