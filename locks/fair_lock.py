"""A lock that is granted in the order of the requests."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from redis import Redis, RedisError

from locks import scripts
from locks.hold import ReleaseCall
from locks.protocol import Answer, ReleaseResult, Request, WaitNote, fair_topic
from locks.redis_lock import RedisLock
from locks.wait_queues import NOTE_S


class FairLock(RedisLock):
    """A ``RedisLock`` that waiters of all processes get first come, first served.

    The queue is in Redis. A waiter asks again each second and drops out after three seconds of
    silence, so a dead waiter delays the others no longer than that. A ``RedisLock`` of the same
    name excludes this one, but knows nothing of the queue: use one kind of lock per name.
    """

    def _topic(self, owner: str) -> str:
        return fair_topic(self.name, owner)

    def _ask(self, request: Request) -> Answer:
        return scripts.acquire_fair(self._client, self.name, request)

    def _release_call(self) -> ReleaseCall:
        return partial(_release, self._client, self.name)

    def _first_note(self) -> WaitNote:
        return WaitNote(1, 0, int(NOTE_S * 1000))  # which takes a place in the queue

    def _give_up(self, owner: str) -> None:
        with suppress(RedisError):  # then the place expires
            scripts.leave_queue(self._client, self.name, owner)


def _release(client: Redis, name: str, owner: str, keys: Sequence[str]) -> ReleaseResult:
    return scripts.release_fair(client, name, owner)
