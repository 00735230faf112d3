"""Run one benchmark beside a private Redis that lives in a scratch directory.

``script/bench`` becomes this program, with ``script/lib`` on its path. The benchmark finds the
server in ``BENCH_REDIS_URL``, and both end with this process.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from scratch import ASKED_TO_END, ROOT, end, show_log
from servers import CannotRun, Redis, part, wait_for


def main() -> int:
    for signum in ASKED_TO_END:
        signal.signal(signum, end)
    scratch = Path(tempfile.mkdtemp(prefix="seckill-bench-"))
    try:
        return run(sys.argv[1], sys.argv[2:], scratch)
    except CannotRun as reason:
        sys.stderr.write(f"bench: {reason}\n")
        show_log(scratch / "servers.log")
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def run(name: str, arguments: list[str], scratch: Path) -> int:
    redis = Redis(scratch / "redis")
    with (
        (scratch / "servers.log").open("wb") as log,
        part("redis", redis.prepare(), cwd=redis.directory, stdout=log, stderr=log) as server,
    ):
        wait_for(redis.url(0), while_true=lambda: server.poll() is None)
        command = [sys.executable, "-m", f"bench.{name}", *arguments]
        environ = {**os.environ, "BENCH_REDIS_URL": redis.url(0)}
        with part(name, command, "--may-end", cwd=ROOT, env=environ) as benchmark:
            return benchmark.wait()


if __name__ == "__main__":
    sys.exit(main())
