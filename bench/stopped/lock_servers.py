"""Lock servers: what a lock costs on each, and what happens when its holder stops.

Two processes compete for a lock. One is killed, or frozen for longer than its lease (with
ZooKeeper, its session). When it continues, it first writes what it had in hand.
"""

import base64
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from itertools import pairwise
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import httpcore
from django.utils import timezone
from django.utils.translation import gettext_noop

from lab import locks as lab_locks
from lab.engine.fork_server import ForkServer, Process
from lab.experiments.experiment import Cell, Row
from lab.keys import delete_keys
from lab.locks import ConnectionLock, NamedLock, RowLock
from lab.models import LabLock
from lab.verdict import percentile
from lab.waiting import wait_until
from locks import RedisLock
from seckill_site.redis.ledger_connection import ledger_connection

LEASE_S, WAIT_S, NOTICE_S, ANSWER_S = 2, 4.5, 3.0, 30.0
"""A lease; the longest wait for a lock, and for a holder to notice its loss; for an answer."""

CYCLES, HAND_OVERS = 300, 20
AWAITED_S = 0.15
"""Seconds for which the other one waits before anything happens to the holder."""

NAME = "lab:{lock-servers}"
ROW = f"{NAME}:row"
"""The row that the lock guards; its token is that of the last holder that wrote."""


# --- The locks that no step uses ------------------------------------------------------------------


class OurLock(NamedLock):
    def __init__(self, name: str) -> None:
        client, fence = ledger_connection(), f"{name}:fence"
        self._lock = RedisLock(client, name, lease_ms=LEASE_S * 1_000, fence_key=fence)

    def take_within(self, wait_s: float) -> bool:
        self._lock.acquire(wait_ms=int(wait_s * 1_000))
        self.token = self._lock.fencing_token
        return True

    def release(self) -> None:
        self._lock.release()

    def is_lost(self) -> bool:
        return self._lock.lost


class ZooKeeperLock(NamedLock):
    """kazoo's lock: a numbered node for everybody who waits; it ends with the session."""

    setting, absent = "SECKILL_LAB_ZOOKEEPER", gettext_noop("install zookeeper")

    def __init__(self, name: str) -> None:
        address = os.environ[self.setting].partition("://")[2]
        self._client = import_module("kazoo.client").KazooClient(address, timeout=LEASE_S)
        self._states: list[str] = []
        self._client.add_listener(self._states.append)
        self._client.start()
        self._lock = self._client.Lock(f"/{name}")

    def take_within(self, wait_s: float) -> bool:
        self._lock.acquire(timeout=wait_s)
        self.token = int(self._lock.node[-10:])
        return True

    def release(self) -> None:
        self._lock.release()

    def is_lost(self) -> bool:
        return "LOST" in self._states


class EtcdLock(NamedLock):
    """etcd's lock service behind its JSON gateway, with one lease for the process."""

    setting, absent = "SECKILL_LAB_ETCD", gettext_noop("install etcd-server")

    def __init__(self, name: str) -> None:
        self._http, self._is_lost = httpcore.ConnectionPool(), False
        lease = self._ask("lease/grant", TTL=LEASE_S)["ID"]
        self._lock = {"name": base64.b64encode(name.encode()).decode(), "lease": lease}
        threading.Thread(target=self._renew, daemon=True).start()

    def take_within(self, wait_s: float) -> bool:
        granted = self._ask("lock/lock", **self._lock)
        self._key, self.token = granted["key"], int(granted["header"]["revision"])
        return True

    def release(self) -> None:
        self._ask("lock/unlock", key=self._key)

    def is_lost(self) -> bool:
        return self._is_lost

    def _renew(self) -> None:
        while not self._is_lost:
            time.sleep(LEASE_S / 3)
            kept = self._ask("lease/keepalive", ID=self._lock["lease"])
            self._is_lost = "TTL" not in kept["result"]

    def _ask(self, what: str, **body: object) -> dict[str, Any]:
        url = f"{os.environ[self.setting]}/v3/{what}"
        reply = self._http.request("POST", url, content=json.dumps(body).encode())
        answered: dict[str, Any] = json.loads(reply.content)
        return answered


# --- The processes --------------------------------------------------------------------------------


