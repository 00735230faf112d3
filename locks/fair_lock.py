"""A lock that is given in the order in which it was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from redis import Redis, RedisError

from locks import scripts
from locks.hold import LetGo
from locks.protocol import Answer, ReleaseResult, Request, Waiting, fair_topic
from locks.redis_lock import RedisLock
from locks.waiting import STAY_S


class FairLock(RedisLock):
    """A ``RedisLock`` whose waiters, of all processes, get it first come, first served.

    The queue stands in Redis. Who waits asks again each second and drops out after three seconds
    of silence, so a waiter that died delays the others no longer than that. A ``RedisLock`` of the
    same name excludes this one, but knows nothing of the queue: give a name one kind of lock.
    """

    def _topic(self, owner: str) -> str:
        return fair_topic(self.name, owner)

    def _ask(self, request: Request) -> Answer:
        return scripts.acquire_fair(self._client, self.name, request)

    def _letter_go(self) -> LetGo:
        return partial(_let_go, self._client, self.name)

    def _opening(self) -> Waiting:
        return Waiting(1, 0, int(STAY_S * 1000))  # its place in the queue

    def _gave_up(self, owner: str) -> None:
        try:
            scripts.leave_queue(self._client, self.name, owner)
        except RedisError:
            return  # the place is forgotten by itself


def _let_go(client: Redis, name: str, owner: str, keys: Sequence[str]) -> ReleaseResult:
    return scripts.release_fair(client, name, owner)
