"""What all tests share: emptied Redis databases, static files, real processes, Debian's Chromium.

``script/test`` gives the servers and the settings; see its ``--help``.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import connection
from django.db.backends.signals import connection_created
from django.test import TransactionTestCase
from redis import Redis

from accounts import mails
from orders.audience.caps import capped_accounts
from orders.placing import publishing
from seckill_site.celery import app
from seckill_site.clocks import ledger as ledger_clock
from seckill_site.face import owners_settings
from seckill_site.mysql import base as mysql
from seckill_site.process_memory import Buffer, forget_everything
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.database import delete_rows

pytest_plugins = [
    "tests.faults.table",
    "tests.fixtures.locks",
    "tests.fixtures.orders",
    "tests.fixtures.processes",
    "tests.fixtures.site",
    "tests.fixtures.stalls",
    "tests.fixtures.vouchers",
]

# Playwright's synchronous API keeps an event loop running in the thread of the tests. Django takes
# that for asynchronous code and refuses the database, although everything here is synchronous.
os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"

HERE = Path(__file__).parent

CHROMIUM_ARGUMENTS = [
    "--no-sandbox",  # Chromium refuses to run as root with it
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


WHOLLY_SLOW = re.compile(
    r"^pytestmark = (\[[^\]]*)?pytest\.mark\.(slow|faults|operations|cluster)\b", re.MULTILINE
)

PARTLY_SLOW = re.compile(r"pytest\.mark\.slow|slow_after|stand_ins\.lives|on_both_ways")
"""The last two have parameters for many modules, of which some are slow."""

NEEDED_IN: dict[str, Callable[[str], bool]] = {
    "quick and not servers and not slow": lambda text: "pytest.mark.quick" in text,
    "not slow and not faults and not operations and not cluster": lambda text: (
        not WHOLLY_SLOW.search(text)
    ),
    "slow and not faults": lambda text: bool(PARTLY_SLOW.search(text)),
    "operations": lambda text: "pytest.mark.operations" in text,
    "cluster": lambda text: "pytest.mark.cluster" in text,
}
"""The modules that a tier of ``script/test`` imports, by its markers: all take long to import."""


LONGEST_VALUE = 80


def pytest_configure() -> None:
    if "SECKILL_SCRATCH" not in os.environ:
        raise pytest.UsageError(
            "the tests empty the databases of REDIS_URL, CACHE_URL and CELERY_BROKER_URL: run "
            "script/test, or name a scratch directory in SECKILL_SCRATCH to say that they may"
        )


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a long value by its beginning: its id goes to every process, and into every report."""
    if not isinstance(val, str | bytes) or len(val) <= LONGEST_VALUE:
        return None
    return f"{val[:20]!r} and {len(val) - 20} more"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip importing the modules without a test of the tier."""
    return is_left_out(collection_path, config) or None


def is_left_out(path: Path, config: pytest.Config) -> bool:
    is_module = path.name.startswith("test_") and path.suffix == ".py"
    is_needed = NEEDED_IN.get(config.option.markexpr.removesuffix(" and not browser"))
    return is_module and is_needed is not None and not is_needed(path.read_text(encoding="utf-8"))


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Let each worker import a share of the modules first.

    In a fresh clone pytest rewrites the assertions of every module, which takes longer than most
    of the tests. So each worker does this for its share, and finds that of the others done.
    """
    worker: dict[str, Any] = getattr(session.config, "workerinput", {})
    if not worker or session.config.args != session.config.getini("testpaths"):
        return
    modules = [it for it in sorted(HERE.rglob("test_*.py")) if not is_left_out(it, session.config)]
    number = int(worker["workerid"].removeprefix("gw"))
    for path in modules[number :: worker["workercount"]]:
        name = ".".join(path.relative_to(HERE.parent).with_suffix("").parts)
        with suppress(Exception):  # it is imported again, and reported
            import_module(name)


# --- Servers --------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def redis_databases() -> Iterator[list[Redis]]:
    """One client for each Redis database of the settings: ledger, cache, broker."""
    urls = [settings.REDIS_URL, settings.CACHES["default"]["LOCATION"], settings.CELERY_BROKER_URL]
    clients = [Redis.from_url(url) for url in dict.fromkeys(urls)]
    yield clients
    for client in clients:
        client.close()


@pytest.fixture(scope="module")
def kept_databases(
    django_db_setup: None, django_db_blocker: Any, redis_databases: list[Redis]
) -> Iterator[None]:
    """The databases of a module whose tests share processes.

    Redis is emptied before the module, the database after it.
    """
    with django_db_blocker.unblock():
        for client in redis_databases:
            client.flushdb()
        yield
        delete_rows()


def has_servers(test: pytest.Item) -> bool:
    """Return whether a test may use the servers: a quick one has none."""
    return not test.get_closest_marker("quick") or bool(test.get_closest_marker("servers"))


