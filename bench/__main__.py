"""Run one benchmark beside private servers that live in a scratch directory.

``script/bench`` becomes this program, with ``script/lib`` on its path. Every benchmark gets the
shop's settings, and a Redis, also in ``BENCH_REDIS_URL``. Only for a benchmark of the whole shop is
there a MariaDB where the settings say. All servers end with this process.
"""

import sys

from scratch import run, running, scratch_directory, settings_of
from servers import BEHIND, PART, MariaDB, Redis

OF_THE_SHOP = {"capacity", "fairness", "sale", "servers"}


class MariaDBBehind(MariaDB):
    """A MariaDB that gives way to web and Redis, as in ``script/server`` and ``deploy/``."""

    def prepare(self) -> list[str]:
        return [sys.executable, PART, *BEHIND, "mariadb", *super().prepare()]


def main(name: str, *arguments: str) -> int:
    with scratch_directory("bench") as scratch:
        redis, mariadb = Redis(scratch / "redis"), MariaDBBehind(scratch / "mysql")
        servers = (redis, mariadb) if name in OF_THE_SHOP else (redis,)
        metrics = scratch / "metrics"
        metrics.mkdir()
        with running(scratch, *servers) as wait:
            wait()
            settings = {
                **settings_of(scratch, redis, mariadb),
                "BENCH_REDIS_URL": redis.url(),
                "DJANGO_SETTINGS_MODULE": "bench.settings",
                "PROMETHEUS_MULTIPROC_DIR": str(metrics),
                "SECKILL_LOG_LEVEL": "WARNING",
                "PYTHONWARNINGS": "ignore:You're running the worker with superuser privileges",
            }
            return run(name, [sys.executable, "-m", f"bench.{name}", *arguments], settings)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
