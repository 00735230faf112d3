"""Profiles of requests: the WSGI application alone, in this process, under a profiler.

The profiler slows down Python but not waiting, so its shares show what to look at, not how much
there is to gain; the processor time beside them is measured without it.
"""

import cProfile
import io
import pstats
import sys
import time
from collections.abc import Sequence
from http.client import parse_headers
from itertools import cycle, islice
from typing import Any
from wsgiref.util import setup_testing_defaults

from bench.sale.requests import EMPTY, KINDS
from bench.sale.run import Run
from seckill_site.web.fast_path import Application
from seckill_site.wsgi import application

MOST_LINES = 40


def profile(run: Run) -> str:
    """Return, for each kind of request, its processor time and its most expensive functions."""
    count = run.plan.single_requests
    kinds = run.steps([EMPTY, *KINDS], what="profile")
    parts = [_titled(kind.name, kind.make(run), count, again=kind.again) for kind in kinds]
    return "\n".join(parts)


def _titled(name: str, requests: Sequence[bytes], count: int, *, again: bool) -> str:
    """Warm up with a third of the requests, time the next third, and profile the last."""
    asked = list(islice(cycle(requests), 3 * count)) if again else requests[: 3 * count]
    size = len(asked) // 3
    _ask(application, asked[:size])
    seconds = _ask(application, asked[size : 2 * size])
    profiler = cProfile.Profile()
    profiler.runcall(_ask, application, asked[2 * size :])
    table = io.StringIO()
    pstats.Stats(profiler, stream=table).sort_stats("cumulative").print_stats(MOST_LINES)
    title = f"== {name}: {seconds / size * 1e6:.0f} µs of this process; {size} requests profiled"
    return f"{title}\n{table.getvalue()}"


def _ask(app: Application, requests: Sequence[bytes]) -> float:
    """Send the requests in turn; return the processor time of this process."""
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
    stream = io.BytesIO(request)
    method, path, protocol = stream.readline().decode().split()
    headers = parse_headers(stream)  # what is left is the body
    environ: dict[str, Any] = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "SERVER_NAME": "localhost",
        "SERVER_PROTOCOL": protocol,
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.input": stream,
        "wsgi.errors": sys.stderr,
    }
    for name, value in headers.items():
        key = name.upper().replace("-", "_")
        environ[key if key.startswith("CONTENT_") else f"HTTP_{key}"] = value
    setup_testing_defaults(environ)
    return environ
