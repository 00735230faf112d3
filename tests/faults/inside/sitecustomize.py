"""What a test puts into the children of a worker: one dies at a failpoint, an order kills.

Python imports this by its name from ``PYTHONPATH``. In ``FAULT_DIRECTORY`` may be these files:

``failpoint``
    The name of a point. The first child that reaches it takes the file away and dies; the others,
    and so the one that takes its place, live.
``deadly``
    ``<order id> kill`` or ``<order id> hang``: what happens to a child that is about to make a live
    order of it. Read when the child is forked.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

DIRECTORY = Path(os.environ["FAULT_DIRECTORY"])


def die_at(name: str) -> None:
    """Die at the failpoint that the test names, unless another child was faster."""
    try:
        wanted = (DIRECTORY / "failpoint").read_text()
        if wanted == name:
            (DIRECTORY / "failpoint").rename(DIRECTORY / "taken")
            os.kill(os.getpid(), signal.SIGKILL)
    except FileNotFoundError:
        return


def prepare_child() -> None:
    """Arm the child that was forked just now."""
    failpoints: Any = sys.modules.get("seckill_site.failpoints")
    fulfillment: Any = sys.modules.get("orders.fulfilment.worker")
    if failpoints is None or fulfillment is None:
        return
    failpoints.tell(die_at)
    if (DIRECTORY / "deadly").exists():
        order_id, how = (DIRECTORY / "deadly").read_text().split()
        poison(fulfillment, int(order_id), how)


def poison(fulfillment: Any, order_id: int, how: str) -> None:
    """Let a batch with this order kill or hold up its process, unless it is to be refused."""
    write_batch = fulfillment.write_batch

    def poisoned(**kwargs: Any) -> Any:
        deadly = order_id in {entry.order_id for entry in kwargs["entries"]}
        if deadly and kwargs.get("refuse_as") is None:
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(3_600)
        return write_batch(**kwargs)

    fulfillment.write_batch = poisoned


os.register_at_fork(after_in_child=prepare_child)
