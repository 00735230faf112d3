"""One run: the shop's processes, the load generator and the progress.

``bench/__main__.py`` started the servers. Web server, worker and beat run as ``script/server`` runs
them, except that nothing restarts them.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from django.core.management import call_command
from django.db import connection
from servers import (
    BEHIND,
    CannotRun,
    celery,
    free_port,
    granian,
    granian_wsgi,
    part,
    tail,
    web_answers,
)
from tqdm import tqdm

from bench.around.measuring import sql
from bench.processes import cpu_spent, family_of, spawned
from bench.sale.generator import Crowd, Hits, Shot, fire
from bench.sale.plan import THREADS, WORKERS, Plan
from lab.waiting import wait_until
from seckill_site.redis.ledger_connection import ledger_connection

Item = TypeVar("Item")
ROOT = Path(__file__).resolve().parents[2]
START_S = 60.0
GENERATOR_LIMIT = 0.9
"""Share of a core from which the generator is the limit, not the server."""


class WrongAnswers(Exception):
    """Requests got answers other than the expected ones."""


@dataclass(frozen=True)
class Site:
    """The settings of a shop; site 0 is that of the environment."""

    number: int
    environ: dict[str, str]

    @property
    def scratch(self) -> Path:
        return Path(self.environ["SECKILL_SCRATCH"])


@dataclass(frozen=True)
class Web:
    """A running web server."""

    port: int
    pids: Sequence[int]


@dataclass(frozen=True)
class Sample:
    """One kind of request, sent for a while; processor times are seconds a request."""

    hits: Hits
    web_cpu_s: float
    redis_cpu_s: float
    database_cpu_s: float

    @property
    def cpu_s(self) -> float:
        return self.web_cpu_s + self.redis_cpu_s + self.database_cpu_s


@dataclass(frozen=True)
class Run:
    """The context of all measurements: ``web`` is the shop's, ``plain`` is Django alone.

    ``web`` has the front door, except in a run without: then both are the same.
    """

    plan: Plan
    site: Site
    web: Web
    plain: Web
    generator: Executor
    """Two processes, for two shots at a time."""

    def steps(self, items: Sequence[Item], *, what: str) -> Iterator[Item]:
        """Yield the items and show the progress."""
        yield from tqdm(items, desc=what, disable=None)

    def start(self, shot: Shot | Crowd) -> Future[Hits]:
        """Let the generator fire without waiting for it."""
        return self.generator.submit(fire, shot)

    def parts(self, web: Web) -> list[Sequence[int]]:
        """Return the processes of the web server, of Redis and of MariaDB."""
        mariadb = int(Path(sql("SELECT @@pid_file")[0][0]).read_text())
        redis = int(ledger_connection().info("server")["process_id"])
        return [web.pids, [redis], [mariadb]]

    def sample(self, shot: Shot, *, web: Web, expect: int) -> Sample:
        """Fire, and return the cost.

        :raises WrongAnswers: an answer had an unexpected status.
        """
        with cpu_spent(*self.parts(web)) as spent:
            hits = self.start(shot).result()
        expect_status(hits, expect)
        return Sample(hits, *(it / len(hits.answers) for it in spent))

    def sample_warm(self, shot: Shot, *, web: Web, expect: int) -> Sample:
        """Warm up with the first requests, then measure the others, or all of them again."""
        count = self.plan.warm_up
        warm_up = replace(shot, requests=shot.requests[:count], again=False)
        self.sample(warm_up, web=web, expect=expect)
        rest = shot.requests if shot.again else shot.requests[count:]
        return self.sample(replace(shot, requests=rest), web=web, expect=expect)


def expect_status(hits: Hits, status: int) -> None:
    """Raise if any answer has another status.

    :raises WrongAnswers: one has.
    """
    if set(hits.statuses()) != {status}:
        raise WrongAnswers(f"statuses {dict(hits.statuses())}, where {status} was expected")


def expect_soon(condition: Callable[[], object], failure: str, *, within_s: float) -> None:
    """Wait until a condition holds.

    :raises WrongAnswers: it does not in time; ``failure`` says what that means.
    """
    if not wait_until(condition, within_s=within_s, every_s=0.02):
        raise WrongAnswers(f"{failure} within {within_s:.0f} s")


@contextmanager
def run_on_shop(plan: Plan, *, front_door: bool = True) -> Iterator[Run]:
    """Migrate the shop of this process; start its web servers and a load generator."""
    call_command("migrate", interactive=False, verbosity=0)
    call_command("migrate", "classic", run_syncdb=True, verbosity=0)  # it has no migrations
    call_command("collectstatic", interactive=False, verbosity=0)  # pages name them by their hashes
    # The same users buy in many rows and never pay; their orders are counted all the same.
    site = Site(0, os.environ | {"SECKILL_UNPAID_ORDERS": "1000000"})
    with (
        _plain(site) as plain,
        web(site) if front_door else nullcontext(plain) as server,
        spawned(2) as generator,
    ):
        yield Run(plan, site, server, plain, generator)


# --- The shop's processes -------------------------------------------------------------------------


def another(number: int) -> Site:
    """Make a site with three Redis databases and a database of its own, on the same servers.

    The database has empty copies of this process's tables, without foreign keys.
    """
    environ, database = dict(os.environ), f"test_{number}"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
        for table in connection.introspection.table_names(cursor):
            cursor.execute(f"CREATE TABLE {database}.{table} LIKE {table}")
    environ["DATABASE_URL"] = urlsplit(environ["DATABASE_URL"])._replace(path=database).geturl()
    for offset, name in enumerate(("REDIS_URL", "CACHE_URL", "CELERY_BROKER_URL")):
        url = urlsplit(environ[name])
        environ[name] = url._replace(path=f"/{3 * number + offset}").geturl()
    return Site(number, environ)


def web(site: Site, *options: str) -> AbstractContextManager[Web]:
    """Run the front door as the shop does, as a part with these options."""
    command = partial(granian, "127.0.0.1", workers=WORKERS)
    return serving(site, f"web-{site.number}", command, workers=WORKERS, options=options)


def _plain(site: Site) -> AbstractContextManager[Web]:
    """Run Django alone, for what the shop is compared with."""
    command = partial(granian_wsgi, "127.0.0.1", workers=WORKERS, threads=THREADS)
    return serving(site, f"plain-{site.number}", command, workers=WORKERS)


@contextmanager
def serving(
    site: Site,
    name: str,
    command: Callable[[int], list[str]],
    *,
    workers: int = 0,
    options: Sequence[str] = (),
) -> Iterator[Web]:
    """Run a web server on a free port; wait for this many workers of granian, which logs them.

    Each worker has a socket of its own: without the wait, the first would get all connections.
    """
    port = free_port()

    def is_up(log: bytes) -> bool:
        return log.count(b"Started worker-") >= workers and web_answers(port)

    with _process(site, name, command(port), is_up, *options) as processes:
        yield Web(port, processes)


@contextmanager
def back_half(site: Site, workers: Sequence[str] = ("celery",)) -> Iterator[list[int]]:
    """Run workers, each for these queues, beat, and the classic design's consumer.

    Yield the processes of the workers.
    """
    command = ["django", "consume_classic"]
    consumer = _process(site, "consumer", command, lambda log: True, *BEHIND)
    with ExitStack() as stack:
        pids: list[int] = []
        for queues in workers:
            options = ["--queues", queues, "--hostname", f"{queues}@%h"]
            pids += stack.enter_context(celery_part(site, "worker", *options, log=queues))
        stack.enter_context(celery_part(site, "beat"))
        stack.enter_context(consumer)
        yield pids


def celery_part(
    site: Site, name: str, *options: str, log: str = ""
) -> AbstractContextManager[list[int]]:
    """Run a worker until it consumes, or beat; its first process is the wrapper."""
    command = [*celery()[name], *options]

    def is_up(log: bytes) -> bool:
        return name == "beat" or b" ready." in log

    return _process(site, log or name, command, is_up, *BEHIND)


@contextmanager
def _process(
    site: Site, name: str, command: Sequence[str], is_up: Callable[[bytes], bool], *options: str
) -> Iterator[list[int]]:
    """Run a module as a part of the shop; yield the ids of its processes once it is up.

    :raises CannotRun: it did not start; the text has the end of its log.
    """
    log = site.scratch / f"{name}.log"
    with log.open("wb") as output:
        environ = {**site.environ, "SECKILL_LOG_LEVEL": "INFO"}  # as in a real run
        popen = {"cwd": ROOT, "env": environ, "stdout": output, "stderr": output}
        with part(name, [sys.executable, "-m", *command], *options, **popen) as process:
            deadline = time.monotonic() + START_S
            while not is_up(log.read_bytes()):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise CannotRun(f"{name}: {tail(log)}")
                time.sleep(0.05)
            try:
                yield family_of(process.pid)
            except Exception as error:
                error.add_note(f"The log of {name} ends: {tail(log)}")
                raise
