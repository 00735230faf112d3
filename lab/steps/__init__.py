"""The steps by name, in the order of the story."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from queue import Queue
from typing import TYPE_CHECKING

from django.utils.translation import gettext_lazy as _

from lab.locks import ExpiringLock, MistypedLock, OwnedLock, SetnxLock, WatchdogLock
from lab.steps import stream_readers as readers
from lab.steps import v1, v2, v3, v4, v5, v5_stream, v6
from lab.steps.ours import OUR_SHOP
from lab.steps.step import Step
from lab.steps.v5_stream import Reader

if TYPE_CHECKING:
    from django_stubs_ext import StrOrPromise


def _queued(
    name: str,
    title: StrOrPromise,
    enqueue: Callable[[v5.Order], None],
    waiting: Queue[v5.Order] = v5.bounded,
) -> Step:
    writer = partial(v5.QueueWriter, waiting=waiting)
    return Step(name, title, partial(v5.buy, enqueue=enqueue), v4.set_stock, writer)


def _streamed(title: StrOrPromise, reader: type[Reader]) -> Step:
    return Step(reader.step, title, v5_stream.buy, reader.prepare, reader)


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
    Step(
        "v4-nil",
        _("the script compares a missing stock"),
        partial(v4.buy, script=v4.COMPARE_NIL),
    ),
    _queued("v5", _("a queue in memory writes later"), v5.grow, v5.boundless),
    _queued("v5-add", _("a bounded queue: add raises"), v5.add),
    _queued("v5-offer", _("a bounded queue: offer loses"), v5.offer),
    _queued("v5-put", _("a bounded queue: put waits"), v5.put),
    _streamed(_("a stream in Redis keeps the queue"), Reader),
    _streamed(_("a stream with entries nobody can write"), readers.LoopingReader),
    _streamed(_("the same, but they are set aside"), readers.AsideReader),
    _streamed(_("two readers of the stream, one name"), readers.OneNameReader),
    Step("v6-setnx", _("a lock in Redis that never expires"), partial(v6.buy, lock=SetnxLock)),
    Step("v6-expiring", _("a lock in Redis that expires"), partial(v6.buy, lock=ExpiringLock)),
    Step("v6-owned", _("a lock in Redis that knows its owner"), partial(v6.buy, lock=OwnedLock)),
    Step("v6-watchdog", _("a lock in Redis that is renewed"), partial(v6.buy, lock=WatchdogLock)),
    Step(
        "v6-mistyped",
        _("a lock in Redis whose release has a typo"),
        partial(v6.buy, lock=MistypedLock),
    ),
    _streamed(_("stream and lock: the order is dropped"), readers.DroppingReader),
    _streamed(_("stream and lock: the order waits"), readers.KeepingReader),
    OUR_SHOP,
)

STEPS: dict[str, Step] = {step.name: step for step in _IN_ORDER}
