"""The stage of a played race: a sale of a step, the actors on it, and what befalls them.

Everything that a race says is done by its director, one thing at a time, in the order in which the
race says it. When the block ends, however it does, no process of the race is left, and nothing of
the sale.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Self

from django.db import connection

from lab.answers import PROMISES, Answer
from lab.crowds.told import Told
from lab.play.actors import PATIENCE_S, Actor, NeverCame, Process, Rest
from lab.play.backstage import Backstage
from lab.play.row_locks import cut_connection, is_connected
from lab.play.tasks import TOLD_LOST, ask_for_receipt, fulfil, write_order
from lab.play.timeline import Column, Kind, Role, Timeline
from lab.steps import ours
from lab.steps.step import Step
from lab.verdict import Verdict, judge
from orders.placing.tokens import PurchaseToken, issue_tokens
from seckill_site.ledger_connection import ledger_connection
from vouchers.models import SeckillVoucher

LONG_LEASE_MS = 30_000
"""Longer than any race: for locks that are not to end by themselves on a slow machine."""

SHORT_LEASE_MS = 400
"""For a lease that is to run out."""

FAIR_LEASE_MS = 1_500
"""For a lease that is to run out too, but not before somebody else has met the lock."""

NO_END = -1
"""What Redis answers for the time that a key without an end has left."""

GLANCE_S = 0.005


class Stage:
    """A race's view of one step: ``sale_id`` and ``user_ids`` are there when it is opened."""

    def __init__(self, step: Step, backstage: Backstage) -> None:
        self.step = step
        self.timeline = Timeline()
        self.offered = self.sale_id = 0
        self.user_ids: list[int] = []
        self._backstage = backstage
        self._processes: dict[int, Process] = {}
        self._actors: dict[str, Actor] = {}
        self._buyers: dict[str, int] = {}

    @property
    def is_ours(self) -> bool:
        """Whether this is the shop itself, whose points have other names."""
        return self.step.name == "ours"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            for process in self._processes.values():
                if process.alive:
                    process.signal(signal.SIGKILL)
        finally:
            if kind is KeyboardInterrupt:  # perhaps amid a reply, after which no other fits
                connection.close()
            if self.sale_id:
                self._delete_keys(f"lock:*{{{self.sale_id}}}*")  # whose holders are all dead
                self.step.clear(self.sale_id)

    def open(self, *, units: int, buyers: int) -> None:
        """Put so many units on sale, for so many buyers; the clock of the race begins here."""
        self.offered = units
        self.sale_id = self.step.open(units)
        self.user_ids = self.step.buyers(buyers)
        self.timeline.began_at = time.monotonic()

    # --- Who acts ---------------------------------------------------------------------------------

    def process(self, number: int, *, lease_ms: int = LONG_LEASE_MS) -> Process:
        """Return the process of this number; it begins now, if it is not there, with this lease."""
        if number not in self._processes:
            self._processes[number] = Process(number, self._backstage, lease_ms=lease_ms)
        return self._processes[number]

    def buyer(
        self, name: str, number: int, *, process: int = 1, token: PurchaseToken | None = None
    ) -> Actor:
        """Return a press of this buyer (from 1); of ours, with this token or one of its own."""
        buy = partial(self.step.buy, sale_id=self.sale_id, user_id=self.user_ids[number - 1])
        if self.is_ours:
            text = (token or self.token(number)).sign()
            buy = partial(ours.buy, **buy.keywords, token=text)
        self._buyers[name] = number
        return self._actor(Column(name, Role.BUYER, number), process, buy)

    def token(self, number: int) -> PurchaseToken:
        """Open the page of ours as this buyer, and return the token on it."""
        sale = SeckillVoucher.objects.get(pk=self.sale_id)
        return issue_tokens(sale=sale, user_ids=[self.user_ids[number - 1]])[0]

    def receipt(self, name: str, token: PurchaseToken, *, process: int) -> Actor:
        """Return this buyer of ours asking what became of the order of this token."""
        number = self._buyers[name]
        return self._actor(
            Column(name, Role.BUYER, number), process, partial(ask_for_receipt, token=token)
        )

    def writer(self, *, process: int) -> Actor:
        """Return the background half of a step in this process, which looks for one order."""
        write = partial(write_order, self.step.name, f"process {process}")
        return self._actor(Column("W", Role.WRITER), process, write)

    def worker(self, *, process: int, name: str = "W") -> Actor:
        """Return a worker of ours at a fulfil task of the sale, as Celery or the sweep send it."""
        return self._actor(Column(name, Role.WORKER), process, partial(fulfil, self.sale_id))

    def _actor(self, column: Column, number: int, task: Callable[[], object]) -> Actor:
        before = self._actors.get(column.name)
        if before and before.rest not in (Rest.ENDED, Rest.GONE):
            raise ValueError(f"{column.name} is on stage already")
        if column not in self.timeline.columns:
            self.timeline.columns.append(column)
        process, timeline = self.process(number), self.timeline
        actor = Actor(column.name, process, task, timeline, self._waiting_for_rows)
        self._actors[column.name] = actor
        return actor

    def _waiting_for_rows(self) -> int:
        return sum(actor.in_row_wait for actor in self._actors.values())

    # --- What befalls them ------------------------------------------------------------------------

    def kill(self, number: int) -> None:
        """Kill a process, and return when the database has noticed."""
        self._signal(number, signal.SIGKILL, Kind.KILLED)
        for actor in self._in(number):
            if not actor.has_ended:
                actor.rest = Rest.GONE
            _wait_until_disconnected(actor)

    def stop(self, number: int) -> None:
        """Let a whole process stand still, with all its threads."""
        self._signal(number, signal.SIGSTOP, Kind.STOPPED)

    def resume(self, number: int) -> None:
        """Let it go on."""
        self._signal(number, signal.SIGCONT, Kind.CONTINUED)

    def cut(self, actor: Actor) -> None:
        """Cut an actor's connection to the database, which rolls back what it had begun."""
        cut_connection(actor.connection_id)
        _wait_until_disconnected(actor)
        self._happens(Kind.CUT, actor.name)

    def empty_redis(self) -> None:
        """Let Redis come back without anything of the sale, as from a restart without its file.

        Only the sale's keys are deleted: the server, and what else is in it, is not the race's own.
        """
        self._delete_keys(f"*{{{self.sale_id}}}*")
        self._happens(Kind.EMPTIED)

    def _delete_keys(self, pattern: str) -> None:
        client = ledger_connection()
        if keys := list(client.scan_iter(pattern, count=1000)):
            client.unlink(*keys)

    def let_a_lease_pass(self, *keys: str, holder: int) -> None:
        """Wait until these locks of a process are gone, or have stood for longer than its lease."""
        client = ledger_connection()
        if any(client.ttl(key) == NO_END for key in keys):
            self._happens(Kind.NO_LEASE)
            return
        until = time.monotonic() + 1.5 * self._processes[holder].lease_ms / 1000
        while standing := client.exists(*keys):
            if time.monotonic() > until:
                break
            time.sleep(GLANCE_S)
        self._happens(Kind.LEASE_KEPT if standing else Kind.LEASE_OVER)

    def _signal(self, number: int, what: signal.Signals, kind: Kind) -> None:
        names = [actor.name for actor in self._in(number)]
        self._processes[number].signal(what)
        self._happens(kind, *names)

    def _in(self, number: int) -> list[Actor]:
        """Return who has acted last in this process."""
        return [it for it in self._actors.values() if it.process is self._processes[number]]

    def _happens(self, kind: Kind, *names: str) -> None:
        self.timeline.add(time.monotonic(), names, kind)

    # --- What it comes to -------------------------------------------------------------------------

    def judge(self) -> Verdict:
        """Hold what the buyers heard against the rows."""
        heard: dict[int, list[str]] = {}
        for event in self.timeline.events:
            if event.kind is Kind.ANSWER and event.actors[0] in self._buyers:
                number = self._buyers[event.actors[0]]
                heard.setdefault(self.user_ids[number - 1], []).append(event.what)
        promised = {user_id for user_id, answers in heard.items() if PROMISES & set(answers)}
        no_way = (Answer.BUSY, Answer.ALREADY_ORDERED)
        return judge(
            step=self.step.name,
            buyers=len(set(self._buyers.values())),
            offered=self.offered,
            rows=self.step.rows(self.sale_id),
            told=Told(frozenset(promised), frozenset(), 0, [], 0),
            with_word={user_id for user_id, answers in heard.items() if TOLD_LOST in answers},
            held={user_id for user_id, answers in heard.items() if answers[-1] in no_way},
            last_row_us=0,
        )


def _wait_until_disconnected(actor: Actor) -> None:
    until = time.monotonic() + PATIENCE_S
    while is_connected(actor.connection_id):
        if time.monotonic() > until:
            raise NeverCame(f"the database still holds the connection of {actor.name}")
        time.sleep(GLANCE_S)
