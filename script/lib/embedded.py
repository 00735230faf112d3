"""The embedded run: database, Redis, web, worker and beat of one shop on this machine.

``script/server`` prepares the virtual environment and then becomes this program. All data is in
``.run``; ``.run/env`` holds the settings of the last start, for ``script/manage``.
"""

import argparse
import errno
import fcntl
import hashlib
import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from servers import (
    BEHIND,
    CannotRun,
    MariaDB,
    Redis,
    celery,
    granian,
    granian_wsgi,
    mariadb_binary,
    redis_settings,
    web_answers,
    write_private,
)

ROOT = Path(__file__).resolve().parents[2]
RUN = ROOT / ".run"
PREPARE_SHOP = str(Path(__file__).with_name("prepare_shop.py"))
PREPARED = RUN / "prepared"
HELD_BY_ALL = ["--hold", str(RUN / "lock"), "--again-once", str(PREPARED)]
USER_OF_SERVERS = [*HELD_BY_ALL, "--hold", str(RUN / "in-use")]
SERVER = [*HELD_BY_ALL, "--after", str(RUN / "in-use")]
LOCAL_HOSTS = ("localhost", "127.0.0.1", "[::1]")
PYTHON_SETTINGS = {
    "DJANGO_SETTINGS_MODULE": "seckill_site.settings",
    "PYTHONUNBUFFERED": "1",
    "PYTHONWARNINGS": "ignore:You're running the worker with superuser privileges",
}
SOMEWHERE_ELSE = "198.51.100.1"  # an address reserved for documentation
EVERY_ADDRESS = ("0.0.0.0", "::")
SHOP_TIME_ZONE = "Asia/Shanghai"
SANDBOX = "orders.payments.sandbox.Sandbox"
LAYOUT = "2"
"""The version of the data in ``.run``. Data without a version is version 1."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="script/server")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--mysql", action="store_true")
    parser.add_argument("--no-front-door", action="store_true")
    parser.add_argument("--check", action="store_true", help="only see whether it could start")
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # before the parts run there is nothing to tidy up
    try:
        with only_one():
            check_layout()
            check_port(arguments.host, arguments.port)
            if arguments.mysql:
                mariadb_binary("mariadbd")
            return 0 if arguments.check else run(arguments)
    except CannotRun as reason:
        sys.stderr.write(f"server: {reason}\n")
        return 1
    except OSError as error:  # a full disk, or one that cannot be written to
        if error.filename is None:
            raise
        sys.stderr.write(f"server: cannot write {error.filename}: {error.strerror}\n")
        return 1


# --- Before anything is installed or started ------------------------------------------------------


@contextmanager
def only_one() -> Iterator[None]:
    """Hold the lock of ``.run``, because two runs would corrupt the data.

    The parts then share the lock, as they may outlive this process by some seconds.
    """
    RUN.mkdir(mode=0o700, exist_ok=True)
    with (RUN / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotRun("script/server runs here already: stop it first (Ctrl-C)") from None
        yield


def check_layout() -> None:
    path = RUN / "layout"
    unmarked = "1" if any((RUN / name).exists() for name in ("sqlite", "mysql")) else LAYOUT
    layout = path.read_text().strip() if path.exists() else unmarked
    if layout != LAYOUT:
        text = f".run has data of layout {layout}, this version reads {LAYOUT}"
        raise CannotRun(f"{text}: move .run away to start with new data")
    path.write_text(LAYOUT)


def check_port(host: str, port: int) -> None:
    if not 0 < port < 65_536:
        raise CannotRun(f"{port} is no port: choose one from 1024 to 65535 with --port")
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except PermissionError:
        raise CannotRun(f"port {port} needs root: choose one from 1024 on with --port") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise CannotRun(f"port {port} is in use: choose another with --port N") from None
        raise CannotRun(f"cannot listen on {host}, port {port}: {error}") from None


# --- The run --------------------------------------------------------------------------------------


def run(arguments: argparse.Namespace) -> int:
    """Start everything and return the exit status of the part that ended it."""
    from supervisor import Supervisor  # only the virtual environment has honcho

    data = RUN / ("mysql" if arguments.mysql else "sqlite")
    data.mkdir(mode=0o700, exist_ok=True)
    os.environ["TZ"] = os.environ.get("SECKILL_SHOP_TIME_ZONE") or SHOP_TIME_ZONE
    time.tzset()  # one clock for the log lines of all parts
    supervisor = Supervisor()
    redis = Redis(data / "redis")
    mariadb = MariaDB(data) if arguments.mysql else None
    supervisor.add_part("redis", redis.prepare(), *SERVER, cwd=redis.directory)
    if mariadb:
        supervisor.add_part("mariadb", mariadb.prepare(), *SERVER, *BEHIND, cwd=data)
    settings = settings_of(arguments, redis, mariadb, data)
    lines = [f"{name}={shlex.quote(value)}\n" for name, value in settings.items()]
    write_private(RUN / "env", "".join(lines))
    environ = {**os.environ, **settings, **PYTHON_SETTINGS}
    metrics = RUN / "metrics"
    shutil.rmtree(metrics, ignore_errors=True)
    metrics.mkdir()
    environ["PROMETHEUS_MULTIPROC_DIR"] = str(metrics)
    PREPARED.unlink(missing_ok=True)
    python = [sys.executable, "-m"]
    once_prepared = [*USER_OF_SERVERS, "--once", str(PREPARED)]
    serve = granian_wsgi if arguments.no_front_door else granian
    web = [*python, *serve(arguments.host, arguments.port, "--respawn-failed-workers")]
    options = USER_OF_SERVERS if is_current(data) else once_prepared
    supervisor.add_part("web", web, *options, env=environ, cwd=ROOT)
    # All stop when a part ends before the shop is prepared, so the worker prepares it first.
    accounts = data / "accounts"
    prepare = [sys.executable, PREPARE_SHOP, str(PREPARED), str(accounts), "-m"]
    # SQLite has one writer at a time, and the demo no slow provider: one worker saves memory.
    for name, command in celery(in_one=not mariadb).items():
        is_first = name == "worker"
        command = [*(prepare if is_first else python), *command]
        options = USER_OF_SERVERS if is_first else once_prepared
        supervisor.add_part(name, command, *options, *BEHIND, env=environ, cwd=ROOT)
    sys.stdout.write("Starting the shop: tables, static files and demo are made or renewed ...\n")
    sys.stdout.flush()
    return supervisor.run(lambda: announce(arguments.host, arguments.port, accounts))


def is_current(data: Path) -> bool:
    """Return whether the tables and the static files match this clone, so web need not wait."""
    state = data / "state"
    is_known = state.exists() and state.read_text() == state_of_clone()
    return is_known and (data / "static").exists()


def state_of_clone() -> str:
    """Return a digest of what tables and static files are made of."""
    digest = hashlib.sha256((ROOT / "requirements.lock").read_bytes())
    for pattern in ("static/**/*", "*/static/**/*", "*/migrations/*.py"):
        for path in sorted(filter(Path.is_file, ROOT.glob(pattern))):
            digest.update(f"{path} {path.stat().st_mtime_ns}".encode())
    return digest.hexdigest()


def settings_of(
    arguments: argparse.Namespace, redis: Redis, mariadb: MariaDB | None, data: Path
) -> dict[str, str]:
    host = own_address() if arguments.host in EVERY_ADDRESS else arguments.host
    url = f"http://{in_url(host)}:{arguments.port}"
    secret = RUN / "secret_key"
    if not secret.exists() or not secret.read_text():
        write_private(secret, secrets.token_urlsafe(50))
    database = mariadb.url() if mariadb else f"sqlite:///{quote(str(data / 'seckill.sqlite3'))}"
    return {
        "SECRET_KEY": secret.read_text(),
        "DEBUG": "false",
        "ALLOWED_HOSTS": os.environ.get("ALLOWED_HOSTS") or ",".join(hosts_of(arguments.host)),
        "DATABASE_URL": database,
        **redis_settings(redis.url()),
        "STATIC_ROOT": str(data / "static"),
        "SECKILL_SITE_URL": os.environ.get("SECKILL_SITE_URL") or url,
        "SECKILL_PAYMENT_PROVIDERS": os.environ.get("SECKILL_PAYMENT_PROVIDERS") or SANDBOX,
        "SECKILL_SHOP_TIME_ZONE": os.environ["TZ"],
    }


def in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def hosts_of(host: str) -> list[str]:
    """Return the host names that a request may use; on every address there are several."""
    if host not in EVERY_ADDRESS:
        return sorted({*LOCAL_HOSTS, in_url(host)})
    return sorted({*LOCAL_HOSTS, socket.gethostname(), own_address()})


def own_address() -> str:
    """Return this machine's address in its network. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((SOMEWHERE_ELSE, 9))
        except OSError:  # no network at all
            return LOCAL_HOSTS[1]
        address: str = probe.getsockname()[0]
        return address


