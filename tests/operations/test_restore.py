"""The drill: a database is lost amid a sale, another takes its place, and no order is lost.

Also what the scripts refuse, each with a sentence. They run as an administrator runs them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from orders.after_restore import Outcome, after_restore
from orders.lifecycle.cancellation import cancel_order
from orders.lifecycle.transitions import SYSTEM
from orders.models import OrderStatus, Payment, VoucherOrder
from orders.payments import providers
from orders.payments.service import poll_payments, start_payment
from seckill_site.redis.ledger_connection import ledger_connection
from tests.concurrency.sales import crowd_of, make_sale
from tests.faults.history import History
from tests.faults.private import SMALL, OwnMariaDB, database_at, make_tables
from tests.support.file_provider import BOOKS, PATH, FileProvider
from tests.support.patience import wait_for
from tests.support.payments import ADDRESSES
from tests.support.stack import ROOT, Stack, Web, beat_every, free_port
from vouchers.models import SeckillVoucher

pytestmark = [pytest.mark.operations, pytest.mark.usefixtures("row_locks")]

PROGRAMS = ("mariadb-backup", "mariadb-binlog", "mariadb-admin")
LOGGED = ("--log-bin=binlog", "--sync-binlog=1")


class Server(OwnMariaDB):
    """A MariaDB with binary logs, which a replica can reach over TCP."""

    def __init__(self, directory: Path, *, number: int = 1) -> None:
        self.directory, self.port = directory, free_port()
        tcp = ("--skip-networking=0", "--bind-address=127.0.0.1", f"--port={self.port}")
        super().__init__(directory, options=(*SMALL, *LOGGED, f"--server-id={number}", *tcp))

    @property
    def data(self) -> Path:
        return self.directory / "mysql" / "data"

    @property
    def socket(self) -> Path:
        return Path(self._server.socket)

    @property
    def account(self) -> Path:
        """The administrator's account, as a file of options."""
        path = self.directory / "account.cnf"
        user = self._library.system_user()
        path.write_text(f"[client]\nsocket = {self.socket}\nuser = {user}\n")
        return path

    def ask(self, statement: str) -> list[Any]:
        with self.admin() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())


def run(script: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "deploy" / script), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def manage(command: str, **environ: str) -> str:
    """Run a command of the shop, and return what it says."""
    return subprocess.run(
        [sys.executable, "manage.py", command],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    ).stdout


