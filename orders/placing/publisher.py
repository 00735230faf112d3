"""The publisher of a web process: a thread that sends fulfil tasks, so that no request waits."""

import os
import threading
from time import monotonic

from orders.placing.publishing import publish_fulfilment


class Publisher:
    """A thread that works through a set of sales; a sale that is asked for twice is sent once.

    What a killed process has not sent, the sweep sends.
    """

    def __init__(self) -> None:
        """Start without a thread; the first request starts it."""
        self._change = threading.Condition()
        self._sales: dict[int, None] = {}
        self._busy = False
        self._thread: threading.Thread | None = None

    def request(self, *, sale_id: int) -> None:
        """Have the fulfil task of a sale sent soon; never waits, never raises."""
        with self._change:
            self._sales[sale_id] = None
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="publisher", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError:  # no thread is available: the next request tries again
                    self._thread = None
            self._change.notify_all()

    def drain(self, *, longest_s: float) -> bool:
        """Wait until everything is sent; return whether it is."""
        until = monotonic() + longest_s
        with self._change:
            while (self._sales or self._busy) and self._thread and monotonic() < until:
                self._change.wait(until - monotonic())
            return not (self._sales or self._busy)

    def _work(self) -> None:
        while True:
            with self._change:
                self._busy = False
                self._change.notify_all()
                while not self._sales:
                    self._change.wait()
                sale_id = next(iter(self._sales))
                del self._sales[sale_id]
                self._busy = True
            publish_fulfilment(sale_id=sale_id)


publisher = Publisher()
os.register_at_fork(after_in_child=publisher.__init__)  # type: ignore[misc]
