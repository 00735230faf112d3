"""The steps by name, in the order of the story."""

from functools import partial

from django.utils.translation import gettext_lazy as _

from lab.locks import (
    ConnectionLock,
    ExpiringLock,
    MistypedLock,
    OwnedLock,
    RowLock,
    SetnxLock,
    WatchdogLock,
)
from lab.steps import stream_readers as readers
from lab.steps import v1, v2, v3, v4, v5, v5_stream, v6
from lab.steps.ours import OUR_SHOP
from lab.steps.step import Step

_IN_ORDER = (
    *(
        Step(name, title, partial(v1.buy, take=take))
        for name, title, take in (
            ("v1", _("straight to the database, no guard"), v1.take_unguarded),
            ("v1-as-read", _("the stock must be as it was read"), v1.take_if_as_read),
            ("v1-version", _("the version must be as it was read"), v1.take_if_version_as_read),
            ("v1-any-left", _("the stock must be above zero"), v1.take_if_any_left),
            ("v1-retry", _("as it was read, in three tries"), v1.take_with_retries),
        )
    ),
    Step("v1-retry-stale", _("three tries that read a snapshot"), v1.buy_from_snapshot),
    *(
        Step(name, title, partial(v1.buy, take=v1.take_unguarded, read=read))
        for name, title, read in (
            ("v1-for-update", _("the sale's row is locked"), v1.lock_row),
            ("v1-scan", _("the sale is locked by a search"), v1.lock_by_scan),
        )
    ),
    Step("v2", _("one order per buyer, counted first"), v2.buy),
    *(
        Step(name, title, partial(v3.buy, lock_of=lock_of))
        for name, title, lock_of in (
            ("v3", _("a lock in the process"), v3.lock_of_buyer),
            ("v3-one-lock", _("one process lock for all buyers"), v3.lock_of_all),
            ("v3-equal-key", _("a lock on an equal, not the same object"), v3.lock_of_equal_key),
        )
    ),
    Step("v3-inside", _("a process lock, released too early"), v3.buy_locked_inside),
    Step("v3-bypassed", _("a process lock, past the transaction"), v3.buy_bypassing),
    Step("v4", _("a script in Redis decides first"), v4.buy, v4.set_stock),
    Step("v4-nil", _("a script compares a missing stock"), partial(v4.buy, script=v4.COMPARE_NIL)),
    *(
        Step(name, title, partial(v5.buy, enqueue=enqueue), v4.set_stock, writer)
        for name, title, enqueue, writer in (
            ("v5", _("a queue in memory writes later"), v5.grow, v5.QueueWriter),
            ("v5-add", _("a bounded queue: add raises"), v5.add, v5.BoundedWriter),
            ("v5-offer", _("a bounded queue: offer loses"), v5.offer, v5.BoundedWriter),
            ("v5-put", _("a bounded queue: put waits"), v5.put, v5.BoundedWriter),
        )
    ),
    *(
        Step(it.step, title, v5_stream.buy, it.prepare, it)
        for it, title in (
            (v5_stream.Reader, _("a stream in Redis keeps the queue")),
            (readers.LoopingReader, _("a stream with entries nobody can write")),
            (readers.AsideReader, _("the same, but they are set aside")),
            (readers.OneNameReader, _("two readers of the stream, one name")),
        )
    ),
    Step("v6-setnx", _("a lock in Redis that never expires"), partial(v6.buy, lock=SetnxLock)),
    Step("v6-expiring", _("a lock in Redis that expires"), partial(v6.buy, lock=ExpiringLock)),
    Step("v6-owned", _("a lock in Redis that knows its owner"), partial(v6.buy, lock=OwnedLock)),
    Step("v6-watchdog", _("a lock in Redis that is renewed"), partial(v6.buy, lock=WatchdogLock)),
    Step("v6-mistyped", _("a lock whose release has a typo"), partial(v6.buy, lock=MistypedLock)),
    Step("v6-row", _("a lock in a row of the database"), partial(v6.buy, lock=RowLock)),
    Step("v6-get-lock", _("GET_LOCK of the database"), partial(v6.buy, lock=ConnectionLock)),
    *(
        Step(it.step, title, v5_stream.buy, it.prepare, it)
        for it, title in (
            (readers.DroppingReader, _("stream and lock: the order is dropped")),
            (readers.KeepingReader, _("stream and lock: the order waits")),
        )
    ),
    OUR_SHOP,
)

STEPS: dict[str, Step] = {step.name: step for step in _IN_ORDER}
