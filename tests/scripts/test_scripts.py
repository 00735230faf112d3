"""The commands of ``script/``: what they say and how they end, without installing anything."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import polib
import pytest

from tests.faults.private import script_library
from tests.support.patience import GENEROUS_S
from tests.support.tiers import slow_after

ROOT = Path(__file__).resolve().parents[2]
PO = "locale/zh_Hans/LC_MESSAGES/django.po"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The scripts alone, so that nothing touches this clone's ``.run`` and ``.venv``."""
    shutil.copytree(ROOT / "script", tmp_path / "script")
    shutil.copy(ROOT / "requirements.lock", tmp_path)
    return tmp_path


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def run(directory: Path, *command: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=GENEROUS_S,
        check=False,
    )


def path_with(directory: Path, **programs: str) -> str:
    """Return a PATH of the few programs that a script's first lines need, and these."""
    directory.mkdir()
    for name in ("bash", "env", "dirname", "sed", "cat"):
        (directory / name).symlink_to(shutil.which(name) or name)
    for name, text in programs.items():
        (directory / name).write_text(f"#!{shutil.which('sh')}\n{text}\n")
        (directory / name).chmod(0o755)
    return str(directory)


@pytest.mark.parametrize("script", ["server", "manage", "test", "lint", "lock", "wheel"])
def test_help_exits_with_status_0(clone: Path, script: str) -> None:
    said = run(clone, f"script/{script}", "--help")
    assert said.returncode == 0
    assert said.stdout.startswith(f"Usage: script/{script}")
    assert said.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-n"], "-n wants a number"),
        (["-n", "auto"], "-n wants a number"),
        (["-n1.5"], "-n and --shuffle want a whole number"),
        (["--seed", "7"], "--seed goes with --soak"),
        (["--quick", "--faults"], "--quick and --faults exclude each other"),
    ],
)
def test_wrong_test_arguments_are_one_clear_line(
    clone: Path, arguments: list[str], words: str
) -> None:
    said = run(clone, "script/test", *arguments)
    assert said.returncode != 0
    assert said.stderr == f"test: {words}\n"
    assert not (clone / ".venv").exists()


# --- script/server --------------------------------------------------------------------------------


def test_port_in_use_is_one_clear_line(clone: Path, taken_port: int) -> None:
    said = run(clone, "script/server", "--no-front-door", "--port", str(taken_port))
    assert said.returncode == 1
    assert said.stderr == f"server: port {taken_port} is in use: choose another with --port N\n"
    assert not (clone / ".venv").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    slow_after(
        2,
        [
            (["--port", "x"], "x is no port number"),
            (["--port=99999"], "99999 is no port"),
            (["--port"], "--port needs a value"),
            (["--no-such"], "unknown option --no-such"),
            (["--host", "203.0.113.9"], "cannot listen on 203.0.113.9"),
        ],
    ),
)
def test_wrong_arguments_are_one_clear_line(clone: Path, arguments: list[str], words: str) -> None:
    said = run(clone, "script/server", *arguments)
    assert said.returncode == 1
    assert words in said.stderr
    assert said.stderr.count("\n") == 1


def test_second_server_on_same_data_is_refused(clone: Path) -> None:
    (clone / ".run").mkdir()
    holder = ["flock", ".run/lock", "sh", "-c", "echo held; exec sleep 20"]
    with subprocess.Popen(holder, cwd=clone, stdout=subprocess.PIPE) as first:
        assert first.stdout
        first.stdout.readline()
        said = run(clone, "script/server", "--port", "0")
        first.kill()
    assert said.returncode == 1
    assert "runs here already" in said.stderr


def test_data_of_another_layout_is_one_clear_line(clone: Path) -> None:
    (clone / ".run").mkdir()
    (clone / ".run" / "layout").write_text("1\n")
    said = run(clone, "script/server")
    assert (said.returncode, said.stderr.count("\n")) == (1, 1)
    assert "layout 1, this version reads 2: move .run away" in said.stderr


def test_old_or_missing_python_is_one_clear_line(clone: Path, tmp_path: Path) -> None:
    old = path_with(tmp_path / "old", python3='[ "$1" = --version ] && echo Python 3.9.2; exit 1')
    said = run(clone, "script/server", PATH=old)
    assert (said.returncode, said.stderr.count("\n")) == (1, 1)
    assert "Python 3.9.2 is too old: install Python 3.11" in said.stderr
    said = run(clone, "script/server", PATH=path_with(tmp_path / "none"))
    assert (said.returncode, said.stderr.count("\n")) == (1, 1)
    assert "no python3 on PATH" in said.stderr


@pytest.mark.parametrize(
    "script", slow_after(1, ["server", "test", "lint", "race", "lock", "wheel"])
)
def test_folder_without_write_access_is_one_clear_line(clone: Path, script: str) -> None:
    (clone / ".run").write_text("no folder, as on a disk that cannot be written to\n")
    said = run(clone, f"script/{script}")
    assert (said.returncode, said.stderr.count("\n")) == (1, 1)
    assert said.stderr.startswith(f"{script}: cannot write to {clone}/.run (")
    assert not (clone / ".venv").exists()


