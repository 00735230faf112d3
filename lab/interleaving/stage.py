"""The stage of a played race: a sale, its actors, and the faults.

The director of a race does everything, one thing at a time, in the order of the race.
"""

import datetime as dt
import signal
import time
from collections.abc import Callable
from functools import partial

from django.utils import timezone

from lab.engine.database import cut_connection, is_connected
from lab.engine.fork_server import ForkServer, Process
from lab.engine.stage import Stage
from lab.interleaving.actor_process import fulfil, run_actors, write_order
from lab.interleaving.actors import PATIENCE_S, Actor, NeverCame, State
from lab.interleaving.timeline import Column, Kind, Role, Timeline
from lab.keys import NO_EXPIRY
from lab.locks import is_held
from lab.models import LONG_AGO
from lab.steps import ours, v6
from lab.steps.step import PROMISES, Answer, Step
from lab.verdict import Answers, Verdict, judge
from lab.waiting import wait_until
from orders.models import OrderStatus, RefusalReason
from orders.placing.tokens import PurchaseToken
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys

LONG_LEASE_MS = 30_000
"""Longer than any race: for locks that must not expire on a slow machine."""

SHORT_LEASE_MS = 400
"""For a lease that must expire."""

FAIR_LEASE_MS = 1_500
"""For a lease that must expire, but only after another actor has found the lock taken."""

TOLD_LOST = f"{OrderStatus.REFUSED.value} {RefusalReason.LOST.value}"


