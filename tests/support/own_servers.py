"""Give each worker of pytest-xdist the servers that ``script/lib/scratch.py`` started for it.

A plugin, loaded by name, because Django reads its settings before there is a conftest.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)  # pytest-django loads the settings inside
def pytest_load_initial_conftests() -> Generator[None]:
    worker = os.environ.get("PYTEST_XDIST_WORKER")  # gw0, gw1, ...
    if worker:
        places = json.loads(os.environ["SECKILL_PLACES"])
        os.environ.update(places[int(worker.removeprefix("gw"))])
    return (yield)
