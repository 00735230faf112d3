"""Private servers for tests of experiments, started as ``script/race`` starts them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.stack import ROOT


@contextmanager
def server_of(setting: str, directory: Path) -> Iterator[None]:
    """Run the server that the lab finds under this setting; none if the shop has it anyway."""
    if not setting:
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "script" / "lib"))
        library, scratch = import_module("lab_servers"), import_module("scratch")
        form = next(it for its in library.NEEDS.values() for it in its if it.setting == setting)
        server = form(directory / "server")
        patch.setenv(setting, server.url())
        with scratch.running(directory, server) as wait:
            wait()
            yield
    for name in ("lab_servers", "scratch", "servers"):
        sys.modules.pop(name, None)
