"""Where a request's time goes: the WSGI application alone, in this process, under a profiler.

The profiler makes Python slower and waiting not, so its shares say what to look at, not how much
there is to win; the processor time beside them is measured without it.
"""

from __future__ import annotations

import cProfile
import io
import pstats
import sys
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from bench.sale import wire
from bench.sale.answering import KINDS
from bench.sale.course import Course
from seckill_site.web.fast_path import Application
from seckill_site.wsgi import application

ROOT = Path(__file__).resolve().parents[2]
MOST_LINES = 40


def profile(course: Course) -> str:
    """Return, for each kind of request, its processor time and its most expensive functions."""
    count = course.plan.single_requests
    parts = [_titled("an empty view", [wire.EMPTY], count, again=True)]
    for kind in course.steps(KINDS, what="profile"):
        parts.append(_titled(kind.name, kind.make(course), count, again=kind.again))
    return "\n".join(parts)


def _titled(name: str, requests: Sequence[bytes], count: int, *, again: bool) -> str:
    """Ask a third of the requests to get warm, time the next, and profile the last."""
    asked = list(islice(cycle(requests), 3 * count)) if again else requests[: 3 * count]
    size = len(asked) // 3
    _ask(application, asked[:size])
    seconds = _ask(application, asked[size : 2 * size])
    profiler = cProfile.Profile()
    profiler.runcall(_ask, application, asked[2 * size :])
    microseconds = seconds / size * 1e6
    return f"== {name}: {microseconds:.0f} µs of this process\n{_costs(profiler, size)}"


def _costs(profiler: cProfile.Profile, count: int) -> str:
    """Return a line a function: microseconds a request inside it, and with all that it calls."""
    stats = pstats.Stats(profiler, stream=io.StringIO())
    found = stats.stats.items()  # type: ignore[attr-defined]
    by_cumulative = sorted(found, key=lambda item: item[1][3], reverse=True)[:MOST_LINES]
    lines = ["   own     all  calls  function"]
    for (path, line, name), (_, calls, own_s, all_s, _) in by_cumulative:
        own, everything = (seconds / count * 1e6 for seconds in (own_s, all_s))
        where = f"{_short(path)}:{line} {name}" if line else name
        lines.append(f"{own:6.0f}  {everything:6.0f}  {calls / count:5.1f}  {where}")
    return "\n".join([*lines, ""])


def _short(path: str) -> str:
    return path.split("site-packages/")[-1].removeprefix(f"{ROOT}/")


def _ask(app: Application, requests: Sequence[bytes]) -> float:
    """Ask the application in turn and return the processor time of this process."""
    environs = [environ_of(request) for request in requests]
    began_at = time.process_time()
    for environ in environs:
        answer = app(environ, lambda *_: None)
        b"".join(answer)
        if hasattr(answer, "close"):
            answer.close()
    return time.process_time() - began_at


def environ_of(request: bytes) -> dict[str, Any]:
    """Return a packed request as a WSGI server would pass it on."""
    head, _, body = request.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    method, path, protocol = first.split()
    environ = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "QUERY_STRING": "",
        "SCRIPT_NAME": "",
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "SERVER_PROTOCOL": protocol,
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
    }
    for line in lines:
        name, _, value = line.partition(": ")
        key = name.upper().replace("-", "_")
        environ[key if key.startswith("CONTENT_") else f"HTTP_{key}"] = value
    return environ
