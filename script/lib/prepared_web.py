"""The web application of the embedded run: loaded while the shop is prepared, served from then on.

Until then connections wait at the socket that granian has opened. ``asgi`` and ``wsgi`` are those
of ``seckill_site``, which look for the static files once, when they are loaded.
"""

import hashlib
import os
import time
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PREPARED = ROOT / ".run" / "prepared"


def __getattr__(name: str) -> Any:
    if name not in {"asgi", "wsgi"}:
        raise AttributeError(name)
    while not has_static_files(Path(os.environ["STATIC_ROOT"])):
        time.sleep(0.1)
    application = import_module(f"seckill_site.{name}").application
    while not PREPARED.exists():
        time.sleep(0.02)
    return application


def has_static_files(target: Path) -> bool:
    """Return whether the collected static files are there, and none has changed since."""
    stamp = target.with_name("static-state")
    return target.exists() and stamp.exists() and stamp.read_text() == state_of_static_files()


def state_of_static_files() -> str:
    """Return a digest of our static files and of the packages that bring others."""
    digest = hashlib.sha256((ROOT / "requirements.lock").read_bytes())
    for path in sorted([*ROOT.glob("static/**/*"), *ROOT.glob("*/static/**/*")]):
        if path.is_file():
            digest.update(f"{path} {path.stat().st_mtime_ns}".encode())
    return digest.hexdigest()
