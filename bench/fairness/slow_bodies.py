"""Orders while connections send bodies that never end, a byte at a time.

Each connection names a body of a thousand bytes and sends one every while, until the server ends
it; then another takes its place. All send to the path of orders.
"""

import socket
import time
from collections.abc import Sequence

from bench.sale.generator import Hits
from bench.sale.report import Line
from bench.sale.run import Run
from bench.sale.sign_ins import WARM_UP_S, flood_lines, in_floods, send_orders

CONNECTIONS = 200
BODY = 1_000
EVERY_S = 0.2
HEAD = (
    "POST /vouchers/1/orders/ HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    f"Content-Length: {BODY}\r\n\r\n"
).encode()


def measure(run: Run) -> list[Line]:
    alone, beside, ended = in_floods(run, _order_in_flood, what="orders, slow bodies")
    note = f"{CONNECTIONS} connections, a byte each {EVERY_S} s; the server ended {sum(ended):,}"
    return flood_lines("slow bodies", alone, beside, note=note)


def _order_in_flood(run: Run, orders: Sequence[bytes]) -> tuple[int, Hits]:
    """Return how many connections the server ended, and the answers to the orders."""
    flood = run.generator.submit(send_slowly, run.web.port, WARM_UP_S + run.plan.flood_s)
    time.sleep(WARM_UP_S)
    busy = send_orders(run, orders)
    return flood.result(), busy


def send_slowly(port: int, seconds: float) -> int:
    """Hold the connections for ``seconds``; return how many the server closed.

    One plain loop, so that little of the machine's time is the sender's own.
    """
    until = time.monotonic() + seconds
    held: list[socket.socket] = []
    ended = 0
    while time.monotonic() < until:
        turn_ends = time.monotonic() + EVERY_S
        kept = [it for it in held if _send_byte(it)]
        ended += len(held) - len(kept)
        held = kept + [_connect(port) for _ in range(CONNECTIONS - len(kept))]
        time.sleep(max(0.0, turn_ends - time.monotonic()))
    for connection in held:
        connection.close()
    return ended


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(HEAD)
    connection.setblocking(False)
    return connection


def _send_byte(connection: socket.socket) -> bool:
    """Send a byte of the body; return whether the server has not answered yet, and so ended it."""
    try:
        connection.send(b"{")
        connection.recv(1)
    except BlockingIOError:
        return True
    except OSError:
        pass
    connection.close()
    return False
