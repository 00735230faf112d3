"""The benchmark ``locks``; ``script/bench`` starts it."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.locks.contention import measure_crowd, measure_wake_ups
from bench.locks.event_loop import measure_event_loops
from bench.locks.libraries import ALL, LEASE_S, versions
from bench.locks.run import FULL, QUICK, Better, Figure, Run, control_of, markdown
from bench.locks.stopped import measure_stopped
from bench.locks.uncontended import measure_cycles, measure_held
from bench.processes import spawned
from bench.tables import write_part

MEASURES = (
    measure_cycles,
    measure_crowd,
    measure_wake_ups,
    measure_held,
    measure_stopped,
    measure_event_loops,
)

NOTES = """\
In brackets: ours / theirs. Hand-over: from the start of a release until another thread has the
lock; a lock that its last holder mostly takes again has few of them, so read it with the busiest
thread. Commands: those that clients send, without the calls of a script inside Redis. Row 5: the
holder is stopped (SIGSTOP) just after it took the lock, and goes on when another has it."""


def main() -> int:
    """Run the benchmark; return 1 if any library let two holders meet."""
    parser = argparse.ArgumentParser(prog="script/bench locks")
    parser.add_argument("--quick", action="store_true", help="show that it runs, not how fast")
    parser.add_argument("--json", action="store_true", help="write JSON instead of the table")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write the table into a document"
    )
    options = parser.parse_args()
    plan, url = QUICK if options.quick else FULL, os.environ["BENCH_REDIS_URL"]
    with spawned(4) as pool:
        run = Run(plan, url, pool)
        figures = [figure for measure in MEASURES for figure in measure(run)]
    with control_of(url) as control:
        server = control.info("server")["redis_version"]
    conditions = {
        "python": platform.python_version(),
        "redis": server,
        "cores": os.cpu_count(),
        "lease_s": LEASE_S,
        "plan": asdict(plan),
        "versions": versions(),
    }
    as_text = as_json if options.json else as_markdown
    sys.stdout.write(as_text(figures, conditions) + "\n")
    if options.markdown:
        write_part(options.markdown, "locks", as_markdown(figures, conditions))
    return int(met(figures))


def met(figures: Sequence[Figure]) -> bool:
    """Return whether two holders were ever inside at once."""
    counts = [figure for figure in figures if figure.better is Better.ZERO]
    return any(isinstance(it, float) and it > 0 for of in counts for it in of.values.values())


def as_markdown(figures: Sequence[Figure], conditions: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {of}" for name, of in conditions["versions"].items())
    machine = (
        f"Redis {conditions['redis']} (append-only file, loopback), Python {conditions['python']}, "
        f"{conditions['cores']} cores; {packages}; lease {conditions['lease_s']} s "
        f"(row 4: {conditions['plan']['lease_s']} s), defaults else (redis-py: sleep=0.1)."
    )
    table = markdown(figures, [library.title for library in ALL])
    return "\n\n".join([table, machine, NOTES])


def as_json(figures: Sequence[Figure], conditions: dict[str, Any]) -> str:
    lines = [
        {
            "row": figure.row,
            "figure": figure.name,
            "better": figure.better.value,
            "values": figure.values,
            "ours_to_theirs": figure.ratios(),
        }
        for figure in figures
    ]
    report = {"figures": lines, "two_holders_met": met(figures), "conditions": conditions}
    return json.dumps(report, indent=2)


if __name__ == "__main__":
    sys.exit(main())
