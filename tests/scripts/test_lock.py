"""The lock files that ``script/lock`` compiles from the readable lists of packages."""

from __future__ import annotations

import re

import pytest

from tests.support.stack import ROOT

NAMES = ("requirements", "requirements-dev", "requirements-bench")
LOCKS = (*NAMES, "requirements-uv", "requirements-cluster")
pytestmark = pytest.mark.quick
PIN = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])?==([^\s;]+)", re.MULTILINE)


def pins(file: str) -> dict[str, str]:
    """Return the version of each package that a list or a lock pins."""
    found = PIN.findall((ROOT / file).read_text())
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in found}


@pytest.mark.parametrize("name", NAMES)
def test_lock_has_every_pin_of_its_list(name: str) -> None:
    listed = pins("requirements.txt") | pins(f"{name}.txt")
    locked = pins(f"{name}.lock")
    assert len(locked) > len(listed) > 2
    assert {package: locked.get(package) for package in listed} == listed


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_hashes(name: str) -> None:
    text = (ROOT / f"{name}.lock").read_text()
    packages = re.split(r"^(?=[\w.-]+==)", text, flags=re.MULTILINE)[1:]
    assert [it.split()[0] for it in packages if "--hash=sha256:" not in it] == []


def test_locks_agree_on_the_packages_that_they_share() -> None:
    """All are installed into one environment."""
    everything: dict[str, set[str]] = {}
    for name in NAMES:
        for package, version in pins(f"{name}.lock").items():
            everything.setdefault(package, set()).add(version)
    assert {package for package, versions in everything.items() if len(versions) > 1} == set()


@pytest.mark.parametrize("name", LOCKS)
def test_locks_name_no_package_index(name: str) -> None:
    text = (ROOT / f"{name}.lock").read_text()
    assert not re.search(r"https?://|--(extra-)?index|--find-links", text)