@pytest.mark.parametrize("script", ["server", "test"])
def test_full_disk_is_one_clear_line(clone: Path, tmp_path: Path, script: str) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "df").write_text("#!/bin/sh\necho Avail; echo 17\n")
    (programs / "df").chmod(0o755)
    said = run(clone, f"script/{script}", PATH=f"{programs}:{os.environ['PATH']}")
    assert (said.returncode, said.stderr.count("\n")) == (1, 1)
    assert f"{script}: the disk of {clone}/.run has 17 MB left, and this needs about" in said.stderr
    assert not (clone / ".venv").exists()


def test_manage_before_first_start_says_what_to_do(clone: Path) -> None:
    said = run(clone, "script/manage", "reconcile")
    assert said.returncode == 1
    assert "run script/server first" in said.stderr


# --- How a run ends -------------------------------------------------------------------------------

RUN = """
import sys
sys.path.insert(0, "script/lib")
from supervisor import Supervisor
supervisor = Supervisor()
for name, command in zip(["part", "other"], sys.argv[1:]):
    options = ["--hold", "held", "--again-once", "prepared"]
    supervisor.add_part(name, ["sh", "-c", command], *options)
supervisor.add_part("server", ["sh", "-c", SERVER], "--after", "held")
sys.exit(supervisor.run())
"""
SERVER = "trap 'echo server ends; exit' TERM; echo server is up; sleep 78 & wait"
RUN = RUN.replace("SERVER", repr(SERVER))
PARENT = "sleep 77 & echo child $!; wait"
CHILD = "echo child $$; exec sleep 77"
LONG_LINE = "head -c 300000 /dev/zero | tr '\\0' x; echo"
SLOW = "trap 'sleep 0.5; echo slow ends; exit' TERM; echo child $$; sleep 77 & wait"


@pytest.mark.parametrize(
    ("other", "code"),
    slow_after(
        1, [("sleep 0.3; exit 7", 7), ("sleep 0.3; exit 0", 1), ("sleep 0.3; kill -9 $$", 137)]
    ),
)
def test_all_parts_end_with_status_of_first(clone: Path, other: str, code: int) -> None:
    said = run(clone, sys.executable, "-c", RUN, PARENT, other)
    assert said.returncode == code
    assert "other ended by itself" in said.stdout
    assert not is_alive(child_named_in(said.stdout))


def test_part_of_a_prepared_shop_is_started_again(clone: Path) -> None:
    (clone / "prepared").touch()
    once = "test -e again || { touch again; sleep 0.1 & exit 7; }"
    with started(clone, f"{once}; {CHILD}", "exec sleep 77") as launcher:
        child = wait_for_child(launcher)
        launcher.terminate()
        assert launcher.wait(timeout=GENEROUS_S) == 143
    assert not is_alive(child)


@pytest.mark.slow
def test_part_that_ends_at_every_start_ends_all(clone: Path) -> None:
    (clone / "prepared").touch()
    said = run(clone, sys.executable, "-c", RUN, "echo started; exit 7", CHILD)
    assert said.returncode == 7
    assert said.stdout.count("| started") == 5
    assert not is_alive(child_named_in(said.stdout))


@pytest.mark.parametrize(
    ("signal", "part", "code"),
    slow_after(
        2, [("INT", PARENT, 130), ("TERM", PARENT, 143), ("HUP", PARENT, 129), ("KILL", CHILD, -9)]
    ),
)
def test_stopped_run_leaves_no_process(clone: Path, signal: str, part: str, code: int) -> None:
    with started(clone, part, "exec sleep 77") as launcher:
        child = wait_for_child(launcher)
        subprocess.run(["kill", f"-{signal}", str(launcher.pid)], check=True)
        assert launcher.wait(timeout=GENEROUS_S) == code
    assert not is_alive(child)


def test_run_stopped_at_once_leaves_no_process(clone: Path) -> None:
    """honcho alone fails where the signal comes before it knows its processes."""
    for seconds in (0.2, 0.3, 0.4):
        with started(clone, PARENT, "exec sleep 77") as launcher:
            time.sleep(seconds)
            launcher.terminate()
            assert launcher.wait(timeout=GENEROUS_S) in (143, -15)


@pytest.mark.parametrize("wanted", slow_after(1, ["part.py", "relay"]))
def test_killed_wrapper_ends_all_parts(clone: Path, wanted: str) -> None:
    with started(clone, CHILD, "exec sleep 77") as launcher:
        child = wait_for_child(launcher)
        keeper = parent_of(child) if wanted == "part.py" else parent_of(parent_of(child))
        subprocess.run(["kill", "-KILL", str(keeper)], check=True)
        assert launcher.wait(timeout=GENEROUS_S) == 137
    assert not is_alive(child)


def test_too_long_line_ends_nothing(clone: Path) -> None:
    said = run(clone, sys.executable, "-c", RUN, f"{LONG_LINE}; {CHILD}", "sleep 0.5; exit 7")
    assert said.returncode == 7
    assert not is_alive(child_named_in(said.stdout))