@pytest.fixture(autouse=True)
def empty_redis(request: pytest.FixtureRequest) -> None:
    """Start each test with an empty ledger, cache and broker, unless it shares or needs none."""
    if not has_servers(request.node) or "kept_databases" in request.fixturenames:
        return
    clients: list[Redis] = request.getfixturevalue("redis_databases")
    for client in clients:
        client.flushdb()


@pytest.fixture(autouse=True)
def logging_left_alone() -> Iterator[None]:
    """Fail a test that leaves another level: later ones would wait for a warning in vain."""
    before = logging.root.level, logging.root.manager.disable
    yield
    assert (logging.root.level, logging.root.manager.disable) == before


@pytest.fixture(autouse=True)
def breaker_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test find a server as soon as it is back, but the broker not before a minute."""
    for breaker in (ledger_connection().connection_pool.breaker, mysql.breaker, mails.breaker):
        monkeypatch.setattr(breaker, "pause_s", 0)
    monkeypatch.setattr(publishing.breaker, "pause_s", 60)


@pytest.fixture(autouse=True)
def nothing_committed(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test whose rows would stay: what defines or analyses a table commits unasked."""
    marker = request.node.get_closest_marker("django_db")
    if not marker or marker.kwargs.get("transaction") or "transactional_db" in request.fixturenames:
        yield
        return
    request.getfixturevalue("db")
    if connection.connection is None or not connection.in_atomic_block:
        yield
        return
    start, before = connection.savepoint(), connection.connection
    assert start
    yield
    if connection.connection is before and not connection.needs_rollback:
        connection.savepoint_commit(start)


@pytest.fixture(scope="session")
def redis_clock(redis_databases: list[Redis]) -> Any:
    """What Redis said of its time as the tests began."""
    ledger_clock.refresh_ledger_time()
    return ledger_clock._clock.value


@pytest.fixture(autouse=True)
def new_memory(request: pytest.FixtureRequest) -> None:
    """Start each test as a new process, except that it does not have to ask for the time, the
    settings of owners, nor the accounts with too many unpaid orders: that would be counted among a
    test's own commands."""
    forget_everything()
    capped_accounts.trust(for_s=3600)
    owners_settings.known.trust(for_s=3600)
    if has_servers(request.node):
        ledger_clock._clock.learn(request.getfixturevalue("redis_clock"), for_s=3600)
    else:
        ledger_clock._clock.trust(for_s=3600)


@pytest.fixture(scope="session", autouse=True)
def flush_timer() -> Iterator[Callable[..., None]]:
    """Let a test flush what this process has counted, by hand: a timer would add commands of its
    own to those that are counted. Yields what starts the timers."""
    timer = Buffer._flush_in
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Buffer, "_flush_in", lambda *_, **__: None)
        yield timer


@pytest.fixture(scope="session", autouse=True)
def quick_flush() -> Iterator[None]:
    """Let the tests that commit end with ``delete_rows``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", delete_rows)
        yield


@pytest.fixture(scope="session", autouse=True)
def first_broker() -> None:
    """Make Celery's pool of producers before a test names another broker: it never changes."""
    assert app.producer_pool


@pytest.fixture
def row_locks(db: None) -> None:
    """Insist on row locks: on SQLite a race test would pass for the wrong reason."""
    if not connection.features.has_select_for_update:
        pytest.fail(f"this test needs row locks, and {connection.vendor} has none")


@pytest.fixture(scope="session", autouse=True)
def patient_transactions() -> Iterator[None]:
    """Let no transaction of a test end because the machine stood still for ten seconds."""

    def be_patient(connection: Any, **_: Any) -> None:
        if connection.vendor == "mysql":
            with connection.cursor() as cursor:
                cursor.execute("/*M!100300 SET SESSION idle_transaction_timeout = 120 */")

    connection_created.connect(be_patient)
    yield
    connection_created.disconnect(be_patient)


@pytest.fixture(scope="session", autouse=True)
def static_files() -> Iterator[None]:
    """Collect the static files once: pages name them by their hashes.

    WhiteNoise looks for a file when it is asked for. By default it reads all of them for each
    ``Client`` that a test makes, which took a third of the time of the tests of pages.
    """
    if not (Path(settings.STATIC_ROOT) / "staticfiles.json").exists():
        call_command("collectstatic", interactive=False, verbosity=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settings, "WHITENOISE_AUTOREFRESH", True, raising=False)
        yield


# --- Browser --------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    """Drive Debian's Chromium instead of a downloaded one.

    The headless shell is Chromium without its windows, and takes half the processor time.
    """
    chromium = shutil.which("chromium-headless-shell")
    if not chromium:
        pytest.fail("no Chromium: script/test installs it, as root or with sudo")
    return {
        **browser_type_launch_args,
        "executable_path": chromium,
        "args": [*browser_type_launch_args.get("args", []), *CHROMIUM_ARGUMENTS],
    }
