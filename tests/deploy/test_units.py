"""The units of ``deploy/``: which of them get the processor first, and what the image starts."""

from __future__ import annotations

import re
import subprocess
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


UNITS_OF_ROLES = {
    "web": "seckill-web@.service",
    "worker": "seckill-worker.service",
    "outside payments": "seckill-outside@.service",
    "beat": "seckill-beat.service",
}


@pytest.mark.parametrize(("role", "unit"), UNITS_OF_ROLES.items())
def test_image_starts_what_the_units_start(role: str, unit: str, tmp_path: Path) -> None:
    """Stand-ins for the programs print what they are given."""
    for name in ("python", "granian", "celery"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*"\n')
        (tmp_path / name).chmod(0o755)
    (tmp_path / "mkdir").symlink_to("/bin/true")  # of the directory of counts, in /run
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SECKILL_LISTEN": "10.0.0.11"}

    said = subprocess.run(
        [DEPLOY / "entrypoint", *role.split()],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )

    assert said.stdout.splitlines() == commands_of(unit)


def commands_of(unit: str) -> list[str]:
    """Return what a unit starts, as it is for the payments and port 8000."""
    port_or_queue = "8000" if "web" in unit else "payments"
    text = (DEPLOY / unit).read_text().replace("\\\n", "")
    text = text.replace("%%", "\0").replace("%i", port_or_queue).replace("\0", "%")
    text = text.replace("${SECKILL_LISTEN}", "10.0.0.11").replace("/srv/seckill/.venv/bin/", "")
    return [" ".join(it.split()) for it in re.findall(r"^ExecStart(?:Pre)?=(.*)", text, re.M)]


def test_setting_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "python").write_text('#!/bin/sh\nprintf "%s" "$SECRET_KEY$SECKILL_MAIL_URL"\n')
    (tmp_path / "python").chmod(0o755)
    (tmp_path / "key").write_text("a key\n")
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    environ |= {f"{it}_FILE": str(tmp_path / "key") for it in ("SECRET_KEY", "SECKILL_MAIL_URL")}

    said = subprocess.run(
        [DEPLOY / "entrypoint", "check"], env=environ, capture_output=True, check=True
    )

    assert said.stdout.decode() == "a keya key"