def done(script: str, *arguments: object) -> str:
    ended = run(script, *arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def refused(script: str, *arguments: object) -> str:
    """Return the sentence with which a script refuses; it is one line."""
    ended = run(script, *arguments)
    assert ended.returncode == 1, ended.stdout
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    return ended.stderr


@pytest.fixture(scope="module")
def template(
    tmp_path_factory: pytest.TempPathFactory, django_db_setup: None, django_db_blocker: Any
) -> Path:
    """The data of a server with the shop's tables."""
    missing = [it for it in PROGRAMS if not shutil.which(it)]
    if missing:
        pytest.skip(f"apt-get install mariadb-backup mariadb-client: no {', '.join(missing)}")
    server = Server(tmp_path_factory.mktemp("template"))
    server.start()
    with django_db_blocker.unblock():
        make_tables(server.url)
    server.stop()
    return server.data


@pytest.fixture
def server(template: Path, tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "server")
    server.data.parent.mkdir(parents=True)
    shutil.copytree(template, server.data)
    for log in server.data.glob("binlog.*"):
        log.unlink()
    server.start()
    yield server
    server.kill()


@pytest.fixture
def backups(server: Server, tmp_path: Path) -> Path:
    """A directory with a full copy."""
    backups = tmp_path / "backups"
    done("backup", "--to", backups, "--defaults-file", server.account, "full")
    return backups


@contextmanager
def copying_logs(server: Server, backups: Path) -> Iterator[Callable[[], None]]:
    """Copy the binary logs during the block; yields what waits until all is copied."""
    options = ["--to", str(backups), "--defaults-file", str(server.account), "logs"]
    copier = subprocess.Popen([ROOT / "deploy" / "backup", *options], start_new_session=True)

    def wait() -> None:
        name, size = server.ask("SHOW MASTER STATUS")[0][:2]
        copied = backups / "logs" / name
        wait_for(lambda: copied.exists() and copied.stat().st_size >= size, what="the copy")

    try:
        yield wait
    finally:
        with suppress(ProcessLookupError):
            os.killpg(copier.pid, signal.SIGTERM)
        copier.wait()


# --- The drill ------------------------------------------------------------------------------------


@pytest.fixture
def provider(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FileProvider:
    settings.SECKILL_PAYMENT_PROVIDERS = [PATH]
    monkeypatch.setenv("SECKILL_PAYMENT_PROVIDERS", PATH)
    monkeypatch.setenv(BOOKS, str(tmp_path / "books"))
    providers._load.cache_clear()
    return FileProvider()


class Evening:
    """A sale in a shop that is about to lose its database, and everything that was told."""

    def __init__(self, stack: Stack, provider: FileProvider) -> None:
        often = beat_every(watch_ledger=0.5, reconcile=0.5, expire=0.5, sweep=0.5)
        with stack.together():
            self.web: Web = stack.web()
            stack.worker("--beat", **often)
        self.provider, self.history = provider, History("D1", "database lost")
        self.sale = make_sale(stock=150)
        self.tokens = crowd_of(self.sale, count=200)
        self.paid: set[int] = set()
        self.cancelled: set[int] = set()

    def sell(self, count: int) -> list[int]:
        """Let the next buyers order, and wait for their rows."""
        some = [self.tokens.pop() for _ in range(count)]
        return self.sell_to(some)

    def sell_to(self, tokens: list[str]) -> list[int]:
        answers = self.history.fire(self.sale, tokens, url=self.web.url)
        assert {it.status for it in answers} == {202}, answers[0]
        self.history.settle(self.sale)
        return [int(it.body["order_id"]) for it in answers]

    def pay(self, order_ids: list[int]) -> None:
        for order_id in order_ids:
            now = timezone.now()
            url = start_payment(order_id=order_id, **ADDRESSES, now=now)
            self.provider.pay(url.rpartition("/")[2])
            self.paid.add(order_id)
        for order in VoucherOrder.objects.filter(pk__in=order_ids):
            order.payments.update(ask_at=timezone.now())
        poll_payments(now=timezone.now())
        assert set(order_ids) <= ids_with(OrderStatus.PAID)

    def cancel(self, order_ids: list[int]) -> None:
        for order_id in order_ids:
            cancel_order(order_id=order_id, by=SYSTEM, now=timezone.now())
            self.cancelled.add(order_id)

    def before_the_point(self) -> list[int]:
        """Sell what the restored database will have; return orders that are unpaid in it."""
        order_ids = self.sell(60)
        self.pay(order_ids[:20])
        return order_ids[20:]

    def after_the_point(self, unpaid: list[int]) -> int:
        """Sell, pay, cancel and sign up in the time that is lost; return the last user's id."""
        order_ids = self.sell(30)
        self.pay([*order_ids[:5], *unpaid[:5]])
        self.cancel([*order_ids[5:8], *unpaid[5:8]])
        self.sell_to(crowd_of(self.sale, count=4))
        return User.objects.latest("pk").pk

    def repair_and_check(self, *, last_user_id: int) -> dict[str, Any]:
        """Go on as the documentation says, and compare the report with what was told."""
        history, sale = self.history, self.sale
        self._nothing_moves_while_it_is_marked()
        accepted = history.accepted_ids(sale)
        restored = set(VoucherOrder.objects.values_list("pk", flat=True))
        foreseen = after_restore(repair=False, now=timezone.now())
        report = after_restore(repair=True, now=timezone.now())
        assert set(report.orders) == set(foreseen.orders) == accepted - restored
        written = {pk for pk, it in report.orders.items() if it.outcome == Outcome.WRITTEN}
        lost = {pk for pk, it in report.orders.items() if it.outcome == Outcome.LOST}
        assert written | lost == set(report.orders)
        assert written == (accepted - restored) & ids_with(*OrderStatus)
        assert len(lost) == 3 + 4, "three were cancelled, four had accounts that are gone"
        assert self.cancelled - lost <= ids_with(OrderStatus.CANCELLED)

        history.fire(sale, self.tokens, url=self.web.url)
        history.ask_again(sale, url=self.web.url)
        history.settle(sale)
        assert not report.payments.keys() - self.paid
        later = after_restore(repair=True, now=report.unknown[-1][-1])
        assert not later.unknown
        assert self.paid == ids_with(OrderStatus.PAID)
        assert User.objects.create(username="next").pk > last_user_id + 900_000
        outcome = history.outcome(sale)
        assert (outcome.lost, outcome.doubled, outcome.oversold) == (0, 0, 0), outcome
        assert outcome.orders == sale.stock, "all is sold in the end"
        history.check_answers()
        Payment.objects.all().delete()  # database_at() deletes the orders
        return {"accepted": len(accepted), "written": len(written), "lost": len(lost)}

    def _nothing_moves_while_it_is_marked(self) -> None:
        wait_for(lambda: not self.accepts(), what="a closed ledger")
        before = orders_and_sales()
        for _ in range(2):
            wait_for(partial(_is_after, _heartbeats()), what="another pass of beat")
        assert not self.accepts()
        assert orders_and_sales() == before

    def accepts(self) -> bool:
        (answer,) = self.history.fire(self.sale, self.tokens[-1:], url=self.web.url)
        if answer.status == 202:
            self.tokens.pop()
        return answer.status == 202


def orders_and_sales() -> list[Any]:
    orders = VoucherOrder.objects.order_by("pk")
    return [*orders.values_list(), *SeckillVoucher.objects.values_list()]


def ids_with(*statuses: OrderStatus) -> set[int]:
    orders = VoucherOrder.objects.filter(status__in=statuses)
    return set(orders.exclude(status=OrderStatus.REFUSED).values_list("pk", flat=True))


def _is_after(before: list[int]) -> bool:
    return all(new > old for new, old in zip(_heartbeats(), before, strict=True))


def _heartbeats() -> list[int]:
    tasks = ("watch_ledger", "reconcile", "expire", "sweep")
    beats = ledger_connection().hmget(
        "seckill:heartbeats", [f"task:orders.tasks.{it}" for it in tasks]
    )
    return [int(it or 0) for it in beats]


@pytest.mark.timeout(600)
def test_server_lost_amid_a_sale_is_restored(
    server: Server,
    backups: Path,
    provider: FileProvider,
    transactional_db: None,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    with database_at(server.url), Stack(tmp_path, database="seckill") as stack:
        evening = Evening(stack, provider)
        with copying_logs(server, backups) as wait_until_copied:
            unpaid = evening.before_the_point()
            wait_until_copied()
        last_user_id = evening.after_the_point(unpaid)
        connection.close()
        with evening.history.buying(
            evening.sale, [evening.tokens.pop() for _ in range(12)], url=evening.web.url
        ):
            server.kill()
            shutil.rmtree(server.data)
        began = time.monotonic()
        said = done("restore", "--from", backups, "--into", server.data, "--owner", owner())
        server.start()
        seconds = round(time.monotonic() - began, 1)
        figures = evening.repair_and_check(last_user_id=last_user_id)
    drill = {"drill": "server lost", **figures, "restored_s": seconds, "said": said.split(",")[0]}
    record_property("drill", json.dumps(drill))


@pytest.mark.timeout(600)
def test_replica_that_was_behind_is_promoted(
    server: Server,
    backups: Path,
    provider: FileProvider,
    transactional_db: None,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    copy = next(backups.glob("full-*Z")) / "data"
    replica = Server(tmp_path / "replica", number=2)
    replica.data.parent.mkdir(parents=True)
    shutil.copytree(copy, replica.data)
    replica.start()
    file, position = (copy / "xtrabackup_binlog_info").read_text().split()[:2]
    server.ask("CREATE USER replica@'127.0.0.1' IDENTIFIED BY 'secret'")
    server.ask("GRANT REPLICATION SLAVE ON *.* TO replica@'127.0.0.1'")
    replica.ask(
        f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={server.port},"
        " MASTER_USER='replica', MASTER_PASSWORD='secret',"
        f" MASTER_LOG_FILE='{file}', MASTER_LOG_POS={position}"
    )
    try:
        with database_at(server.url), Stack(tmp_path, database="seckill") as stack:
            evening = Evening(stack, provider)
            replica.ask("START SLAVE")
            unpaid = evening.before_the_point()
            file, position = server.ask("SHOW MASTER STATUS")[0][:2]
            replica.ask(f"DO MASTER_POS_WAIT('{file}', {position})")
            replica.ask("STOP SLAVE")
            last_user_id = evening.after_the_point(unpaid)
            connection.close()
            server.kill()
            began = time.monotonic()
            replica.ask("RESET SLAVE ALL")
            done("restore", "--mark", "--defaults-file", replica.account)
            named = manage("after_restore", DATABASE_URL=replica.url)
            assert named.count("written again") == 30 - 3
            assert not evening.accepts(), "all ledgers are closed before its address moves"
            server.socket.unlink(missing_ok=True)
            server.socket.symlink_to(replica.socket)  # its address leads to the other one now
            _take_account(server, replica)
            seconds = round(time.monotonic() - began, 1)
            figures = evening.repair_and_check(last_user_id=last_user_id)
    finally:
        replica.kill()
    record_property(
        "drill", json.dumps({"drill": "replica promoted", **figures, "promoted_s": seconds})
    )


def _take_account(server: Server, replica: Server) -> None:
    """Give the replica the password that the shop knows."""
    password = re.search(r"app:([0-9a-f]+)@", server.url)
    assert password
    replica.ask(f"ALTER USER app@localhost IDENTIFIED BY '{password[1]}'")


def owner() -> str:
    return subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()


# --- What the scripts refuse ----------------------------------------------------------------------


def test_restore_goes_up_to_a_given_time(server: Server, backups: Path, tmp_path: Path) -> None:
    with copying_logs(server, backups) as wait_until_copied:
        server.ask("INSERT INTO seckill.seckill_site_installation (identity) VALUES ('early')")
        until = server.ask("SELECT UTC_TIMESTAMP() + INTERVAL 1 SECOND")[0][0]
        wait_for(lambda: server.ask("SELECT UTC_TIMESTAMP()")[0][0] > until)
        server.ask("UPDATE seckill.seckill_site_installation SET identity = 'late'")
        wait_until_copied()
    assert "logs up to" in done("backup", "--to", backups, "check")
    for name, options in {"early": ["--until", until], "late": []}.items():
        other = Server(tmp_path / name)
        into = ["--from", backups, "--into", other.data, "--owner", owner()]
        done("restore", *into, *options)
        other.start()
        assert other.ask("SELECT identity FROM seckill.seckill_site_installation") == [(name,)]
        other.kill()


def test_backup_refuses_with_a_sentence(server: Server, tmp_path: Path) -> None:
    to = tmp_path / "to"
    wrong = tmp_path / "wrong.cnf"
    wrong.write_text(f"[client]\nsocket = {server.socket}\nuser = nobody\npassword = wrong\n")
    assert "refuses the account" in refused("backup", "--to", to, "--defaults-file", wrong, "full")
    full = tmp_path / "full"
    with small_disk(full):
        said = refused("backup", "--to", full, "--defaults-file", server.account, "full")
        assert "no space" in said
        assert not list(full.glob("full-*"))
    assert "has no full copy" in refused("backup", "--to", to, "check")


@contextmanager
def small_disk(directory: Path) -> Iterator[None]:
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(directory)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount")
    try:
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)


def test_copy_that_cannot_be_prepared_is_no_backup(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tool in its place does not copy what makes a copy whole."""
    tool, real = tmp_path / "bin" / "mariadb-backup", shutil.which("mariadb-backup")
    tool.parent.mkdir()
    tool.write_text(
        f'#!/bin/sh\n{real} "$@" || exit\n'
        "case $2 in --backup) for it; do case $it in --target-dir=*)"
        ' : >"${it#*=}/ibdata1" ;; esac; done ;; esac\n'
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}{os.pathsep}{os.environ['PATH']}")
    to = tmp_path / "to"
    said = refused("backup", "--to", to, "--defaults-file", server.account, "full")
    assert "cannot be prepared" in said
    assert not list(to.glob("full-*"))


def test_restore_refuses_with_a_sentence(server: Server, backups: Path, tmp_path: Path) -> None:
    """And leaves nothing half done."""
    with copying_logs(server, backups) as wait_until_copied:
        for number in range(3):
            server.ask(
                "REPLACE INTO seckill.seckill_site_installation (id, identity)"
                f" VALUES (1, 'number {number}')"
            )
            server.ask("FLUSH BINARY LOGS")
        wait_until_copied()
    into = tmp_path / "into"
    options = ("--from", backups, "--owner", owner(), "--into")
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "file").touch()
    assert "is not empty" in refused("restore", *options, taken)
    assert [it.name for it in taken.iterdir()] == ["file"]
    version = next(backups.glob("full-*Z")) / "version"
    good = version.read_text()
    version.write_text("10.6.16-MariaDB\n")
    assert "another version, 10.6.16-MariaDB" in refused("restore", *options, into)
    version.write_text(good)
    disk = tmp_path / "disk"
    with small_disk(disk):
        assert "no space" in refused("restore", *options, disk)
        assert not list(disk.iterdir())
    logs = sorted((backups / "logs").glob("binlog.*"))
    whole = logs[1].read_bytes()
    logs[1].write_bytes(whole[:-10] + b"0123456789")
    assert "is damaged" in refused("restore", *options, into)
    logs[1].unlink()
    assert "a gap in the binary logs" in refused("restore", *options, into)
    assert "a gap in the binary logs" in refused("backup", "--to", backups, "check")
    logs[1].write_bytes(whole)
    assert "no full copy from before" in refused(
        "restore", *options, into, "--until", "2020-01-01 00:00:00"
    )
    wrong = tmp_path / "wrong.cnf"
    wrong.write_text("[client]\nuser = nobody\npassword = wrong\n")
    assert "refuses the account" in refused("restore", *options, into, "--defaults-file", wrong)
    assert not into.exists()
    logs[-1].write_bytes(logs[-1].read_bytes()[:-5])  # the server was lost while it was copied
    done("restore", *options, into)


def test_logs_of_another_server_are_not_mixed(
    server: Server, backups: Path, tmp_path: Path
) -> None:
    with copying_logs(server, backups) as wait_until_copied:
        server.ask("FLUSH BINARY LOGS")
        wait_until_copied()
    server.ask("RESET MASTER")
    said = refused("backup", "--to", backups, "--defaults-file", server.account, "logs")
    assert "another directory" in said
