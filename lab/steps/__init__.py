"""The steps by name, in the order of the story."""

from functools import partial

from lab import locks
from lab.steps import stream_readers as readers
from lab.steps import taught, v1, v2, v3, v4, v5, v5_stream, v6
from lab.steps.ours import OUR_SHOP
from lab.steps.step import Step


def _read_by(reader: type[v5_stream.Reader]) -> Step:
    return Step(reader.step, v5_stream.buy, reader.prepare, reader)


_IN_ORDER = (
    Step("v1", partial(v1.buy, take=v1.take_unguarded)),
    Step("v1-as-read", partial(v1.buy, take=v1.take_if_as_read)),
    Step("v1-version", partial(v1.buy, take=v1.take_if_version_as_read)),
    Step("v1-any-left", partial(v1.buy, take=v1.take_if_any_left)),
    Step("v1-late-filter", partial(v1.buy, take=v1.take_and_filter_late)),
    Step("v1-retry", partial(v1.buy, take=v1.take_with_retries)),
    Step("v1-retry-stale", v1.buy_from_snapshot),
    Step("v1-for-update", partial(v1.buy, take=v1.take_unguarded, read=v1.lock_row)),
    Step("v1-scan", partial(v1.buy, take=v1.take_unguarded, read=v1.lock_by_scan)),
    Step("v2", v2.buy),
    Step("v3", partial(v3.buy, lock_of=v3.lock_of_buyer)),
    Step("v3-one-lock", partial(v3.buy, lock_of=v3.lock_of_all)),
    Step("v3-equal-key", partial(v3.buy, lock_of=v3.lock_of_equal_key)),
    Step("v3-inside", v3.buy_locked_inside),
    Step("v3-bypassed", v3.buy_bypassing),
    Step("v3-uncounted", v3.buy_uncounted),
    Step("v4", partial(v4.buy, script=v4.DECIDE), v4.set_stock),
    Step("v4-nil", partial(v4.buy, script=v4.COMPARE_NIL)),
    Step("v4-window", partial(v4.buy, script=v4.DECIDE_IN_ORDER), v4.set_stock_and_window),
    Step("v5", partial(v5.buy, enqueue=v5.grow), v4.set_stock, v5.QueueWriter),
    Step("v5-add", partial(v5.buy, enqueue=v5.add), v4.set_stock, v5.BoundedWriter),
    Step("v5-offer", partial(v5.buy, enqueue=v5.offer), v4.set_stock, v5.BoundedWriter),
    Step("v5-put", partial(v5.buy, enqueue=v5.put), v4.set_stock, v5.BoundedWriter),
    _read_by(v5_stream.Reader),
    _read_by(readers.LoopingReader),
    _read_by(readers.AsideReader),
    _read_by(readers.OneNameReader),
    _read_by(readers.NewOnlyReader),
    _read_by(readers.ReturningReader),
    Step("v6-setnx", partial(v6.buy, lock=locks.SetnxLock)),
    Step("v6-expiring", partial(v6.buy, lock=locks.ExpiringLock)),
    Step("v6-thread-id", partial(v6.buy, lock=locks.ThreadIdLock)),
    Step("v6-uuid", partial(v6.buy, lock=locks.UuidLock)),
    Step("v6-owned", partial(v6.buy, lock=locks.OwnedLock)),
    Step("v6-watchdog", partial(v6.buy, lock=locks.WatchdogLock)),
    Step("v6-per-buyer", partial(v6.buy, lock=locks.OwnedLock, name_of=v6.of_buyer)),
    Step("v6-mistyped", partial(v6.buy, lock=locks.MistypedLock)),
    Step("v6-row", partial(v6.buy, lock=locks.RowLock)),
    Step("v6-get-lock", partial(v6.buy, lock=locks.ConnectionLock)),
    _read_by(readers.DroppingReader),
    _read_by(readers.KeepingReader),
    Step("v6-queue", partial(v5.buy, enqueue=v5.grow), v4.set_stock, taught.LockingWriter),
    _read_by(taught.LockingReader),
    _read_by(taught.RenewingReader),
    OUR_SHOP,
)

STEPS: dict[str, Step] = {step.name: step for step in _IN_ORDER}