def announce(host: str, port: int, accounts: Path) -> None:
    local = LOCAL_HOSTS[1] if host in EVERY_ADDRESS else host
    while not (PREPARED.exists() and web_answers(port, local)):
        time.sleep(0.1)
    banner = banner_of(f"http://{in_url(local)}:{port}/", json.loads(accounts.read_text()))
    with suppress(OSError):
        os.write(sys.stdout.fileno(), banner.encode())
        accounts.unlink()  # with the passwords: they are shown once


def banner_of(url: str, passwords: Mapping[str, str | None]) -> str:
    """Return the last lines of a start; a password that was shown before is unknown."""
    lines = [
        f"The shop is open:  {url}",
        f"Its back office:   {url}admin/",
        *account_lines(passwords),
        "Commands:          script/manage help   (in another terminal)",
        "Stop:              Ctrl-C",
    ]
    return "".join(["\n", *(f"    {line}\n" for line in lines), "\n"])


def account_lines(passwords: Mapping[str, str | None]) -> Iterator[str]:
    label = "Accounts:"
    for name, password in passwords.items():
        yield f"{label:<18} {name:<8} {password or '(password shown at the first start)'}"
        label = ""
    if any(passwords.values()):
        yield f"{'':<18} These passwords are shown this once."
    if passwords:
        yield f"{'New password:':<18} script/manage changepassword {next(iter(passwords))}"


if __name__ == "__main__":
    sys.exit(main())
