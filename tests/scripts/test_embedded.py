"""The embedded run: the banner at the end of a start, and the accounts in it."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import sys
from pathlib import Path
from threading import Thread
from types import ModuleType

import pytest
from django.contrib.auth.models import User

from tests.support.stack import ROOT

PASSWORDS = {"admin": "secret-1", "alice": "secret-2"}


@pytest.fixture
def embedded(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "script" / "lib"))
    import embedded

    return embedded


@pytest.fixture
def prepare_shop(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "script" / "lib"))
    import prepare_shop

    return prepare_shop


# --- The banner ----------------------------------------------------------------------------------


@pytest.mark.quick
def test_first_banner_shows_accounts_with_passwords(embedded: ModuleType) -> None:
    text = embedded.banner_of("http://127.0.0.1:8000/", PASSWORDS)
    assert "http://127.0.0.1:8000/admin/" in text
    assert re.search("Accounts: +admin +secret-1\n +alice +secret-2\n", text)
    assert "shown this once" in text
    assert "script/manage changepassword admin" in text


@pytest.mark.quick
def test_later_banner_shows_accounts_and_how_to_set_a_password(embedded: ModuleType) -> None:
    text = embedded.banner_of("http://127.0.0.1:8000/", dict.fromkeys(PASSWORDS))
    assert re.search("Accounts: +admin +[(]password shown at the first start[)]\n +alice ", text)
    assert "shown this once" not in text
    assert "script/manage changepassword admin" in text


@pytest.mark.quick
def test_banner_of_a_shop_without_demo_names_no_account(embedded: ModuleType) -> None:
    text = embedded.banner_of("http://127.0.0.1:8000/", {})
    assert "Accounts" not in text
    assert "changepassword" not in text


@pytest.mark.quick
def test_announced_passwords_are_not_kept(
    embedded: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    accounts = tmp_path / "accounts"
    accounts.write_text(json.dumps(PASSWORDS))
    monkeypatch.setattr(embedded, "web_answers", lambda *_: True)
    monkeypatch.setattr(embedded, "PREPARED", tmp_path)
    with capfd.disabled(), (tmp_path / "terminal").open("w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        embedded.announce("127.0.0.1", 8000, accounts)
    assert "secret-1" in (tmp_path / "terminal").read_text()
    assert not accounts.exists()


# --- The accounts --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_passwords_wait_until_a_banner_has_shown_them(
    prepare_shop: ModuleType, tmp_path: Path
) -> None:
    accounts = tmp_path / "accounts"
    prepare_shop.prepare_demo(accounts)
    first = json.loads(accounts.read_text())
    assert list(first) == ["admin", "alice", "bob"]
    for name, password in first.items():
        assert User.objects.get(username=name).check_password(password)
    assert accounts.stat().st_mode & 0o077 == 0

    prepare_shop.prepare_demo(accounts)  # the start before showed no banner
    assert json.loads(accounts.read_text()) == first

    accounts.unlink()
    prepare_shop.prepare_demo(accounts)
    assert json.loads(accounts.read_text()) == dict.fromkeys(first)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_accounts_that_are_gone_or_closed_are_not_named(
    prepare_shop: ModuleType, tmp_path: Path
) -> None:
    accounts = tmp_path / "accounts"
    prepare_shop.prepare_demo(accounts)
    User.objects.filter(username="alice").update(is_active=False)
    User.objects.filter(username="bob").delete()
    prepare_shop.prepare_demo(accounts)
    assert list(json.loads(accounts.read_text())) == ["admin"]


# --- The web server ------------------------------------------------------------------------------


@pytest.mark.quick
def test_web_waits_for_changed_static_files_and_migrations(
    embedded: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(embedded, "ROOT", tmp_path)
    (tmp_path / "requirements.lock").touch()
    for path in ("static/site.css", "orders/migrations/0001_initial.py"):
        (tmp_path / path).parent.mkdir(parents=True)
        assert not embedded.is_current(tmp_path)
        (tmp_path / "state").write_text(embedded.state_of_clone())
        assert embedded.is_current(tmp_path)
        (tmp_path / path).touch()
        assert not embedded.is_current(tmp_path)


@pytest.mark.quick
def test_shop_is_announced_only_once_it_is_prepared(
    embedded: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts, prepared = tmp_path / "accounts", tmp_path / "prepared"
    accounts.write_text("{}")
    monkeypatch.setattr(embedded, "PREPARED", prepared)
    monkeypatch.setattr(embedded, "web_answers", lambda *_: True)
    announcing = Thread(target=embedded.announce, args=("127.0.0.1", 8000, accounts))
    announcing.start()
    announcing.join(0.3)
    assert accounts.exists()
    prepared.touch()
    announcing.join(5)
    assert not accounts.exists()


# --- The clock of the lines ----------------------------------------------------------------------


@pytest.mark.quick
def test_only_lines_of_the_supervisor_get_a_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "script" / "lib"))
    from honcho.printer import Message
    from supervisor import Lines

    lines, at = Lines(), dt.datetime(2026, 12, 1, 20, 0, 0, 45_000)
    lines.output = output = io.StringIO()
    lines.write(Message("line", "web started\n", at, "system", None))
    lines.write(Message("line", b"2026-12-01 20:00:00+0800 INFO granian: ok\n", at, "web", None))
    own, part = output.getvalue().splitlines()
    assert re.fullmatch(
        r" *system *[|] 2026-12-01 20:00:00.045[+-]\d{4} INFO honcho: web started", own
    )
    assert part.strip() == "web | 2026-12-01 20:00:00+0800 INFO granian: ok"
