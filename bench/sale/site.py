"""A site: one shop with its database, its Redis databases and the processes that serve it.

``bench/__main__.py`` started the servers. Web server, worker and beat run as ``script/server`` runs
them, except that nothing restarts them.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from servers import free_port, part

from bench.processes import family_of
from bench.sale.plan import THREADS, WORKERS

ROOT = Path(__file__).resolve().parents[2]
START_S = 60.0
APPLICATION = "seckill_site.wsgi:application"
GRANIAN_STARTED = b"Started worker-"


class NotStarted(Exception):
    """A part did not start; the text has the end of its log."""


@dataclass(frozen=True)
class Site:
    """The settings of a shop; site 0 is that of the environment."""

    number: int
    environ: dict[str, str]

    @property
    def scratch(self) -> Path:
        return Path(self.environ["SECKILL_SCRATCH"])

    @property
    def redis_url(self) -> str:
        return self.environ["REDIS_URL"]


@dataclass(frozen=True)
class Web:
    """A running web server."""

    port: int
    pids: Sequence[int]


def here() -> Site:
    """Return the site of this process."""
    return Site(0, dict(os.environ))


def another(number: int) -> Site:
    """Return a site with a database and three Redis databases of its own, on the same servers."""
    environ = dict(os.environ)
    database = urlsplit(environ["DATABASE_URL"])
    environ["BENCH_MODEL_DATABASE"] = database.path.strip("/")
    environ["DATABASE_URL"] = database._replace(path=f"/test_{number}").geturl()
    for offset, name in enumerate(("REDIS_URL", "CACHE_URL", "CELERY_BROKER_URL")):
        url = urlsplit(environ[name])
        environ[name] = url._replace(path=f"/{3 * number + offset}").geturl()
    return Site(number, environ)


def web(site: Site) -> AbstractContextManager[Web]:
    """Run granian with the workers and threads of the shop."""
    command = partial(granian, workers=WORKERS, threads=THREADS)
    return serving(site, f"web-{site.number}", command, workers=WORKERS)


@contextmanager
def serving(
    site: Site, name: str, command: Callable[[int], list[str]], *, workers: int = 0
) -> Iterator[Web]:
    """Run a web server on a free port; wait for this many workers of granian, which logs them.

    Each worker listens for itself: the first alone would get all connections.
    """
    port = free_port()

    def is_up(log: bytes) -> bool:
        return log.count(GRANIAN_STARTED) >= workers and _answers(port)

    with _process(site, name, command(port), is_up) as processes:
        yield Web(port, processes)


def granian(port: int, workers: int, threads: int) -> list[str]:
    """Return the command as in ``script/server``."""
    return [
        *("granian", "--interface", "wsgi", "--http", "1", "--no-ws"),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--workers", str(workers), "--blocking-threads", str(threads)),
        *("--backlog", "4096", "--backpressure", "4096"),
        *("--workers-kill-timeout", "5", APPLICATION),
    ]


@contextmanager
def back_half(site: Site) -> Iterator[None]:
    """Run a worker and beat, and the classic design's consumer."""
    celery = ["celery", "--app", "seckill_site", "--quiet"]
    worker = [*celery, "worker", "--loglevel", "INFO", "--concurrency", "2"]
    worker += ["--without-gossip", "--without-mingle"]
    beat = [*celery, "beat", "--schedule", str(site.scratch / "beat-schedule")]
    with ExitStack() as stack:
        stack.enter_context(_process(site, "worker", worker, lambda log: b" ready." in log))
        for name, command in (("beat", beat), ("consumer", ["django", "consume_classic"])):
            stack.enter_context(_process(site, name, command, lambda log: True))
        yield


@contextmanager
def _process(
    site: Site, name: str, command: Sequence[str], is_up: Callable[[bytes], bool]
) -> Iterator[list[int]]:
    """Run a module as a part of the shop; yield the ids of its processes once it is up."""
    log = site.scratch / f"{name}.log"
    with log.open("wb") as output:
        environ = {**site.environ, "SECKILL_LOG_LEVEL": "INFO"}  # as in a real run
        options = {"cwd": ROOT, "env": environ, "stdout": output, "stderr": output}
        with part(name, [sys.executable, "-m", *command], **options) as process:
            deadline = time.monotonic() + START_S
            while not is_up(log.read_bytes()):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise NotStarted(f"{name}: {_end_of(log)}")
                time.sleep(0.05)
            try:
                yield family_of(process.pid)
            except Exception as error:
                error.add_note(f"The log of {name} ends: {_end_of(log)}")
                raise


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


def _answers(port: int) -> bool:
    request = Request(f"http://127.0.0.1:{port}/healthz", headers={"Host": "localhost"})
    try:
        with urlopen(request, timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, HTTPException):
        return False