def test_servers_end_after_their_clients(clone: Path) -> None:
    with started(clone, SLOW, "exec sleep 77") as launcher:
        wait_for_lines(launcher, "| child ", "| server is up")
        launcher.terminate()
        said = launcher.stdout.read() if launcher.stdout else ""
    assert said.index("slow ends") < said.index("server ends")


def started(clone: Path, *parts: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-u", "-c", RUN, *parts]
    return subprocess.Popen(command, cwd=clone, stdout=subprocess.PIPE, text=True)


def wait_for_child(launcher: subprocess.Popen[str]) -> int:
    assert launcher.stdout
    for line in launcher.stdout:
        if "| child " in line:
            return child_named_in(line)
    raise AssertionError("no child")


def wait_for_lines(launcher: subprocess.Popen[str], *wanted: str) -> None:
    """Read until each of these texts has come, in whatever order the parts started."""
    assert launcher.stdout
    missing = set(wanted)
    while missing:
        line = launcher.stdout.readline()
        assert line, f"never said: {missing}"
        missing -= {text for text in missing if text in line}


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def child_named_in(text: str) -> int:
    return int(text.partition("child ")[2].split()[0])


def is_alive(pid: int) -> bool:
    deadline = time.monotonic() + 2
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > deadline:
            return True
        time.sleep(0.05)
    return False


# --- script/translations.py -----------------------------------------------------------------------

translations = script_library("translations", "script")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site of two sentences, both translated and compiled."""
    (tmp_path / "templates").mkdir()
    (tmp_path / "vouchers").mkdir()
    (tmp_path / "templates" / "page.html").write_text(
        "{% load i18n %}{% blocktranslate %}{{ left }} left{% endblocktranslate %}"
    )
    (tmp_path / "vouchers" / "views.py").write_text('_("Sold out")\n')
    write_catalogue(tmp_path, {"%(left)s left": "剩余 %(left)s", "Sold out": "已抢光"})
    translations.compile_all([tmp_path / PO])
    return tmp_path


def write_catalogue(site: Path, sentences: dict[str, str]) -> None:
    catalogue = polib.POFile()
    catalogue.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    catalogue.extend(polib.POEntry(msgid=key, msgstr=text) for key, text in sentences.items())
    (site / PO).parent.mkdir(parents=True, exist_ok=True)
    catalogue.save(str(site / PO))


def faults(site: Path) -> list[str]:
    return list(translations.check_all([site / PO], translations.sentences_of(site)))


def test_complete_translations_pass(site: Path) -> None:
    assert faults(site) == []
    assert translations.report(iter([])) == 0


@pytest.mark.parametrize(
    ("sentences", "words"),
    [
        ({"%(left)s left": "剩余 %(left)s"}, "lacks 'Sold out' of vouchers/views.py"),
        ({"%(left)s left": "剩余 %(left)s", "Sold out": ""}, "'Sold out' is not translated"),
        ({"%(left)s left": "剩余", "Sold out": "已抢光"}, "other placeholders"),
        ({"%(left)s left": "剩余 %(left)s", "Sold out": "售罄"}, "is not what the .po says"),
    ],
)
def test_missing_translations_are_named(site: Path, sentences: dict[str, str], words: str) -> None:
    write_catalogue(site, sentences)
    found = faults(site)
    assert words in found[0]
    assert translations.report(iter(found)) == 1


def test_missing_sentence_of_a_file_of_texts_is_found(site: Path) -> None:
    texts = site / "vouchers" / "buyer_texts.toml"
    texts.write_text('[page]\nnone = ""\n[page.note]\ngone = "Gone"\n')
    assert [it.partition(": ")[2] for it in faults(site)] == [
        "lacks 'Gone' of vouchers/buyer_texts.toml"
    ]


@pytest.mark.parametrize("function", ["_", "gettext", "gettext_lazy", "gettext_noop"])
def test_missing_sentence_is_found_for_every_function(site: Path, function: str) -> None:
    (site / "vouchers" / "views.py").write_text(f'_("Sold out"), {function}("Too late")\n')
    assert "lacks 'Too late' of vouchers/views.py" in faults(site)[0]


def test_sentence_translated_twice_is_named(site: Path) -> None:
    catalogue = polib.pofile(str(site / PO))
    catalogue.append(polib.POEntry(msgid="Sold out", msgstr="售罄"))
    catalogue.save()
    translations.compile_all([site / PO])
    assert faults(site) == [f"{site / PO}: has 'Sold out' more than once"]


@pytest.mark.parametrize("name", ["en/LC_MESSAGES/django.po", "zh_Hans/LC_MESSAGES/djangojs.po"])
def test_catalogue_of_overrides_needs_no_sentences(site: Path, name: str) -> None:
    path = site / "locale" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    (site / PO).rename(path)
    translations.compile_all([path])
    (site / "vouchers" / "views.py").write_text('_("Too late")\n')
    assert list(translations.check_all([path], translations.sentences_of(site))) == []


def test_update_adds_missing_sentences(site: Path) -> None:
    write_catalogue(site, {"Sold out": "已抢光"})
    translations.update_all([site / PO], translations.sentences_of(site))
    assert "'%(left)s left' is not translated" in faults(site)[0]
