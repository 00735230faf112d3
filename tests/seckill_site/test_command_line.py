"""``manage.py help`` lists the shop's commands first, and every command speaks English."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.apps import apps
from django.core.management import ManagementUtility, get_commands
from django.db import InterfaceError, OperationalError
from django.utils import translation
from django.utils.translation import gettext

from seckill_site.command_line import GROUPS, CommandLine

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[2]
CHINESE = re.compile("[\u4e00-\u9fff]")
LISTED = [name for commands in GROUPS.values() for name in commands]


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    CommandLine(["manage.py", *arguments]).execute()
    return capsys.readouterr().out


def own_commands() -> set[str]:
    """Return the commands of the apps in this repository, except those of the benchmarks."""
    own = {app.name for app in apps.get_app_configs() if Path(app.path).parent == ROOT}
    return {name for name, app in get_commands().items() if app in own}


def test_every_command_of_the_shop_is_listed_once() -> None:
    assert len(LISTED) == len(set(LISTED))
    assert own_commands() <= set(LISTED) <= set(get_commands())


def test_help_lists_the_commands_of_the_shop_before_all_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours, _, others = said(capsys, "help").partition("Of Django and its packages")
    assert all(f"\n    {name} " in ours for name in LISTED)
    assert "migrate" not in ours
    assert set(get_commands()) - set(LISTED) == set(others.split())
    assert max(map(len, ours.splitlines())) < 90


def test_command_that_is_not_installed_is_not_listed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    present = {name: app for name, app in get_commands().items() if app != "lab"}
    monkeypatch.setattr("seckill_site.command_line.get_commands", lambda: present)
    text = said(capsys, "help")
    assert "The classic course" not in text
    assert "Sales" in text


def test_plain_list_for_shells_is_that_of_django(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "help", "--commands").split() == sorted(get_commands())


def test_command_speaks_english_whatever_the_language_of_the_site() -> None:
    with translation.override("zh-hans"):
        assert gettext("This field cannot be blank.") != "This field cannot be blank."
        CommandLine(["manage.py"]).fetch_command("create_sale")
        assert gettext("This field cannot be blank.") == "This field cannot be blank."


@pytest.mark.parametrize("command", LISTED)
def test_help_of_a_command_has_no_chinese(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with translation.override("zh-hans"), pytest.raises(SystemExit):
        CommandLine(["manage.py", command, "--help"]).execute()
    assert not CHINESE.search(capsys.readouterr().out)


@pytest.mark.parametrize("error", [OperationalError, InterfaceError])
def test_database_that_does_not_respond_is_one_line(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: CommandLine) -> None:
        raise error("database or disk is full")

    monkeypatch.setattr(ManagementUtility, "execute", fail)
    with pytest.raises(SystemExit, match=r"^manage\.py: .*: database or disk is full$"):
        CommandLine(["manage.py", "reconcile"]).execute()
    with pytest.raises(error):
        CommandLine(["manage.py", "reconcile", "--traceback"]).execute()
