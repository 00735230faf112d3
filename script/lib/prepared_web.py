"""The web application of the embedded run: loaded while the shop is prepared, served from then on.

Until then connections wait at the socket that granian has opened. ``asgi`` and ``wsgi`` are those of
``seckill_site``.
"""

import time
from importlib import import_module
from pathlib import Path
from typing import Any

PREPARED = Path(__file__).resolve().parents[2] / ".run" / "prepared"


def __getattr__(name: str) -> Any:
    application = import_module(f"seckill_site.{name}").application
    while not PREPARED.exists():
        time.sleep(0.02)
    return application
