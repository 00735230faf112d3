"""The wheel of ``locks``: what it holds, and its own tests in an environment that has little else.

The tests of ``tests/locks`` are copied away from this project, and run by an interpreter that knows
redis-py and pytest, but neither Django nor hiredis nor anything of the shop.
"""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from email.message import Message
from pathlib import Path

import pytest

from tests.support.redis_url import redis_url

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "locks"
DJANGO = "django"
"""The folder of ``locks`` and of its tests that is the shop's alone."""
TOOLS = ["pytest", "pytest-timeout", "hypothesis"]
SUITE_S = 900
WITH_OLDEST = ["aio", "test_redis_lock.py", "test_subscription.py", "test_watchdog.py"]
"""The tests that depend most on how redis-py sends, listens and fails."""

CONFTEST = """
import importlib.util
import sys
from pathlib import Path

import locks

pytest_plugins = ["tests.fixtures.locks"]
ABSENT = ("django", "hiredis", "seckill_site", "orders", "vouchers", "bench")


def pytest_report_header():
    return f"locks: {locks.__file__}"


def pytest_configure():
    assert Path(locks.__file__).is_relative_to(sys.prefix), locks.__file__
    assert not [name for name in ABSENT if importlib.util.find_spec(name)]
"""
SETTINGS = """
[pytest]
addopts = -ra --strict-markers --strict-config -p no:cacheprovider
filterwarnings = error
timeout = 120
markers =
    faults: slow
"""
TYPED = """
from redis import Redis

from locks import RedisLock

lock = RedisLock(Redis(decode_responses=True), "lock:a", lease_ms=5_000)
reveal_type(lock)
reveal_type(lock.fencing_token)
lock.acquire(wait_ms="soon")
"""


def run(
    *command: str | Path, cwd: Path, timeout: float = 300, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command that inherits nothing of this project; return it, whatever its status."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    kept |= {name: it for name, it in os.environ.items() if name.startswith("PIP_")}
    return subprocess.run(
        command,
        cwd=cwd,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def done(*command: str | Path, cwd: Path) -> str:
    """Run a command that must succeed; return what it printed."""
    it = run(*command, cwd=cwd)
    assert it.returncode == 0, it.stdout + it.stderr
    return it.stdout


def build(to: Path) -> Path:
    done(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", to, cwd=SOURCES)
    (wheel,) = to.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [it for it in archive.namelist() if it.endswith(".dist-info/METADATA")]
        return email.message_from_string(archive.read(name).decode())


# --- What it holds -------------------------------------------------------------------------------


@pytest.mark.quick
def test_wheel_holds_every_module_and_script_but_the_django_app(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {it for it in archive.namelist() if ".dist-info/" not in it}
    files = [it.relative_to(SOURCES) for it in SOURCES.rglob("*") if it.is_file()]
    library = [it for it in files if it.parts[0] != DJANGO and it.suffix in {".py", ".lua"}]
    assert held == {f"locks/{it.as_posix()}" for it in library} | {"locks/py.typed"}


@pytest.mark.quick
def test_wheel_requires_redis_py_alone(metadata: Message) -> None:
    required = metadata.get_all("Requires-Dist", [])
    assert [it for it in required if "extra ==" not in it] == ["redis<9,>=6.4"]
    assert metadata["Requires-Python"] == ">=3.11"


@pytest.mark.quick
def test_wheel_has_readme_and_changelog_of_its_version(metadata: Message) -> None:
    assert metadata.get_payload() == (SOURCES / "README.md").read_text(encoding="utf-8")
    assert f"\n## {metadata['Version']}\n" in (SOURCES / "CHANGELOG.md").read_text("utf-8")


@pytest.mark.quick
def test_same_sources_give_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    assert build(tmp_path).read_bytes() == wheel.read_bytes()


# --- In an environment of its own ----------------------------------------------------------------


def pins() -> str:
    """Return the versions of ``requirements-dev.lock``, without hashes."""
    lock = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    return "\n".join(re.findall(r"^[\w.-]+==[^\s;]+", lock, re.MULTILINE))


class Environment:
    """A folder with a virtual environment that has the wheel, and a copy of its tests."""

    def __init__(self, folder: Path, wheel: Path, pins: str) -> None:
        """Install the wheel, what it requires and the tools of its tests, in these versions."""
        self.folder, self.python = folder, folder / "env" / "bin" / "python"
        (folder / "pins.txt").write_text(pins)
        done(sys.executable, "-m", "venv", "--without-pip", "env", cwd=folder)
        self.pip("install", "--constraint", "pins.txt", wheel)
        assert len(self.pip("list", "--format=freeze").split()) == 2, "more than redis-py"
        self.pip("install", "--constraint", "pins.txt", *TOOLS)
        self.copy_tests()

    def pip(self, *arguments: str | Path) -> str:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        return done(*pip, "--python", self.python, *arguments, cwd=self.folder)

    def copy_tests(self) -> None:
        copied = ["__init__.py", "locks", "fixtures/__init__.py", "fixtures/locks.py"]
        copied += [f"support/{it}.py" for it in ("__init__", "patience", "proxy", "redis_url")]
        for name in copied:
            source, copy = ROOT / "tests" / name, self.folder / "tests" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, copy, ignore=shutil.ignore_patterns(DJANGO, "__pycache__"))
            else:
                shutil.copy(source, copy)
        (self.folder / "conftest.py").write_text(CONFTEST)
        (self.folder / "pytest.ini").write_text(SETTINGS)

    def test(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        options: Sequence[str | Path] = [self.python, "-m", "pytest", *arguments]
        return run(*options, cwd=self.folder, timeout=SUITE_S, REDIS_URL=redis_url())


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment with the versions of the shop."""
    return Environment(tmp_path_factory.mktemp("empty"), wheel, pins())


@pytest.mark.faults
@pytest.mark.timeout(SUITE_S + 120)
@pytest.mark.usefixtures("redis_client")
def test_lock_tests_pass_against_the_wheel(environment: Environment) -> None:
    it = environment.test("tests/locks")
    assert it.returncode == 0, it.stdout[-5_000:] + it.stderr[-2_000:]
    print(it.stdout)  # noqa: T201  # with -s: how many


@pytest.mark.faults
@pytest.mark.timeout(SUITE_S + 120)
@pytest.mark.usefixtures("redis_client")
def test_lock_tests_pass_with_the_oldest_redis_py(
    wheel: Path, metadata: Message, tmp_path: Path
) -> None:
    oldest = re.search(r"redis.*>=([\d.]+)", metadata["Requires-Dist"])
    assert oldest
    old = re.sub(r"^redis==.*$", f"redis=={oldest[1]}.0", pins(), flags=re.MULTILINE)
    it = Environment(tmp_path, wheel, old).test(*(f"tests/locks/{name}" for name in WITH_OLDEST))
    assert it.returncode == 0, it.stdout[-5_000:] + it.stderr[-2_000:]


@pytest.mark.faults
def test_strict_mypy_sees_the_types_of_the_wheel(environment: Environment) -> None:
    (environment.folder / "typed.py").write_text(TYPED)
    options = ["--strict", f"--python-executable={environment.python}", "typed.py"]
    it = run(sys.executable, "-m", "mypy", *options, cwd=environment.folder)
    assert 'Revealed type is "locks.redis_lock.RedisLock"' in it.stdout
    assert 'Revealed type is "int | None"' in it.stdout
    assert it.stdout.count("error:") == 1, it.stdout
    assert 'incompatible type "str"; expected "int"' in it.stdout
