"""Orders while connections send bodies that never end, a byte at a time.

Each connection names a body of a thousand bytes and sends one every while, until the server ends
it; then another takes its place. All send to the path of orders.
"""

import asyncio
import time
from contextlib import suppress

from bench.sale.report import Line
from bench.sale.run import Run
from bench.sale.sign_ins import WARM_UP_S, flood_lines, refused_orders, send_orders

CONNECTIONS = 200
BODY = 1_000
EVERY_S = 0.2
HEAD = (
    "POST /vouchers/1/orders/ HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    f"Content-Length: {BODY}\r\n\r\n"
).encode()


def measure(run: Run) -> list[Line]:
    orders = refused_orders()
    alone, beside, ended = [], [], []
    for turn in run.steps(range(run.plan.repetitions + 1), what="orders, slow bodies"):
        quiet = send_orders(run, orders)
        flood = run.generator.submit(send_slowly, run.web.port, WARM_UP_S + run.plan.flood_s)
        time.sleep(WARM_UP_S)
        busy = send_orders(run, orders)
        count = flood.result()
        if turn:  # the first has warmed up the processes
            alone.append(quiet)
            beside.append(busy)
            ended.append(count)
    note = f"{CONNECTIONS} connections, a byte each {EVERY_S} s; the server ended {sum(ended):,}"
    return flood_lines("slow bodies", alone, beside, note=note)


def send_slowly(port: int, seconds: float) -> int:
    """Hold the connections for ``seconds``; return how many the server closed."""
    return asyncio.run(_hold_all(port, time.monotonic() + seconds))


async def _hold_all(port: int, until: float) -> int:
    return sum(await asyncio.gather(*(_hold(port, until) for _ in range(CONNECTIONS))))


async def _hold(port: int, until: float) -> int:
    ended = 0
    while time.monotonic() < until:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD)
        ending = asyncio.ensure_future(reader.read())  # all that the server says until it ends it
        with suppress(ConnectionError):
            for _ in range(BODY - 1):
                if ending.done() or time.monotonic() >= until:
                    break
                writer.write(b"{")
                await writer.drain()
                await asyncio.wait([ending], timeout=EVERY_S)
        ended += ending.done()
        ending.cancel()
        writer.close()
        with suppress(ConnectionError, asyncio.CancelledError):
            await writer.wait_closed()
    return ended
