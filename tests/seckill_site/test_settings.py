"""Settings that correctness leans on, asked of real connections and of real processes."""

from __future__ import annotations

import runpy
import subprocess
import sys
from contextlib import closing

import pytest
from django.conf import settings as site
from django.core.cache import cache
from django.core.exceptions import ImproperlyConfigured
from django.db import DataError, OperationalError, connection, transaction
from django.db.utils import ConnectionHandler
from django.test import Client
from redis import Redis

from seckill_site.celery import app
from seckill_site.settings import database_options
from tests.support.sales import make_voucher

# --- the database --------------------------------------------------------------------------------


@pytest.fixture
def variable(db):
    """Return a variable of a session as MariaDB has it, before the tests change any."""
    session = connection.get_new_connection(connection.get_connection_params())

    def read(name):
        with closing(session.cursor()) as cursor:
            cursor.execute(f"SELECT @@session.{name}")
            return cursor.fetchone()[0]

    yield read
    session.close()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("idle_transaction_timeout", 10),
        ("innodb_lock_wait_timeout", 3),
        ("tx_isolation", "READ-COMMITTED"),
        ("character_set_client", "utf8mb4"),
        ("character_set_connection", "utf8mb4"),
    ],
)
def test_every_mariadb_session_has(variable, name, value):
    assert variable(name) == value


@pytest.mark.django_db(transaction=True)
def test_mariadb_is_strict(variable):
    assert "STRICT_TRANS_TABLES" in variable("sql_mode").split(",")


@pytest.mark.django_db
def test_too_long_text_is_refused_not_clipped():
    with pytest.raises(DataError), transaction.atomic():
        make_voucher(title="x" * 121)


@pytest.fixture
def sqlite(tmp_path):
    """Two connections to one SQLite file with the site's options."""
    engine = "django.db.backends.sqlite3"
    database = {
        "ENGINE": engine,
        "NAME": str(tmp_path / "db.sqlite3"),
        "OPTIONS": database_options(engine),
    }
    handlers = [ConnectionHandler({"default": dict(database)}) for _ in range(2)]
    connections = [handler["default"] for handler in handlers]
    yield connections
    for each in connections:
        each.close()


def test_sqlite_uses_wal_and_long_waits(sqlite, django_db_blocker):
    with django_db_blocker.unblock(), sqlite[0].cursor() as cursor:
        assert cursor.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert cursor.execute("PRAGMA busy_timeout").fetchone()[0] == 20_000


def test_sqlite_serialises_writers_from_first_statement(sqlite, django_db_blocker):
    """It has no row locks: a transaction that only reads so far holds off the next one."""
    first, second = sqlite
    with django_db_blocker.unblock():
        second.settings_dict["OPTIONS"]["timeout"] = 0.05
        for each in sqlite:
            each.connect()
        first.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
        try:
            with pytest.raises(OperationalError, match="locked"):
                second.set_autocommit(False, force_begin_transaction_with_broken_autocommit=True)
        finally:
            first.rollback()


# --- Redis ---------------------------------------------------------------------------------------


def test_clearing_the_cache_leaves_the_ledger(ledger):
    ledger.set("seckill:{1}:sale", "here")

    cache.clear()

    assert ledger.get("seckill:{1}:sale") == "here"


def test_cache_may_be_missing_but_not_ledger():
    assert site.CACHES["default"]["OPTIONS"]["IGNORE_EXCEPTIONS"] is True
    assert "IGNORE_EXCEPTIONS" not in site.CACHES["ledger"]["OPTIONS"]


def test_cache_stores_json_not_pickle():
    cache.set("k", {"a": [1, "x"]})

    [raw] = [
        client.get(key)
        for client in [Redis.from_url(site.CACHES["default"]["LOCATION"])]
        for key in client.scan_iter("*k")
    ]

    assert raw == b'{"a": [1, "x"]}'


# --- Celery --------------------------------------------------------------------------------------


def test_celery_acknowledges_late_and_limits_time():
    assert app.conf.task_acks_late
    assert app.conf.task_reject_on_worker_lost
    assert app.conf.worker_prefetch_multiplier == 1
    assert app.conf.broker_connection_max_retries is None
    assert app.conf.worker_cancel_long_running_tasks_on_connection_loss


def test_celery_ignores_results_and_accepts_only_json():
    assert app.conf.task_ignore_result
    assert not app.conf.result_backend
    assert list(app.conf.accept_content) == ["json"]
    assert app.conf.task_serializer == "json"


# --- pages ---------------------------------------------------------------------------------------