class PlayedStage(Stage):
    """The stage on which a director plays a race."""

    def __init__(self, step: Step, server: ForkServer) -> None:
        super().__init__(step, server)
        self.timeline = Timeline()
        self._leases_ms: dict[int, int] = {}
        self._processes: dict[int, Process] = {}
        self._actors: dict[str, Actor] = {}

    def open(self, *, units: int, buyers: int, begins_at: dt.datetime = LONG_AGO) -> None:
        """Put units on sale and start the clock of the race."""
        super().open(units=units, buyers=buyers, begins_at=begins_at)
        self._begins_at = begins_at
        self.timeline.began_at = time.monotonic()

    # --- Actors -----------------------------------------------------------------------------------

    def process(self, number: int, *, lease_ms: int = LONG_LEASE_MS) -> Process:
        """Return the process with this number; start it with this lease if needed."""
        if number not in self._processes:
            self._processes[number] = self.fork(partial(run_actors, lease_ms=lease_ms), number)
            self._leases_ms[number] = lease_ms
        return self._processes[number]

    def buyer(
        self, name: str, number: int, *, process: int = 1, token: PurchaseToken | None = None
    ) -> Actor:
        """Return the actor of a buyer's press (from 1); in ours, with this token or a new one."""
        buy = partial(self.step.buy, sale_id=self.sale_id, user_id=self.user_ids[number - 1])
        if self.step.is_ours:
            buy = partial(buy, token=(token or self.token(number)).sign())
        return self.actor(Column(name, Role.BUYER, number), process, buy)

    def stranger(self, name: str, *, process: int = 1) -> Actor:
        """Return the actor of the last buyer's press in another sale, which is opened for it."""
        buy = partial(self.step.buy, sale_id=self.open_sale(1), user_id=self.user_ids[-1])
        return self.actor(Column(name, Role.STRANGER), process, buy)

    def elsewhere(self, name: str, number: int, *, process: int = 1) -> Actor:
        """Return the actor of this buyer's press in another sale, which is opened for it."""
        buy = partial(self.step.buy, sale_id=self.open_sale(1), user_id=self.user_ids[number - 1])
        return self.actor(Column(name, Role.ELSEWHERE, number), process, buy)

    def token(self, number: int) -> PurchaseToken:
        """Open the shop's page as this buyer (from 1), and return its token."""
        return ours.tokens_for(self.sale_id, [self.user_ids[number - 1]])[0]

    def receipt(self, name: str, token: PurchaseToken, *, process: int) -> Actor:
        """Return a buyer of ours who reads the receipt of this token."""
        column = next(it for it in self.timeline.columns if it.name == name)
        return self.actor(column, process, partial(ours.receipt, token))

    def writer(self, *, process: int, name: str = "W") -> Actor:
        """Return a step's background half in this process, which looks for one order."""
        write = partial(write_order, self.step.name, f"process {process}")
        return self.actor(Column(name, Role.WRITER), process, write)

    def worker(self, *, process: int, name: str = "W") -> Actor:
        """Return a worker of ours with a fulfil task of the sale, as from Celery or the sweep."""
        return self.actor(Column(name, Role.WORKER), process, partial(fulfil, self.sale_id))

    def actor(self, column: Column, number: int, task: Callable[[], object]) -> Actor:
        """Put an actor on stage; it replaces an ended actor of the same name."""
        before = self._actors.get(column.name)
        if before and before.state not in (State.ENDED, State.GONE):
            raise ValueError(f"{column.name} is on stage already")
        if column not in self.timeline.columns:
            self.timeline.columns.append(column)
        actor = Actor(
            column.name,
            self.process(number),
            task,
            self.timeline,
            lambda: sum(it.in_row_wait for it in self._actors.values()),
        )
        self._actors[column.name] = actor
        return actor

    # --- Events -----------------------------------------------------------------------------------

    def kill(self, number: int) -> None:
        """Kill a process, and return when the database has noticed."""
        self._signal(number, signal.SIGKILL, Kind.KILLED)
        for actor in self._in(number):
            if not actor.has_ended:
                actor.state = State.GONE
            _wait_until_disconnected(actor)

    def stop(self, number: int) -> None:
        """Freeze a whole process, with all its threads."""
        self._signal(number, signal.SIGSTOP, Kind.STOPPED)

    def resume(self, number: int) -> None:
        """Let a frozen process continue."""
        self._signal(number, signal.SIGCONT, Kind.CONTINUED)

    def cut(self, actor: Actor) -> None:
        """Cut an actor's connection to the database, which rolls back its transaction."""
        cut_connection(actor.connection_id)
        _wait_until_disconnected(actor)
        self._note(Kind.CUT, actor.name)

    def empty_redis(self) -> None:
        """Delete the sale from Redis, as a restart without its file would; other keys stay."""
        self.delete_keys()
        self._note(Kind.EMPTIED)

    def let_a_lease_pass(self, *, holder: int) -> None:
        """Wait until a process's locks for buyer 1 are gone, or have outlasted its lease."""
        client = ledger_connection()
        keys = [it(self.sale_id, self.user_ids[0]) for it in (v6.of_buyer_and_sale, v6.of_buyer)]
        if self.step.is_ours:
            ledger = LedgerKeys(self.sale_id)
            keys = [ledger.sale_lock, ledger.user_lock(self.user_ids[0])]
        if any(client.ttl(key) == NO_EXPIRY for key in keys):
            self._note(Kind.NO_LEASE)
            return
        within_s = 1.5 * self._leases_ms[holder] / 1_000
        is_over = wait_until(lambda: not any(map(is_held, keys)), within_s=within_s)
        self._note(Kind.LEASE_OVER if is_over else Kind.LEASE_KEPT)

    def _signal(self, number: int, signum: signal.Signals, kind: Kind) -> None:
        names = [actor.name for actor in self._in(number)]
        self._processes[number].signal(signum)
        self._note(kind, *names)

    def _in(self, number: int) -> list[Actor]:
        """Return the actors that acted last in this process."""
        return [it for it in self._actors.values() if it.process is self._processes[number]]

    def _note(self, kind: Kind, *names: str) -> None:
        self.timeline.add(time.monotonic(), names, kind)

    # --- The verdict ------------------------------------------------------------------------------

    def judge(self) -> Verdict:
        """Compare the buyers' answers with the rows."""
        buyers = {it.name: it.number for it in self.timeline.columns if it.role is Role.BUYER}
        answers: dict[int, list[str]] = {}
        for event in self.timeline.events:
            if event.kind is Kind.ANSWER and event.actors[0] in buyers:
                user_id = self.user_ids[buyers[event.actors[0]] - 1]
                answers.setdefault(user_id, []).append(event.what)
        failed = [it for it in self.timeline.events if it.kind is Kind.FAILS]
        # A connection that the race has cut is no flaw of the step.
        errors = sum(it.actors[0] in buyers and "OperationalError" not in it.what for it in failed)
        promised = {user_id for user_id, its in answers.items() if PROMISES & set(its)}
        strangers = {(it.name,) for it in self.timeline.columns if it.role is Role.STRANGER}
        waits = {it.actors for it in self.timeline.events if it.kind.startswith("waits for ")}
        last = {user_id: its[-1] for user_id, its in answers.items()}
        # Nothing but the buyer's own press in another sale was in the way.
        numbers = {it.number for it in self.timeline.columns if it.role is Role.ELSEWHERE}
        elsewhere = {self.user_ids[number - 1] for number in numbers}
        kept_away = {it for it in elsewhere if last.get(it) == Answer.BUSY}
        barring = (Answer.BUSY, Answer.ALREADY_ORDERED)
        return judge(
            step=self.step.name,
            buyers=len(set(buyers.values())),
            offered=self.offered,
            rows=self.step.rows(self.sale_id),
            answers=Answers(
                promised=frozenset(promised),
                turned_away=frozenset(kept_away),
                denied=frozenset(it for it in promised if last[it] == Answer.SOLD_OUT),
                errors=errors,
            ),
            told_lost={user_id for user_id, its in answers.items() if TOLD_LOST in its},
            barred={it for it, answer in last.items() if answer in barring} - kept_away,
            delayed=len(strangers & waits),
            has_started=self._begins_at <= timezone.now(),
        )


def _wait_until_disconnected(actor: Actor) -> None:
    if not wait_until(lambda: not is_connected(actor.connection_id), within_s=PATIENCE_S):
        raise NeverCame(f"the database still holds the connection of {actor.name}")
