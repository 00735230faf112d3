"""The shop of the soak: real processes with clocks of their own, and a ledger with a replica."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from django.conf import settings
from django.test import override_settings

from tests.faults.conftest import ClockedRedis, with_clock, with_inside
from tests.support.patience import wait_for
from tests.support.stack import Process, Stack, Web

PATIENT_MS = 450
"""How long an order waits for the replica: as long as the setting allows."""

WEB_CLOCKS_S = REDIS_CLOCKS_S = (-20, -5, 0, 0, 5, 20)
"""By how much these clocks are ahead; purchase tokens tolerate 60 s in all."""

CLOCKS_S = (-3_600, -5, 0, 0, 5, 3_600)
"""The same for workers and beat, which decide nothing by theirs."""


class Ledger:
    """A Redis and its replica, which takes over its port when it dies."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._count = directory, 0
        self.primary = self._next()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._kill)
            self.primary.start()
            caches: dict[str, Any] = {name: dict(cache) for name, cache in settings.CACHES.items()}
            caches["ledger"]["LOCATION"] = self.primary.url()
            stack.enter_context(override_settings(CACHES=caches, REDIS_URL=self.primary.url()))
            self._replicate()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def fail_over(self, *, ahead_s: float) -> None:
        """Kill the primary; its replica, whose clock differs, takes over, and gets one itself."""
        wait_for(self._is_in_step, what="a replica in step")
        port = self.primary.port
        self.primary.kill()
        self.primary = self.replica
        self.primary.shift_clock(ahead_s)
        with self.primary.client() as client:
            client.replicaof("NO", "ONE")
            client.config_set("port", port)
        self.primary.port = port
        self._replicate()

    def _next(self) -> ClockedRedis:
        self._count += 1
        directory = self._directory / f"redis-{self._count}"
        directory.mkdir()
        return ClockedRedis(directory)

    def _replicate(self) -> None:
        self.replica = self._next()
        self.replica.start()
        with self.primary.client() as primary, self.replica.client() as replica:
            primary.config_set("repl-diskless-sync-delay", 0)
            replica.replicaof("127.0.0.1", self.primary.port)
        wait_for(self._is_in_step, what="a replica in step")

    def _is_in_step(self) -> bool:
        with self.primary.client() as client, client.pipeline(transaction=False) as pipe:
            pipe.set("test:step", "1", px=1)
            pipe.wait(1, PATIENT_MS)
            return bool(pipe.execute()[1] == 1)

    def _kill(self) -> None:
        self.primary.kill()
        if hasattr(self, "replica"):
            self.replica.kill()


class Shop:
    """Two web servers, two workers and beat; who is killed is started again, by another clock."""

    def __init__(self, stack: Stack, ledger: Ledger, random: random.Random) -> None:
        self.stack, self.ledger, self._random = stack, ledger, random
        self.inside = stack.directory
        (self.inside / "database").write_text("{}")

    def open(self) -> None:
        with self.stack.together():
            self.webs = [self._web(), self._web()]
            self.workers = [self._worker(), self._worker()]
            self.beat = self._beat()

    def close(self) -> None:
        """Kill everything but the servers."""
        for process in (*self.webs, *self.workers, self.beat):
            self._forget(process)

    def restart_web(self, number: int) -> None:
        self._forget(self.webs[number])
        self.webs[number] = self._web()

    def restart_worker(self, number: int) -> None:
        self._forget(self.workers[number])
        self.workers[number] = self._worker()

    def restart_beat(self) -> None:
        self._forget(self.beat)
        self.beat = self._beat()

    def _web(self) -> Web:
        return self.stack.web(
            SECKILL_LEDGER_REPLICAS="1",
            SECKILL_LEDGER_REPLICAS_MS=str(PATIENT_MS),
            **self._environ(WEB_CLOCKS_S),
        )

    def _worker(self) -> Process:
        return self.stack.worker(**{**with_inside(self.inside), **self._environ(CLOCKS_S)})

    def _beat(self) -> Process:
        return self.stack.beat(**self._environ(CLOCKS_S))

    def _environ(self, clocks: tuple[int, ...]) -> dict[str, Any]:
        return {"REDIS_URL": settings.REDIS_URL, **with_clock(self._random.choice(clocks))}

    def _forget(self, process: Process) -> None:
        process.kill()
        process.log.unlink()