class Holder:
    """What a process does with its lock when the director says so."""

    def __init__(self, form: type[NamedLock]) -> None:
        lab_locks.LEASE_MS = LEASE_S * 1_000
        self._lock = form(NAME)

    def take(self) -> float | None:
        """Return when the lock was taken; None if it was not."""
        return time.monotonic() if self._lock.take_within(WAIT_S) else None

    def release(self) -> float:
        """Return when the release started."""
        started_at = time.monotonic()
        self._lock.release()
        return started_at

    def cycles_us(self) -> list[float]:
        times = [time.perf_counter()]
        while len(times) <= CYCLES:
            self.take()
            self._lock.release()
            times.append(time.perf_counter())
        return sorted((end - start) * 1e6 for start, end in pairwise(times))

    def write(self, *, checked: bool = True) -> bool:
        """Write with the lock's token; if checked, only if no later holder has written."""
        newest = {"token__lte": self._lock.token or 0} if checked else {}
        row = LabLock.objects.filter(name=ROW, **newest)
        return bool(row.update(token=self._lock.token or 0))

    def write_late(self) -> list[str]:
        """Say what becomes of a write if the token is compared, and if it is not."""
        return [LANDS if self.write(checked=it) else REFUSED for it in (True, False)]

    def notice_s(self) -> float | None:
        """Return the seconds until the client knows that the lock was lost; None if never."""
        started_at = time.monotonic()
        known = wait_until(self._lock.is_lost, within_s=NOTICE_S, every_s=0.001)
        return time.monotonic() - started_at if known else None


def hold(pipe: Connection, *, form: type[NamedLock]) -> None:
    """Follow the director's orders."""
    holder = Holder(form)
    while True:
        order, actor = pipe.recv()
        pipe.send((actor, getattr(holder, order)()))


def answer(process: Process) -> Any:
    """Return the answer to an order.

    :raises TimeoutError: the process did not answer in time.
    """
    message = process.receive(timeout_s=ANSWER_S)
    if message is None:
        raise TimeoutError(f"process {process.number} does not answer")
    return message[0]


def ask(process: Process, order: str) -> Any:
    process.send(order, "")
    return answer(process)


# --- The comparison -------------------------------------------------------------------------------


def compare() -> Iterator[Row]:
    """Measure one lock after the other; without its server, its row says what to install."""
    for title, form in FORMS.items():
        if form.setting and form.setting not in os.environ:
            yield title, form.absent, *[None] * 7
            continue
        LabLock.objects.create(name=ROW, token=0, expires_at=timezone.now())
        try:
            with ForkServer() as server:
                holds = [server.fork(partial(hold, form=form), number) for number in (1, 2, 3)]
                yield title, *_costs(*holds[:2]), *_stops(*holds)
        finally:
            LabLock.objects.filter(name__startswith=NAME).delete()
            delete_keys(f"{NAME}*")


def _costs(first: Process, second: Process) -> tuple[float, ...]:
    cycles_us = ask(first, "cycles_us")
    hand_over_ms = median(_hand_over_ms(first, second) for _ in range(HAND_OVERS))
    return median(cycles_us), percentile(cycles_us, 99), hand_over_ms


def _hand_over_ms(holder: Process, waiting: Process) -> float:
    ask(holder, "take")
    waiting.send("take", "")
    time.sleep(AWAITED_S)
    released_at = ask(holder, "release")
    taken_at = answer(waiting)
    ask(waiting, "release")
    return float(taken_at - released_at) * 1_000


def _stops(killed: Process, waiting: Process, frozen: Process) -> tuple[Cell, ...]:
    after_kill_s = _take_over_s(killed, waiting, signal.SIGKILL)
    after_freeze_s = _take_over_s(frozen, waiting, signal.SIGSTOP)
    frozen.send("write_late", "")  # it finds this when it continues
    frozen.signal(signal.SIGCONT)
    if_compared, if_not = answer(frozen)
    if after_freeze_s is None:
        return after_kill_s, gettext_noop("keeps it"), None, None, None
    notice_s = ask(frozen, "notice_s")
    notice = gettext_noop("never") if notice_s is None else notice_s * 1_000
    return after_kill_s, after_freeze_s, notice, if_not, if_compared


def _take_over_s(holder: Process, waiting: Process, signum: signal.Signals) -> float | None:
    """Stop the holder; return the seconds until the other one has the lock, None if never."""
    ask(holder, "take")
    waiting.send("take", "")
    time.sleep(AWAITED_S)
    stopped_at = time.monotonic()
    holder.signal(signum)
    taken_at = answer(waiting)
    if taken_at is None:
        return None
    ask(waiting, "write")
    ask(waiting, "release")
    return float(taken_at - stopped_at)


LANDS, REFUSED = gettext_noop("lands"), gettext_noop("refused")

FORMS: dict[str, type[NamedLock]] = {
    gettext_noop("Redis: the lock of this shop"): OurLock,
    gettext_noop("MariaDB: a row with a lease"): RowLock,
    gettext_noop("MariaDB: GET_LOCK"): ConnectionLock,
    "ZooKeeper": ZooKeeperLock,
    "etcd": EtcdLock,
}
