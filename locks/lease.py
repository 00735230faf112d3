"""What one acquisition holds, and until when its holder may believe in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from redis import Redis

DRIFT_SHARE, DRIFT_S = 0.01, 0.002
"""How much sooner than the keys a belief ends, since two clocks measure it: RedLock's bound."""


class Lease:
    """The belief of one holder in its locks, by this process's own clock.

    The clock starts *before* each request is sent, so that the belief ends before the keys do. Once
    lost is lost for good: a holder that was told so has stopped working.
    """

    def __init__(
        self,
        client: Redis,
        names: tuple[str, ...],
        owner: str,
        *,
        lease_ms: int,
        sent_at: float,
        token: int | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        self.client = client
        self.names = names
        self.owner = owner
        self.lease_ms = lease_ms
        self.token = token
        self.on_lost = on_lost
        self.ended = False
        self._lost = False
        self._start(sent_at)

    @property
    def lost(self) -> bool:
        """Whether the locks are known to be gone, or may be, for want of a successful renewal."""
        if self.names and not self.ended and time.monotonic() >= self._ends_at:
            self._lost = True
        return self._lost

    def renewed(self, *, sent_at: float) -> None:
        """Believe for a lease from ``sent_at`` (monotonic seconds), unless that came too late."""
        if not self.lost:
            self._start(sent_at)

    def postpone(self) -> None:
        """Try the next renewal soon, since the last one got no answer."""
        self.renew_at = time.monotonic() + self.lease_ms / 10_000

    def lose(self) -> None:
        """Note that Redis has the locks no longer as ours."""
        self._lost = True

    def end(self) -> None:
        """Stop the clock, because letting go has begun."""
        self._lost = self.lost
        self.ended = True

    def _start(self, sent_at: float) -> None:
        lease_s = self.lease_ms / 1000
        self._ends_at = sent_at + lease_s * (1 - DRIFT_SHARE) - DRIFT_S
        self.renew_at = sent_at + lease_s / 3


def shown(names: Sequence[str]) -> str:
    """Return the first names, for messages."""
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