def test_https_only_redirects_everything_but_probes(settings):
    settings.SECURE_SSL_REDIRECT = True
    client = Client()

    assert client.get("/accounts/login/").status_code == 301
    assert client.get("/accounts/login/")["Location"].startswith("https://")
    assert client.get("/healthz").status_code == 200
    assert client.get("/metrics").status_code == 200


# --- the environment -----------------------------------------------------------------------------


def read_settings():
    """Run the settings' module as an import would, on the environment of this process."""
    return runpy.run_path(str(site.BASE_DIR / "seckill_site" / "settings.py"))


@pytest.mark.parametrize(
    "name", ["SECRET_KEY", "DATABASE_URL", "REDIS_URL", "CACHE_URL", "CELERY_BROKER_URL"]
)
def test_missing_required_setting_is_named(monkeypatch, name):
    monkeypatch.delenv(name)

    with pytest.raises(ImproperlyConfigured, match=name):
        read_settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SECKILL_LEDGER_REPLICAS", "-1"),
        ("SECKILL_LEDGER_REPLICAS_MS", "0"),
        ("SECKILL_LEDGER_REPLICAS_MS", "451"),
        ("SECKILL_LEDGER_DAYS", "0"),
        ("SECKILL_LEDGER_DAYS", "a week"),
        ("SECKILL_LEDGER_DAYS", "7.5"),
        ("SECKILL_LEDGER_DAYS", "9999999999"),
        ("SECKILL_QUORUM_QUEUES", "true"),  # with Redis as the broker
    ],
)
def test_impossible_value_is_refused(monkeypatch, name, value):
    monkeypatch.setenv(name, value)

    with pytest.raises(ImproperlyConfigured, match=name):
        read_settings()


@pytest.mark.parametrize(
    ("ledger_url", "cache_url"),
    [
        ("redis://127.0.0.1:6379/3", "redis://127.0.0.1:6379/3"),
        ("redis://127.0.0.1:6379", "redis://127.0.0.1:6379/0"),
        ("redis://127.0.0.1/0", "redis://127.0.0.1:6379/0"),
        ("redis+sentinel://h1,h2/shop/1", "redis+sentinel://h2:26379/shop/1"),
    ],
)
def test_settings_refuse_cache_in_ledgers_database(monkeypatch, ledger_url, cache_url):
    monkeypatch.setenv("REDIS_URL", ledger_url)
    monkeypatch.setenv("CACHE_URL", cache_url)

    with pytest.raises(ImproperlyConfigured, match="same database"):
        read_settings()


@pytest.mark.parametrize("name", ["REDIS_URL", "CACHE_URL", "CELERY_BROKER_URL"])
def test_setting_without_an_address_is_named(monkeypatch, name):
    monkeypatch.setenv(name, "redis+sentinel://h1/shop/first")

    with pytest.raises(ImproperlyConfigured, match=f"{name} is no address of a Redis: the form is"):
        read_settings()


def test_celery_reaches_a_service_although_it_prefers_the_environment(monkeypatch):
    monkeypatch.setenv("CELERY_BROKER_URL", "redis+sentinel://h1,h2/shop/2")
    with_service = read_settings()

    assert with_service["CELERY_BROKER_WRITE_URL"] == "redis://shop/2"
    assert "connection_class" in with_service["CELERY_BROKER_TRANSPORT_OPTIONS"]


@pytest.mark.slow
def test_required_settings_alone_suffice():
    needed = {
        "DJANGO_SETTINGS_MODULE": "seckill_site.settings",
        "SECRET_KEY": "x",
        "DATABASE_URL": "sqlite:////tmp/never-made.sqlite3",
        "REDIS_URL": "redis://127.0.0.1:1/0",
        "CACHE_URL": "redis://127.0.0.1:1/1",
        "CELERY_BROKER_URL": "redis://127.0.0.1:1/2",
    }
    program = "import django; django.setup()"

    done = subprocess.run(
        [sys.executable, "-c", program], env=needed, cwd=site.BASE_DIR, stderr=subprocess.PIPE
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("https_only", "networks"), [("true", 0), ("false", 2)])
def test_behind_a_proxy_no_network_is_unlimited(
    monkeypatch: pytest.MonkeyPatch, https_only: str, networks: int
) -> None:
    monkeypatch.delenv("SECKILL_UNLIMITED_NETWORKS", raising=False)
    monkeypatch.setenv("SECKILL_HTTPS_ONLY", https_only)
    assert len(read_settings()["SECKILL_UNLIMITED_NETWORKS"]) == networks
