"""The web servers to choose from, each with its processes and threads.

The shop's own runs the front door; the others run Django alone. uwsgi is left out because it has no
wheel and needs a compiler.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

from servers import granian_wsgi

from bench.sale.plan import THREADS, WORKERS
from bench.sale.run import Site, Web, serving

APPLICATION = "seckill_site.wsgi:application"
MOST_CONNECTIONS = "4096"


@dataclass(frozen=True)
class Choice:
    """A web server's program, its processes, and the threads in each."""

    program: str
    workers: int
    threads: int
    door: bool = False

    @property
    def name(self) -> str:
        program = "front door" if self.door else self.program
        return f"{program} {self.workers}×{self.threads}"

    @property
    def is_installed(self) -> bool:
        return find_spec(self.program) is not None

    def run(self, site: Site) -> AbstractContextManager[Web]:
        command = partial(COMMANDS[self.program], workers=self.workers, threads=self.threads)
        counted = self.workers if self.program == "granian" else 0
        return serving(site, self.name, command, workers=counted)


def _gunicorn(port: int, workers: int, threads: int) -> list[str]:
    return [
        *("gunicorn", "--no-control-socket", "--bind", f"127.0.0.1:{port}"),
        *("--worker-class", "gthread", "--workers", str(workers), "--threads", str(threads)),
        *("--keep-alive", "60", "--backlog", MOST_CONNECTIONS),
        *("--worker-connections", MOST_CONNECTIONS, APPLICATION),
    ]


def _waitress(port: int, workers: int, threads: int) -> list[str]:
    """Return waitress's command; waitress always has one process."""
    return [
        *("waitress", f"--listen=127.0.0.1:{port}", f"--threads={threads}"),
        *(f"--backlog={MOST_CONNECTIONS}", f"--connection-limit={MOST_CONNECTIONS}"),
        *("--asyncore-use-poll", APPLICATION),  # select() takes 1,024 connections at most
    ]


COMMANDS: dict[str, Callable[..., list[str]]] = {
    "granian": partial(granian_wsgi, "127.0.0.1"),
    "gunicorn": _gunicorn,
    "waitress": _waitress,
}

OF_THE_SHOP = Choice("granian", WORKERS, THREADS, door=True)
ALL = (
    Choice("granian", 1, 4),
    Choice("granian", 2, 1),
    Choice("granian", 2, 2),
    Choice("granian", 2, 4),
    OF_THE_SHOP,
    Choice("granian", 2, 8),
    Choice("granian", 4, 2),
    Choice("gunicorn", 2, 4),
    Choice("waitress", 1, 8),
)
FEW = (Choice("granian", 1, 1), OF_THE_SHOP, Choice("gunicorn", 2, 4), Choice("waitress", 1, 8))
"""Enough servers to show that the benchmark works."""
