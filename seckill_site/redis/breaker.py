"""A circuit breaker for asking a server: while it is sick, nobody waits for it.

After one failure the breaker is open: one attempt at a time tries the server, the others fail at
once. An attempt that succeeds closes it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

from seckill_site.metrics import counter
from seckill_site.process_memory import ProcessMemory

PAUSE_S = 0.2
"""The pause after an attempt that failed."""

LONGEST_ATTEMPT_S = 1.5
"""After this time without a result, the next attempt may begin."""


class Breaker(ProcessMemory):
    """What one process knows about one server.

    There is no lock. If a process forked while a thread held one, nobody could release it in the
    child. Two attempts at once only cost one request too many.
    """

    def __init__(
        self,
        error: type[Exception],
        *,
        server: str = "other",
        pause_s: float = PAUSE_S,
        longest_attempt_s: float = LONGEST_ATTEMPT_S,
    ) -> None:
        """Closed; an attempt that is not made raises ``error``. Metrics name the ``server``."""
        self._error, self._server = error, server
        self.pause_s = pause_s
        self._longest_attempt_s = longest_attempt_s
        super().__init__()

    def forget(self) -> None:
        self._why = ""
        self._next_attempt_at = 0.0

    @property
    def open(self) -> bool:
        """Whether the last attempt failed."""
        return bool(self._why)

    def trip(self, error: Exception, *, pause_s: float | None = None) -> None:
        """Open it: the server did not respond. No attempt is made during the pause."""
        if not self._why:
            counter("breaker_openings", self._server).inc()
        self._why = str(error) or repr(error)
        self._next_attempt_at = monotonic() + (self.pause_s if pause_s is None else pause_s)

    def close(self) -> None:
        """Let everybody ask again: the server has responded."""
        self._why = ""

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Ask the server inside of this block; it raises ``error`` if it is too early to."""
        now = monotonic()
        if self.open:
            if now < self._next_attempt_at:
                raise self._error(f"not tried again yet: {self._why}")
            self._next_attempt_at = now + self._longest_attempt_s
        try:
            yield
        except Exception as error:
            self.trip(error)
            raise
        self.close()
