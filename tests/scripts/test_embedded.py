"""The embedded run: the banner at the end of a start, and the accounts in it."""

from __future__ import annotations

import datetime as dt
import io
import json
import re
import sys
from importlib import import_module
from pathlib import Path
from threading import Thread
from types import ModuleType

import pytest
from django.contrib.auth.models import User

from tests.support.patience import eventually
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


def test_web_is_loaded_with_the_static_files_and_serves_once_prepared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "script" / "lib"))
    import prepared_web

    monkeypatch.setattr(prepared_web, "PREPARED", tmp_path / "prepared")
    monkeypatch.setenv("STATIC_ROOT", str(tmp_path / "static"))
    imported: list[str] = []

    def noted_import(name: str) -> ModuleType:
        imported.append(name)
        return import_module(name)

    monkeypatch.setattr(prepared_web, "import_module", noted_import)
    loading = Thread(target=lambda: getattr(prepared_web, "wsgi"))  # noqa: B009
    loading.start()
    loading.join(0.2)
    assert loading.is_alive()
    assert not imported

    (tmp_path / "static").mkdir()
    (tmp_path / "static-state").write_text(prepared_web.state_of_static_files())
    assert eventually(lambda: imported == ["seckill_site.wsgi"])
    loading.join(0.2)
    assert loading.is_alive()
    (tmp_path / "prepared").touch()
    loading.join(5)
    assert not loading.is_alive()


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
