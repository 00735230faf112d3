"""The file of settings, as systemd and a shell read it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import SystemCheckError

from seckill_site.checks import configuration
from seckill_site.checks.configuration import check_settings_file, found_by

pytestmark = pytest.mark.quick

ALIKE = (
    "",
    "# a comment: $HOME `date` 'x",
    "SECKILL_LISTEN=10.0.0.11",
    "DATABASE_URL=mysql://seckill:a-b_c@db.internal:3306/seckill",
    "ALLOWED_HOSTS=shop.example,www.shop.example",
    "EMPTY=",
    "SECKILL_SHOP_NAME='Old Street Teahouse'",
    "SECKILL_MAIL_FROM='shop name <shop@shop.example>'",
    "SECKILL_ALIPAY_PRIVATE_KEY='-----BEGIN\\nMII+/=\\n-----'  ",
    "KEY='a$b`c`\"d\" & #e; 老街'",
)
DIFFERENT = {
    "a space": "SECKILL_SHOP_NAME=Old Street",
    "a redirection": "SECKILL_MAIL_FROM=shop<shop@shop.example>",
    "a variable": "KEY=a$b",
    "a variable in quotes": 'KEY="a$b"',
    "a quote amid quotes": "KEY='it's'",
    "no end of the quotes": "KEY='a",
    "a word after the quotes": "KEY='a' b",
    "another command": "KEY=a;b",
    "a backslash": "KEY=a\\nb",
    "a tilde": "KEY=~",
    "a comment behind": "KEY=a # why",
    "no name": "only words",
    "an export": "export KEY=a",
    "spaces around the sign": "KEY = a",
    "a line of Windows": "KEY=a\r",
    "another encoding": "KEY='caf\udce9'",
}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "seckill.env"
    monkeypatch.setattr(configuration, "SETTINGS_FILE", path)
    return path


def test_lines_that_both_read_alike_pass(file: Path) -> None:
    file.write_text("\n".join((*ALIKE, "")))

    assert found_by(check_settings_file) == []


@pytest.mark.parametrize("line", [it for it in ALIKE if "=" in it and it[0] != "#"])
def test_shell_takes_such_a_line_literally(file: Path, line: str) -> None:
    """As systemd does, whose manual says so of single quotes (systemd.exec, EnvironmentFile)."""
    file.write_text(line)
    name, _, value = line.partition("=")
    done = subprocess.run(
        ["sh", "-c", f'set -ae; . "$1"; printf "%s" "${name}"', "sh", file],
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == (value.strip().strip("'"), "")


@pytest.mark.parametrize("line", DIFFERENT.values(), ids=DIFFERENT)
def test_line_that_a_shell_reads_differently_is_an_error(file: Path, line: str) -> None:
    file.write_bytes(f"SECKILL_LISTEN=10.0.0.11\n{line}\n".encode(errors="surrogateescape"))

    (error,) = found_by(check_settings_file)

    assert error.id == "seckill.E030"
    assert f"{file}, line 2," in error.msg


def test_missing_and_unreadable_file_is_not_checked(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found_by(check_settings_file) == []
    monkeypatch.setattr(Path, "read_bytes", _refuse)
    assert found_by(check_settings_file) == []


def _refuse(*_: object) -> bytes:
    raise PermissionError


def test_commands_stop_at_it_and_a_running_shop_stays_ready(file: Path) -> None:
    file.write_text("SECKILL_SHOP_NAME=Old Street\n")

    with pytest.raises(SystemCheckError, match=r"seckill\.E030"):
        call_command("check")

    assert found_by(configuration.check_settings) == []
