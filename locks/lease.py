"""The lease of one acquisition: which locks it has, and until when its holder may rely on them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass

from redis import Redis

from locks.protocol import RenewResult

DRIFT_SHARE, DRIFT_S = 0.01, 0.002
"""How much sooner than the keys a lease ends, since two clocks measure it: RedLock's bound."""


@dataclass(eq=False)
class Lease:
    """A holder's view of its locks, by this process's own clock.

    The clock starts *before* each request is sent, so that the lease ends before the keys do. A
    lost lease stays lost: a holder that was told so has stopped working.
    """

    client: Redis
    names: tuple[str, ...]
    owner: str
    lease_ms: int
    sent_at: InitVar[float]
    token: int | None = None
    on_lost: Callable[[], None] | None = None
    ended: bool = False
    _lost: bool = False

    def __post_init__(self, sent_at: float) -> None:
        self._start(sent_at)

    @property
    def renewal(self) -> tuple[Sequence[str], str, int]:
        """The request for ``scripts.renew``."""
        return self.names, self.owner, self.lease_ms

    @property
    def lost(self) -> bool:
        """Whether the locks are gone, or may be because no renewal succeeded in time."""
        if self.names and not self.ended and time.monotonic() >= self._ends_at:
            self._lost = True
        return self._lost

    def apply(self, result: RenewResult, *, sent_at: float) -> None:
        """Count a whole lease from ``sent_at`` (monotonic seconds) if it was renewed in time."""
        if result is RenewResult.LOST and not self.ended:
            self.mark_lost()
        elif not self.lost:
            self._start(sent_at)

    def postpone(self) -> None:
        """Plan the next renewal soon, since the last one got no answer."""
        self.renew_at = time.monotonic() + self.lease_ms / 10_000

    def mark_lost(self) -> None:
        """Note that the locks in Redis are no longer ours."""
        self._lost = True

    def end(self) -> None:
        """Stop the clock before the release."""
        self._lost = self.lost
        self.ended = True

    def _start(self, sent_at: float) -> None:
        lease_s = self.lease_ms / 1000
        self._ends_at = sent_at + lease_s * (1 - DRIFT_SHARE) - DRIFT_S
        self.renew_at = sent_at + lease_s / 3


def short_list(names: Sequence[str]) -> str:
    """Return the first names, for messages."""
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
