"""Run one benchmark beside private servers that live in a scratch directory.

``script/bench`` becomes this program, with ``script/lib`` on its path. Every benchmark gets the
shop's settings, and a Redis, also in ``BENCH_REDIS_URL``. Only for a benchmark of the whole shop is
there a MariaDB where the settings say. All servers end with this process. The servers of a shop
that takes minutes to fill are kept: those of the next run find its data.
"""

import argparse
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from scratch import ROOT, run, running, scratch_directory, settings_of
from servers import BEHIND, PART, MariaDB, Redis

OF_THE_SHOP = {"capacity", "fairness", "sale", "servers", "shop"}
KEPT = "shop"
KEPT_OPTIONS = (
    "--innodb-buffer-pool-size=1G",
    "--innodb-log-file-size=1G",
    "--innodb-sort-buffer-size=64M",  # of indexes that are made after the rows
    "--innodb-flush-log-at-trx-commit=2",
)


class MariaDBBehind(MariaDB):
    """A MariaDB that gives way to web and Redis, as in ``script/server`` and ``deploy/``."""

    def prepare(self) -> list[str]:
        return [sys.executable, PART, *BEHIND, "mariadb", *super().prepare()]


@contextmanager
def kept_directory(arguments: Sequence[str]) -> Iterator[Path]:
    """Yield the directory of a shop of this size, without one that was not filled to its end."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--orders", type=int, default=5_000_000)
    kept = ROOT / ".run" / f"bench-shop-{parser.parse_known_args(arguments)[0].orders}"
    if not (kept / "filled").exists():
        shutil.rmtree(kept, ignore_errors=True)
    for name in ("metrics", "static"):
        shutil.rmtree(kept / name, ignore_errors=True)
    kept.mkdir(parents=True, exist_ok=True)
    yield kept


def main(name: str, *arguments: str) -> int:
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_directory("bench"))
        options: Sequence[str] = ()
        if name == KEPT:
            scratch, options = stack.enter_context(kept_directory(arguments)), KEPT_OPTIONS
        redis = Redis(scratch / "redis")
        mariadb = MariaDBBehind(scratch / "mysql", options=options)
        servers = (redis, mariadb) if name in OF_THE_SHOP else (redis,)
        metrics = scratch / "metrics"
        metrics.mkdir()
        with running(scratch, *servers) as wait:
            wait()
            settings = {
                **settings_of(scratch, redis, mariadb),
                "BENCH_REDIS_URL": redis.url(),
                "DJANGO_SETTINGS_MODULE": "seckill_site.settings"
                if name == KEPT
                else "bench.settings",
                "PROMETHEUS_MULTIPROC_DIR": str(metrics),
                "SECKILL_LOG_LEVEL": "WARNING",
                "PYTHONWARNINGS": "ignore:You're running the worker with superuser privileges",
            }
            return run(name, [sys.executable, "-m", f"bench.{name}", *arguments], settings)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
