"""The steps by name, in the order of the story."""

from functools import partial

from django.utils.translation import gettext_lazy as _

from lab.locks import (
    ConnectionLock,
    ExpiringLock,
    OwnedLock,
    RowLock,
    SetnxLock,
    WatchdogLock,
)
from lab.steps import v1, v2, v3, v4, v5, v5_stream, v6
from lab.steps.ours import OUR_SHOP
from lab.steps.step import Step

_IN_ORDER = (
    Step("v1", _("straight to the database, no guard"), partial(v1.buy, take=v1.take_unguarded)),
    Step(
        "v1-as-read",
        _("the stock must be as it was read"),
        partial(v1.buy, take=v1.take_if_as_read),
    ),
    Step(
        "v1-any-left",
        _("the stock must be above zero"),
        partial(v1.buy, take=v1.take_if_any_left),
    ),
    Step(
        "v1-for-update",
        _("the sale's row is locked"),
        partial(v1.buy, take=v1.take_unguarded, lock_row=True),
    ),
    Step("v2", _("one order per buyer, counted first"), v2.buy),
    Step("v3", _("a lock in the process"), v3.buy),
    Step("v3-inside", _("a process lock, released too early"), v3.buy_locked_inside),
    Step("v4", _("a script in Redis decides first"), v4.buy, v4.set_stock),
    Step("v5", _("a queue in memory writes later"), v5.buy, v4.set_stock, v5.QueueWriter),
    Step(
        v5_stream.STEP,
        _("a stream in Redis keeps the queue"),
        v5_stream.buy,
        v5_stream.set_stock_and_stream,
        v5_stream.Reader,
    ),
    Step("v6-setnx", _("a lock in Redis that never expires"), partial(v6.buy, lock=SetnxLock)),
    Step("v6-expiring", _("a lock in Redis that expires"), partial(v6.buy, lock=ExpiringLock)),
    Step("v6-owned", _("a lock in Redis that knows its owner"), partial(v6.buy, lock=OwnedLock)),
    Step("v6-watchdog", _("a lock in Redis that is renewed"), partial(v6.buy, lock=WatchdogLock)),
    Step("v6-row", _("a lock in a row of the database"), partial(v6.buy, lock=RowLock)),
    Step("v6-get-lock", _("GET_LOCK of the database"), partial(v6.buy, lock=ConnectionLock)),
    OUR_SHOP,
)

STEPS: dict[str, Step] = {step.name: step for step in _IN_ORDER}
