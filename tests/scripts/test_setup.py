"""What the scripts install, by ``script/lib/setup.sh``."""

from __future__ import annotations

import hashlib
import os
import pty
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.patience import GENEROUS_S
from tests.support.stack import ROOT

pytestmark = pytest.mark.quick

LOCK = ROOT / "requirements.lock"


def run_with_setup(
    commands: str, directory: Path, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run commands in a shell that has sourced the library, with ``directory`` as its clone."""
    commands = f"RETRY_AFTER_S=0; {commands}"
    library = ROOT / "script" / "lib" / "setup.sh"
    return subprocess.run(
        ["bash", "-c", f"set -euo pipefail; ROOT={directory}; source {library}; {commands}"],
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=GENEROUS_S,
        check=False,
    )


def test_installation_that_fails_once_is_tried_again(tmp_path: Path) -> None:
    step = "step() { echo step; mkdir $ROOT/first 2>/dev/null && return 1 || return $1; };"
    (tmp_path / "again").mkdir()
    said = run_with_setup(f"{step} retried step 0", tmp_path)
    assert (said.returncode, said.stdout) == (0, "step\nstep\n")
    assert "trying once more" in said.stderr
    said = run_with_setup(f"{step} retried step 7", tmp_path / "again")
    assert (said.returncode, said.stdout) == (7, "step\nstep\n")


def test_failed_installation_shows_the_end_of_its_log(tmp_path: Path) -> None:
    (tmp_path / ".run").mkdir()
    (tmp_path / ".run" / "install.log").write_text("error: could not build wheels\n")
    said = run_with_setup("install_failed", tmp_path)
    assert said.returncode == 1
    assert said.stderr.startswith("error: could not build wheels\n")
    assert "pip could not install the Python packages" in said.stderr


def test_installation_on_a_full_disk_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / ".run").mkdir()
    text = "Collecting django\nERROR: [Errno 28] No space left on device\n"
    (tmp_path / ".run" / "install.log").write_text(text)
    said = run_with_setup("install_failed", tmp_path)
    assert said.returncode == 1
    assert said.stderr.startswith("bash: the disk is full: make room")
    assert said.stderr.count("\n") == 1


def test_mysqlclient_is_installed_apart_from_all_others(tmp_path: Path) -> None:
    alone = run_with_setup(f"mysqlclient_alone {LOCK}", tmp_path).stdout
    others = run_with_setup(f"without_mysqlclient {LOCK}", tmp_path).stdout
    assert alone.startswith("mysqlclient==")
    assert alone.count("==") == 1
    assert "--hash=sha256:" in alone
    assert "mysqlclient==" not in others
    assert sorted([*alone.splitlines(), *others.splitlines()]) == sorted(
        LOCK.read_text().splitlines()
    )


# --- uv and pip -----------------------------------------------------------------------------------

RECORD = 'echo "$UV_DEFAULT_INDEX|$UV_INDEX|$UV_PYTHON_DOWNLOADS $*" >>$ROOT/uv-calls'
INSTALL = "export ROOT; mkdir -p $ROOT/.run; make_venv; install_list $ROOT/list"
HAS_THING = "$ROOT/.venv/bin/python -c 'import thing' && echo thing"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with a list of one package, whose wheel is in ``links``, and no index."""
    links = tmp_path / "links"
    links.mkdir()
    wheel = links / "thing-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("thing.py", "")
        about = "thing-1.0.dist-info"
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: thing\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    (tmp_path / "list").write_text(f"thing==1.0 --hash=sha256:{digest}\n")
    for name in ("requirements.lock", "requirements-uv.lock"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


def programs(clone: Path, **texts: str) -> dict[str, str]:
    """Return the environment with these programs first on PATH, and no index but the clone's."""
    directory = clone / "programs"
    directory.mkdir()
    for name, text in texts.items():
        (directory / name).write_text(f"#!/bin/sh\n{text}\n")
        (directory / name).chmod(0o755)
    without_uv = [it for it in os.environ["PATH"].split(":") if not (Path(it) / "uv").exists()]
    return {
        "PATH": ":".join([str(directory), *without_uv]),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(clone / "links"),
        "PIP_CONFIG_FILE": os.devnull,
    }


def test_uv_on_path_installs_the_list_with_hashes(clone: Path) -> None:
    said = run_with_setup(INSTALL, clone, **programs(clone, uv=RECORD))
    assert said.returncode == 0, said.stderr
    call = (clone / "uv-calls").read_text()
    assert "|never pip install --no-index " in call
    assert f"--python {clone}/.venv/bin/python --no-deps" in call
    assert call.endswith(f"--require-hashes --requirement {clone}/list\n")
    assert not (clone / ".run" / "uv").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "texts",
    [pytest.param({"uv": "exit 2"}, id="uv fails"), pytest.param({}, id="index without uv")],
)
def test_pip_installs_the_list_where_uv_cannot(clone: Path, texts: dict[str, str]) -> None:
    said = run_with_setup(f"{INSTALL}; {HAS_THING}", clone, **programs(clone, **texts))
    assert said.returncode == 0, said.stderr
    assert said.stdout.endswith("thing\n")


@pytest.mark.slow
def test_pip_refuses_another_hash_than_the_lists(clone: Path) -> None:
    (clone / "list").write_text(f"thing==1.0 --hash=sha256:{'0' * 64}\n")
    said = run_with_setup(f"{INSTALL} || install_failed", clone, **programs(clone))
    assert said.returncode == 1
    assert "DO NOT MATCH THE HASHES" in said.stderr


@pytest.mark.slow
def test_pip_runs_from_the_wheel_of_ensurepip(clone: Path) -> None:
    bare = f'exec {sys.executable} -S "$@"'  # -S leaves out the pip that is installed
    environ = programs(clone, python3=bare)
    said = run_with_setup(f"pip_of python3; {INSTALL}; {HAS_THING}", clone, **environ)
    assert said.returncode == 0, said.stderr
    assert said.stdout.count(".whl/pip") == 1
    assert said.stdout.endswith("thing\n")


WITHOUT_PIP = f'case "$*" in *"import pip"*|*ensurepip*) exit 1;; esac; exec {sys.executable} "$@"'
NO_WHEEL = "pip_of() { return 1; };"


def test_uv_installs_the_list_where_there_is_no_pip(clone: Path) -> None:
    said = run_with_setup(
        NO_WHEEL + INSTALL, clone, **programs(clone, python3=WITHOUT_PIP, uv=RECORD)
    )
    assert said.returncode == 0, said.stderr
    assert "pip install" in (clone / "uv-calls").read_text()


def test_missing_pip_and_uv_are_one_clear_line(clone: Path) -> None:
    texts = {"python3": WITHOUT_PIP, "apt-get": "exit 100"}
    said = run_with_setup(NO_WHEEL + INSTALL, clone, **programs(clone, **texts))
    assert said.returncode == 1
    assert "this Python has neither venv nor pip: as root, run apt-get install" in said.stderr


@pytest.mark.slow
def test_indexes_of_pip_are_meant_for_uv(clone: Path) -> None:
    environ = programs(clone, uv=RECORD)
    environ["PIP_CONFIG_FILE"] = str(clone / "pip.conf")
    (clone / "pip.conf").write_text(
        "[global]\nindex-url = https://global.example/simple\n"
        "extra-index-url =\n  https://one.example/\n  https://two.example/\n"
        "[install]\nindex-url = https://mirror.example/simple\n"
    )
    run_with_setup(INSTALL, clone, **environ)
    run_with_setup(INSTALL, clone, **environ, PIP_INDEX_URL="https://u:p@env.example/simple")
    first, second = (clone / "uv-calls").read_text().splitlines()
    assert first.startswith("https://mirror.example/simple|")
    assert first.split("|")[1].split() == ["https://one.example/", "https://two.example/"]
    assert second.startswith("https://u:p@env.example/simple|")


@pytest.mark.slow
def test_mysqlclient_is_installed_only_where_it_is_asked_for(clone: Path) -> None:
    environ = programs(clone, uv=RECORD)
    prepare = "export ROOT; prepare requirements"
    assert run_with_setup(prepare, clone, **environ).returncode == 0
    assert run_with_setup(prepare, clone, **environ).stdout == ""  # nothing is left to do
    assert "mysqlclient.lock" not in (clone / "uv-calls").read_text()

    said = run_with_setup(f"{prepare} mysql", clone, **environ)
    assert "could not build mysqlclient: as root, run apt-get install" in said.stderr
    assert (clone / "uv-calls").read_text().endswith("/.run/mysqlclient.lock\n")


def test_terminal_shows_what_the_log_gets(clone: Path) -> None:
    (clone / ".run").mkdir()
    ours, theirs = pty.openpty()
    library = ROOT / "script" / "lib" / "setup.sh"
    command = "logged sh -c 'test -t 2 && echo bar on a terminal; exit 3'"
    said = subprocess.run(
        ["bash", "-c", f"ROOT={clone}; source {library}; {command}"],
        stdout=theirs, stderr=theirs, timeout=GENEROUS_S, check=False,
    )  # fmt: skip
    assert said.returncode == 3
    assert b"bar on a terminal" in os.read(ours, 4096)
    assert "bar on a terminal" in (clone / ".run" / "install.log").read_text()
    os.close(ours)
    os.close(theirs)
