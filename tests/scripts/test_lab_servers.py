"""The servers of experiments, by ``script/lib/lab_servers.py``: which are needed and missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from lab.experiments import EXPERIMENTS
from tests.faults.private import script_library
from tests.support.stack import ROOT

pytestmark = pytest.mark.quick

ALL = ["ZooKeeper", "Etcd", "RabbitMQ", "Kafka"]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "script" / "lib"))
    return script_library("lab_servers")


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        ([], ALL),
        (["--documents"], ALL),
        (["--experiments", "--json"], ALL),
        (["lock-servers"], ALL[:2]),
        (["queue-servers", "--documents"], ALL[2:]),
        (["v1", "--kill"], []),
        (["--kill"], []),
    ],
)
def test_only_named_experiments_need_their_servers(
    library: ModuleType, arguments: list[str], needed: list[str]
) -> None:
    assert [it.__name__ for it in library.needed_by(arguments)] == needed
    assert library.NEEDS.keys() <= EXPERIMENTS.keys()


def test_missing_packages_are_named(tmp_path: Path) -> None:
    """With no program on PATH; RabbitMQ is looked for in the folder of its package."""
    command = [sys.executable, "script/lib/lab_servers.py", "lock-servers", "queue-servers"]
    environ = os.environ | {"PATH": str(tmp_path)}
    said = subprocess.run(
        command, cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    assert {"zookeeper", "etcd-server", "maven"} <= {*said.stdout.split()}
