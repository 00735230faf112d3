"""One run: its plan, the shop's processes, the load generator and the progress."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from django.core.management import call_command
from django.db import connection
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.processes import cpu_s, spawned
from bench.sale.generator import Hits, Shot, fire
from bench.sale.plan import DEPTH, Plan
from bench.sale.site import Site, Web, web
from seckill_site.ledger_connection import ledger_connection

Item = TypeVar("Item")
Result = TypeVar("Result")
GENERATOR_LIMIT = 0.9
"""A generator that uses this share of a core was the limit, not the server."""


class WrongAnswers(Exception):
    """Requests got other answers than those to be measured."""


@dataclass(frozen=True)
class Sample:
    """One kind of request, sent for a while; processor times are seconds a request."""

    rate: float
    web_cpu_s: float
    redis_cpu_s: float
    database_cpu_s: float
    generator_load: float
    hits: Hits = field(repr=False)

    @property
    def cpu_s(self) -> float:
        return self.web_cpu_s + self.redis_cpu_s + self.database_cpu_s


@dataclass(frozen=True)
class Run:
    """What all measures need."""

    plan: Plan
    site: Site
    web: Web
    generator: Executor
    progress: Progress

    def steps(self, items: Sequence[Item], *, what: str) -> Iterator[Item]:
        """Yield the items and show the progress."""
        yield from self.progress.track(items, description=what)

    def start(self, shot: Shot) -> Future[Hits]:
        """Let the generator fire without waiting for it."""
        return self.generator.submit(fire, shot)

    def saturate(self, requests: Sequence[bytes], *, expect: int, again: bool) -> Sample:
        """Send as many as the server can answer.

        :raises WrongAnswers: one had another status than expected.
        """
        plan = self.plan
        shot = Shot(self.web.port, requests, plan.connections, DEPTH, plan.shot_s, again)
        return self.sample(shot, web=self.web, expect=expect)

    def sample(self, shot: Shot, *, web: Web, expect: int) -> Sample:
        """Fire, and return the cost.

        :raises WrongAnswers: one had another status than expected.
        """
        parts = (web.pids, [redis_pid()], [database_pid()])
        before = [cpu_s(pids) for pids in parts]
        hits = self.start(shot).result()
        after = [cpu_s(pids) for pids in parts]
        if set(hits.statuses()) != {expect}:
            raise WrongAnswers(f"statuses {dict(hits.statuses())}, where {expect} was expected")
        count = len(hits.answers)
        of_web, of_redis, of_database = (
            (b - a) / count for a, b in zip(before, after, strict=True)
        )
        return Sample(hits.rate, of_web, of_redis, of_database, hits.generator_load, hits)


def run_on(site: Site, plan: Plan, work: Callable[[Run], Result]) -> Result:
    """Migrate the site, start its web server and a load generator, and work with them."""
    call_command("migrate", interactive=False, verbosity=0)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    progress = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True))
    with progress, web(site) as server, spawned(1) as generator:
        return work(Run(plan, site, server, generator, progress))


def redis_pid() -> int:
    return int(ledger_connection().info("server")["process_id"])


def database_pid() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@pid_file")
        return int(Path(cursor.fetchone()[0]).read_text())
