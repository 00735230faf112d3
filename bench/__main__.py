"""Run one benchmark beside private servers that live in a scratch directory.

``script/bench`` becomes this program, with ``script/lib`` on its path. Every benchmark finds a
Redis in ``BENCH_REDIS_URL``. A benchmark of the whole shop also gets a MariaDB, and finds both in
the shop's own settings. All servers end with this process.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from scratch import ASKED_TO_END, ROOT, end, settings_of, show_log
from servers import CannotRun, MariaDB, Redis, part, wait_for

OF_THE_SHOP = {"sale", "servers"}


def main() -> int:
    for signum in ASKED_TO_END:
        signal.signal(signum, end)
    scratch = Path(tempfile.mkdtemp(prefix="seckill-bench-"))
    mariadb = MariaDB(scratch / "mysql")
    try:
        return run(sys.argv[1], sys.argv[2:], scratch, mariadb)
    except CannotRun as reason:
        sys.stderr.write(f"bench: {reason}\n")
        show_log(scratch / "servers.log")
        return 1
    finally:
        mariadb.clean_up()
        shutil.rmtree(scratch, ignore_errors=True)


def run(name: str, arguments: list[str], scratch: Path, mariadb: MariaDB) -> int:
    redis = Redis(scratch / "redis")
    environ = dict(os.environ)
    with (scratch / "servers.log").open("wb") as log, ExitStack() as stack:
        output = {"stdout": log, "stderr": log}
        command = redis.prepare()
        servers = [stack.enter_context(part("redis", command, cwd=redis.directory, **output))]
        urls = [redis.url(0)]
        if name in OF_THE_SHOP:
            servers.append(stack.enter_context(part("mariadb", mariadb.prepare(), **output)))
            urls.append(mariadb.url())
            environ |= shop_settings(redis, mariadb, scratch)
        wait_for(*urls, while_true=lambda: all(it.poll() is None for it in servers))
        environ["BENCH_REDIS_URL"] = redis.url(0)
        command = [sys.executable, "-m", f"bench.{name}", *arguments]
        with part(name, command, "--may-end", cwd=ROOT, env=environ) as benchmark:
            return benchmark.wait()


def shop_settings(redis: Redis, mariadb: MariaDB, scratch: Path) -> dict[str, str]:
    for directory in ("static", "metrics"):
        (scratch / directory).mkdir()
    return {
        **settings_of(redis, mariadb, scratch),
        "SECRET_KEY": "a key for benchmarks alone",
        "DJANGO_SETTINGS_MODULE": "bench.settings",
        "PROMETHEUS_MULTIPROC_DIR": str(scratch / "metrics"),
        "SECKILL_LOG_LEVEL": "WARNING",
        "PYTHONWARNINGS": "ignore:You're running the worker with superuser privileges",
    }


if __name__ == "__main__":
    sys.exit(main())
