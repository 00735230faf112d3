"""The units of ``deploy/``: which of them get the processor first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.private import script_library

pytestmark = pytest.mark.quick

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
BEHIND = (
    "seckill-worker.service",
    "seckill-outside@.service",
    "seckill-web@8001.service.d/behind-orders.conf",
)
OF_NICE_0 = 1024
OF_NICE = {3: 526, 5: 335, 10: 110}
"""What the kernel divides the processor by, at these levels (``sched_prio_to_weight``)."""


def settings_of(unit: Path) -> dict[str, str]:
    pairs = (line.partition("=") for line in unit.read_text().splitlines())
    return {name: value for name, _, value in pairs}


@pytest.mark.parametrize("name", BEHIND)
def test_unit_gives_way_to_web_as_in_the_embedded_run(name: str) -> None:
    _, level = script_library("servers").BEHIND

    weight = int(settings_of(DEPLOY / name)["CPUWeight"])

    assert weight == round(100 * OF_NICE[int(level)] / OF_NICE_0)
    assert "CPUWeight" not in settings_of(DEPLOY / "seckill-web@.service")  # so 100


def test_no_unit_relies_on_niceness() -> None:
    """Each unit is a control group: niceness would count only within it."""
    units = [*DEPLOY.glob("*.service"), *DEPLOY.glob("*.d/*.conf")]

    assert len(units) == 8
    assert not [it.name for it in units if "Nice" in settings_of(it)]


def test_each_unit_counts_in_a_directory_that_ends_with_it() -> None:
    directories = set()
    units = [it for it in DEPLOY.glob("*.service") if "backup" not in it.name]  # not the shop's
    for unit in units:
        lines = unit.read_text().splitlines()
        (directory,) = [it for it in lines if it.startswith("RuntimeDirectory=")]
        directories.add(directory := directory.removeprefix("RuntimeDirectory="))
        assert not [it for it in lines if "Preserve" in it]
        counts = [it for it in lines if f"PROMETHEUS_MULTIPROC_DIR=/run/{directory}" in it]
        assert bool(counts) == (unit.name != "seckill-metrics.service")  # which only reads
    assert len(directories) == 5
