"""A MariaDB of a test's own, because it kills it, restarts it and changes its global variables."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import environ
import MySQLdb
import pytest
from django.core.management import call_command
from django.db import connection

from orders.models import VoucherOrder
from seckill_site.settings import database_options
from tests.support.stack import ROOT
from vouchers.models import SeckillVoucher

START_SECONDS = 60.0
SMALL = ("--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=64M")


def script_library(name: str, folder: str = "script/lib") -> ModuleType:
    """Return a module of ``script/lib``, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / folder / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(ROOT / "script" / "lib"))  # its neighbours are at the top too
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.path[0]
    return module


class OwnMariaDB:
    """A MariaDB with the shop's tables, which may be killed and started again."""

    def __init__(
        self,
        directory: Path,
        *,
        environ: dict[str, str] | None = None,
        options: Sequence[str] = SMALL,
    ) -> None:
        self._environ = {**os.environ, **(environ or {})}
        self._library = script_library("servers")
        self._server = self._library.MariaDB(directory / "mysql", options=options)
        self._log = directory / "mariadb.log"
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return str(self._server.url())

    def start(self) -> None:
        """Start it with what it had, and wait until it answers."""
        with self._log.open("ab") as log:
            command = self._server.prepare()
            self._popen = subprocess.Popen(command, stdout=log, stderr=log, env=self._environ)
        deadline = time.monotonic() + START_SECONDS
        while not self._library.answers(self.url):
            assert time.monotonic() < deadline, self._log.read_text(errors="replace")[-2_000:]
            time.sleep(0.02)

    def stop(self) -> None:
        """Ask it to end, and wait for it."""
        assert self._popen
        self._popen.terminate()
        self._popen.wait(START_SECONDS)
        self._popen = None

    def kill(self) -> None:
        """End it as a power cut would; a second time does nothing."""
        if self._popen:
            self._popen.kill()
            self._popen.wait(START_SECONDS)
            self._popen = None

    @contextmanager
    def admin(self) -> Iterator[Any]:
        """Yield a cursor of the account that may do everything."""
        account = MySQLdb.connect(
            unix_socket=str(self._server.socket), user=self._library.system_user(), autocommit=True
        )
        try:
            yield account.cursor()
        finally:
            account.close()

    @contextmanager
    def with_global(self, name: str, value: int) -> Iterator[None]:
        """Set a global variable for a while."""
        with self.admin() as cursor:
            cursor.execute(f"SELECT @@GLOBAL.{name}")
            (before,) = cursor.fetchone()
            cursor.execute(f"SET GLOBAL {name} = {value}")
        try:
            yield
        finally:
            with self.admin() as cursor:
                cursor.execute(f"SET GLOBAL {name} = {before}")


@contextmanager
def database_at(url: str) -> Iterator[None]:
    """Let this process and those it starts use another database, and leave no sale there."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _settings_of(url).items():
            patch.setitem(connection.settings_dict, name, value)
        patch.setenv("DATABASE_URL", url)
        connection.close()
        try:
            yield
            connection.close()  # whatever the test has done to it
            VoucherOrder.objects.all().delete()
            SeckillVoucher.objects.all().delete()
        finally:
            connection.close()


def make_tables(url: str) -> None:
    with database_at(url):
        call_command("migrate", verbosity=0)


def _settings_of(url: str) -> dict[str, Any]:
    parsed = environ.Env.db_url_config(url)
    options = {**database_options(parsed["ENGINE"]), **parsed.get("OPTIONS", {})}
    plain = {name: parsed[name] for name in ("NAME", "USER", "PASSWORD", "HOST", "PORT")}
    return {**plain, "OPTIONS": options}
