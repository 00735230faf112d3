"""Health at the front door: answered even while no thread of Django is free, and the loop's lag."""

import asyncio
import json

from seckill_site.front_door.requests import Environ
from seckill_site.front_door.threads import threads
from seckill_site.metrics import histogram
from seckill_site.web.responses import Answer

PROBES = frozenset({"/healthz", "/readyz"})
"""The paths that are asked from inside the network, also without HTTPS."""

LONGEST_WAIT_S = 1.0
"""A process in which no thread becomes free for this long is not ready."""

LAG_EVERY_S = 1.0


async def healthz(environ: Environ) -> Answer | None:
    """Answer that the process is alive."""
    if environ["PATH_INFO"] != "/healthz" or environ["REQUEST_METHOD"] != "GET":
        return None
    return Answer(200, "ok\n", (("Content-Type", "text/plain"),))


async def readyz(environ: Environ) -> Answer | None:
    """Answer that no thread is free; else None, so that Django looks at everything else."""
    if environ["PATH_INFO"] != "/readyz" or await threads().become_free(LONGEST_WAIT_S):
        return None
    content = json.dumps({"ready": False, "threads": "unavailable"})
    return Answer(503, content, (("Cache-Control", "no-store"), ("Retry-After", "2")))


async def watch_lag() -> None:
    """Measure by how much the loop is late, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due_at = loop.time() + LAG_EVERY_S
        await asyncio.sleep(LAG_EVERY_S)
        histogram("loop_lag").observe(max(0.0, loop.time() - due_at))
