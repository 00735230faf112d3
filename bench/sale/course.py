"""One run: its plan, its processes, and how far it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from django.db import connection
from rich.progress import Progress

from bench.sale.generator import Hits, Shot, fire
from bench.sale.places import Place, Web
from bench.sale.plan import DEPTH, Plan
from bench.sale.processor import used_s
from seckill_site.ledger_connection import ledger_connection

Item = TypeVar("Item")
GENERATOR_LIMIT = 0.9
"""A generator that uses so much of a core was the limit, not the server."""


class WrongAnswers(Exception):
    """Requests were answered otherwise than the measure means."""


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

    @property
    def generator_was_the_limit(self) -> bool:
        return self.generator_load >= GENERATOR_LIMIT


@dataclass(frozen=True)
class Course:
    """What all measures need."""

    plan: Plan
    place: Place
    web: Web
    generator: Executor
    progress: Progress

    def steps(self, items: Sequence[Item], *, what: str) -> Iterator[Item]:
        """Yield the items and show how far the run is."""
        yield from self.progress.track(items, description=what)

    def begin(self, shot: Shot) -> Future[Hits]:
        """Let the generator fire, and go on meanwhile."""
        return self.generator.submit(fire, shot)

    def saturate(
        self, requests: Sequence[bytes], *, expect: int, again: bool, seconds: float | None = None
    ) -> Sample:
        """Send as many as the server can answer.

        :raises WrongAnswers: one had another status than expected.
        """
        plan = self.plan
        shot = Shot(
            port=self.web.port,
            requests=requests,
            connections=plan.connections,
            depth=DEPTH,
            seconds=plan.shot_s if seconds is None else seconds,
            again=again,
        )
        return self.sample(shot, web=self.web, expect=expect)

    def sample(self, shot: Shot, *, web: Web, expect: int) -> Sample:
        """Fire, and see what it cost.

        :raises WrongAnswers: one had another status than expected.
        """
        parts = (web.pids, [redis_pid()], [database_pid()])
        before = [used_s(pids) for pids in parts]
        hits = self.generator.submit(fire, shot).result()
        after = [used_s(pids) for pids in parts]
        if set(hits.statuses()) != {expect}:
            raise WrongAnswers(f"statuses {dict(hits.statuses())}, where {expect} was expected")
        count = len(hits.answers)
        costs = [(b - a) / count for a, b in zip(before, after, strict=True)]
        return Sample(hits.rate, *costs, hits.generator_load, hits)


def redis_pid() -> int:
    return int(ledger_connection().info("server")["process_id"])


def database_pid() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@pid_file")
        return int(Path(cursor.fetchone()[0]).read_text())
