"""Profiles of requests: the applications alone, in this process, under a profiler.

The profiler slows down Python but not waiting, so its shares show what to look at, not how much
there is to gain; the processor time beside them is measured without it.
"""

import asyncio
import cProfile
import io
import pstats
import time
from collections.abc import Sequence
from http.client import parse_headers
from itertools import cycle, islice
from typing import Any

from bench.sale.requests import EMPTY, KINDS
from bench.sale.run import Run
from seckill_site.asgi import application

MOST_LINES = 40


def profile(run: Run) -> str:
    """Return, for each kind of request, its processor time and its most expensive functions."""
    count = run.plan.single_requests
    kinds = run.steps([EMPTY, *KINDS], what="profile")
    with asyncio.Runner() as runner:
        parts = [
            _titled(runner, kind.name, kind.make(run), count, again=kind.again) for kind in kinds
        ]
    return "\n".join(parts)


def _titled(
    runner: asyncio.Runner, name: str, requests: Sequence[bytes], count: int, *, again: bool
) -> str:
    """Warm up with a third of the requests, time the next third, and profile the last."""
    asked = list(islice(cycle(requests), 3 * count)) if again else requests[: 3 * count]
    size = len(asked) // 3
    runner.run(_ask(asked[:size]))
    seconds = runner.run(_ask(asked[size : 2 * size]))
    profiler = cProfile.Profile()
    profiler.runcall(runner.run, _ask(asked[2 * size :]))
    table = io.StringIO()
    pstats.Stats(profiler, stream=table).sort_stats("cumulative").print_stats(MOST_LINES)
    title = f"== {name}: {seconds / size * 1e6:.0f} µs of this process; {size} requests profiled"
    return f"{title}\n{table.getvalue()}"


async def _ask(requests: Sequence[bytes]) -> float:
    """Send the requests in turn; return the processor time of this process."""
    prepared = [asgi_request(request) for request in requests]
    began_at = time.process_time()
    for scope, body in prepared:

        async def receive(body: bytes = body) -> dict[str, Any]:
            return {"type": "http.request", "body": body, "more_body": False}

        await application(scope, receive, _forget)
    return time.process_time() - began_at


async def _forget(message: dict[str, Any]) -> None:
    """Take a part of an answer, as a server would."""


def asgi_request(request: bytes) -> tuple[dict[str, Any], bytes]:
    """Return a packed request as an ASGI server would pass it on: its scope and its body."""
    stream = io.BytesIO(request)
    method, target, protocol = stream.readline().decode().split()
    path, _, query = target.partition("?")
    headers = parse_headers(stream)  # what is left is the body
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "http_version": protocol.removeprefix("HTTP/"),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 50_000),
        "server": ("localhost", 80),
    }
    return scope, stream.read()
