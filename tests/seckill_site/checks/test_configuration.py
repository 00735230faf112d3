"""Each start-up check finds its cause where it is, and is silent where it is not."""

from __future__ import annotations

import importlib.metadata
import inspect
import logging
import os
import re
import runpy
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from unittest import mock
from urllib.parse import urlsplit

import pytest
from django.conf import settings as site
from django.core.checks import registry
from django.core.management import CommandError, call_command
from django.core.management.base import SystemCheckError
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from orders.models import VoucherOrder
from seckill_site import settings as product_settings
from seckill_site.celery import app
from seckill_site.checks import configuration, findings, keys, services
from seckill_site.checks.configuration import SETTINGS, found_by
from seckill_site.redis.ledger_connection import ledger_connection
from seckill_site.static_storage import StaticStorage
from tests.faults.conftest import OwnRedis
from tests.fixtures.site import CLOSED_PORT
from tests.support.patience import wait_for
from tests.support.sentinels import Sentinel, monitor
from tests.support.stand_ins.keys import key_pair
from tests.support.tiers import slow_after
from vouchers.models import SeckillVoucher

GOOD_KEY = "8J2c-Qw7_nR5tYzK1mXbV4hLpD9sGfAe0uTiOoPq"


def ids(*asked):
    return [str(message.id).removeprefix("seckill.") for message in found_by(*asked)]


# --- settings: the ledger's connection -----------------------------------------------------------


@pytest.fixture
def ledger_options(settings):
    """Change the options of the ledger's connection."""

    def change(**options):
        ledger = {**settings.CACHES["ledger"]}
        ledger["OPTIONS"] = {**ledger["OPTIONS"], **options}
        settings.CACHES = {**settings.CACHES, "ledger": ledger}

    return change


def test_present_settings_pass_all_checks():
    assert ids(configuration.check_settings) == []


def test_ledger_ignoring_exceptions_is_an_error(ledger_options):
    ledger_options(IGNORE_EXCEPTIONS=True)

    assert ids(configuration.check_ledger_options) == ["E001"]


def test_ledger_ignoring_exceptions_by_global_setting_is_an_error(settings):
    settings.DJANGO_REDIS_IGNORE_EXCEPTIONS = True

    assert ids(configuration.check_ledger_options) == ["E001"]


@pytest.mark.parametrize("pool", [{}, {"retry": Retry(NoBackoff(), 3)}])
def test_ledger_with_retries_is_an_error(ledger_options, pool):
    ledger_options(CONNECTION_POOL_KWARGS={"decode_responses": True, **pool})

    assert ids(configuration.check_ledger_options) == ["E002"]


# --- settings: the broker ------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["socket_timeout", "socket_connect_timeout"])
@pytest.mark.parametrize("value", [None, 0])
def test_broker_without_timeout_is_an_error(monkeypatch, name, value):
    monkeypatch.setitem(app.conf.broker_transport_options, name, value)

    [error] = found_by(configuration.check_broker_options)

    assert error.id == "seckill.E003"
    assert f"no {name}." in error.msg


def test_early_acknowledgement_is_an_error(monkeypatch):
    monkeypatch.setattr(app.conf, "task_acks_late", False)

    assert ids(configuration.check_broker_options) == ["E004"]


@pytest.mark.parametrize("seconds", [None, 120, 3600])
def test_time_limit_above_visibility_timeout_is_an_error(monkeypatch, seconds):
    monkeypatch.setattr(app.conf, "task_time_limit", seconds)

    assert ids(configuration.check_broker_options) == ["E005"]


def test_missing_visibility_timeout_is_an_error(monkeypatch):
    monkeypatch.delitem(app.conf.broker_transport_options, "visibility_timeout")

    assert ids(configuration.check_broker_options) == ["E005"]


# --- settings: versions --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "number", "fits"),
    [
        ("redis", "6.3.9", False),
        ("redis", "6.4.0", True),
        ("redis", "8.99", True),
        ("redis", "9.0.0b1", False),
        ("kombu", "5.6.2", False),
        ("kombu", "5.7.99", True),
        ("celery", "5.8.0", False),
        ("django-redis", "6.0.0", False),
        ("django-redis", "8.0", False),
    ],
)
def test_untried_library_version_is_an_error(monkeypatch, name, number, fits):
    installed = importlib.metadata.version
    monkeypatch.setattr(
        configuration, "version", lambda of: number if of == name else installed(of)
    )

    assert ids(configuration.check_versions) == ([] if fits else ["E006"])


# --- settings: what strangers could use ----------------------------------------------------------


SANDBOX = "orders.payments.sandbox.Sandbox"
WEAK_KEYS = [
    "x" * 63, "abc123" * 10, GOOD_KEY[:31], f"django-insecure-{GOOD_KEY}", f"change-me-{GOOD_KEY}",
]  # fmt: skip
LOCAL_HOSTS = ["localhost", "shop.localhost", "127.0.0.1", "[::1]"]
ODD_URLS = ["", "shop.example", "ftp://shop.example", "http://", "https://shop.example:x", "//a"]
GOOD_URLS = ["https://shop.example", "http://127.0.0.1:8000", "http://[::1]:8"]

PRINTED = "django.core.mail.backends.console.EmailBackend"
CHECKED = [
    *(
        (configuration.check_debug, True, {"ALLOWED_HOSTS": ["localhost", host]}, ["W001"])
        for host in ("shop.example", "*", ".example", "10.0.0.1", "notlocalhost")
    ),
    (
        configuration.check_debug, True,
        {"ALLOWED_HOSTS": ["localhost"], "SECKILL_TRUSTED_PROXIES": ["10.0.0.1"]}, ["W001"],
    ),
    (configuration.check_debug, True, {"ALLOWED_HOSTS": LOCAL_HOSTS}, []),
    (configuration.check_debug, False, {"ALLOWED_HOSTS": ["shop.example"]}, []),
    *(
        (configuration.check_deployment, False, {"SECRET_KEY": key}, ["E007"])
        for key in WEAK_KEYS
    ),
    (
        configuration.check_deployment, False,
        {"SECRET_KEY": GOOD_KEY, "SECRET_KEY_FALLBACKS": ["x" * 63]}, ["E007"],
    ),
    (configuration.check_deployment, False, {"SECRET_KEY": GOOD_KEY}, []),
    (configuration.check_deployment, True, {"SECRET_KEY": "x"}, []),
    *(
        (configuration.check_payment_paths, False, {"SECKILL_PAYMENT_PROVIDERS": providers}, found)
        for providers, found in (
            ([SANDBOX], []), (["orders.sandbox.Sandbox"], ["E008"]), ([], ["E009"]),
            ([SANDBOX, "shop.Missing"], ["E008"]), (["nothing"], ["E008"]),
        )
    ),
    *(
        (configuration.check_deployment, debug, {"SECKILL_PAYMENT_PROVIDERS": them}, found)
        for debug, them, found in (
            (False, [SANDBOX], ["W004"]), (False, ["shop.Real", SANDBOX], ["W004"]),
            (False, ["shop.Real"], []), (True, [SANDBOX], []),
        )
    ),
    *(
        (configuration.check_deployment, debug, {"SECKILL_STAFF_SECOND_FACTOR": on}, found)
        for debug, on, found in ((False, False, ["W005"]), (False, True, []), (True, False, []))
    ),
    *(
        (configuration.check_deployment, debug, {"SECKILL_SMS_BACKEND": backend}, found)
        for debug, backend, found in (
            (False, "accounts.phones.ConsoleBackend", ["W006"]), (False, "shop.Provider", []),
            (True, "accounts.phones.ConsoleBackend", []),
        )
    ),
    *(
        (
            configuration.check_deployment, debug,
            {"HTTPS_ONLY": https, "SECKILL_TRUSTED_PROXIES": proxies}, found,
        )
        for debug, https, proxies, found in (
            (False, True, [], ["E027"]), (False, True, ["10.0.0.1"], []), (False, False, [], []),
            (True, True, [], []),
        )
    ),
    *(
        (configuration.check_deployment, debug, {"EMAIL_BACKEND": backend}, found)
        for debug, backend, found in (
            (False, PRINTED, ["W007"]), (True, PRINTED, []),
            (False, "django.core.mail.backends.smtp.EmailBackend", []),
        )
    ),
    *(
        (
            configuration.check_deployment, debug,
            {"ALLOWED_HOSTS": hosts, "SECKILL_SITE_URL": url}, found,
        )
        for debug, hosts, url, found in (
            (False, ["shop.example"], "https://shop.example", []),
            (False, [".example"], "https://shop.example:8443/path", []),
            (False, ["[::1]"], "http://[::1]:8000", []),
            (False, ["shop.example"], "https://www.shop.example", ["E029"]),
            (False, ["https://shop.example"], "https://shop.example", ["E029"]),
            (False, ["shop.example"], "http://[", ["E029"]),
            (True, ["shop.example"], "https://www.shop.example", []),
        )
    ),
    *((configuration.check_site_url, True, {"SECKILL_SITE_URL": it}, ["E017"]) for it in ODD_URLS),
    *((configuration.check_site_url, True, {"SECKILL_SITE_URL": it}, []) for it in GOOD_URLS),
]  # fmt: skip
"""Each check with DEBUG and other settings, and what it finds."""


@pytest.fixture
def deployed(settings, monkeypatch):
    """Settings in which the checks of a deployment find nothing."""
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = GOOD_KEY, []
    settings.SECKILL_PAYMENT_PROVIDERS = ["shop.Real"]
    settings.SECKILL_STAFF_SECOND_FACTOR = True
    settings.SECKILL_SMS_BACKEND = "shop.Provider"
    settings.DEBUG = settings.HTTPS_ONLY = False
    monkeypatch.delenv("FAILPOINT", raising=False)
    assert ids(configuration.check_deployment) == []


@pytest.mark.parametrize(("check", "debug", "changes", "found"), slow_after(8, CHECKED))
def test_setting_that_strangers_could_use_is_found(
    settings, deployed, check, debug, changes, found
):
    settings.DEBUG = debug
    for name, value in changes.items():
        setattr(settings, name, value)

    assert ids(check) == found


@pytest.mark.parametrize(
    ("debug", "failpoint", "found"),
    [(False, "place.before", ["W002"]), (False, "", []), (True, "place.before", [])],
)
def test_failpoint_without_debug_is_a_warning(
    settings, deployed, monkeypatch, debug, failpoint, found
):
    settings.DEBUG = debug
    monkeypatch.setenv("FAILPOINT", failpoint)

    assert ids(configuration.check_deployment) == found


@pytest.mark.parametrize(("debug", "found"), [(False, ["E028"]), (True, [])])
def test_deployment_has_to_collect_its_static_files(
    settings, deployed, monkeypatch, tmp_path, debug, found
):
    settings.DEBUG = debug
    empty = StaticStorage(location=tmp_path, base_url="/static/")
    monkeypatch.setattr(configuration, "staticfiles_storage", empty)

    assert ids(configuration.check_deployment) == found


@pytest.mark.parametrize(("debug", "found"), [(False, ["E018"]), (True, [])])
def test_deployment_has_to_set_its_address(settings, deployed, monkeypatch, debug, found):
    settings.DEBUG = debug
    monkeypatch.delenv("SECKILL_SITE_URL")

    assert ids(configuration.check_deployment) == found


def test_sandbox_provider_leaves_site_ready(settings):
    settings.DEBUG, settings.SECKILL_PAYMENT_PROVIDERS = False, [SANDBOX]

    assert ids(configuration.check_settings) == []


# --- the ledger's Redis --------------------------------------------------------------------------


@contextmanager
def configured(**settings):
    """Run the ledger's Redis with other settings for a while."""
    names = {name.replace("_", "-"): value for name, value in settings.items()}
    with Redis.from_url(site.REDIS_URL, decode_responses=True) as server, ExitStack() as stack:
        for name, value in names.items():
            stack.callback(server.config_set, name, server.config_get(name)[name])
            server.config_set(name, value)
        yield


@pytest.fixture
def kept():
    """A ledger's Redis as it has to be, whatever the tests run on."""
    with configured(appendonly="yes", appendfsync="everysec", maxmemory_policy="noeviction"):
        yield


def test_durable_redis_passes_all_checks(kept):
    assert ids(services.check_ledger) == []


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_evicting_redis_is_an_error(kept, policy):
    with configured(maxmemory="1gb", maxmemory_policy=policy):
        assert ids(services.check_ledger) == ["E010"]


def test_evicting_policy_without_limit_is_a_warning(kept):
    with configured(maxmemory="0", maxmemory_policy="allkeys-lru"):
        assert ids(services.check_ledger) == ["W011"]


def test_memory_limit_without_eviction_is_fine(kept):
    with configured(maxmemory="1gb"):
        assert ids(services.check_ledger) == []


def test_redis_without_append_only_file_is_a_warning(kept, settings):
    with configured(appendonly="no"):
        settings.DEBUG = False
        assert ids(services.check_ledger) == ["W012"]
        settings.DEBUG = True
        assert ids(services.check_ledger) == []


def test_appendfsync_no_is_a_warning(kept):
    with configured(appendfsync="no"):
        assert ids(services.check_ledger) == ["W013"]


@pytest.fixture
def without_config(settings):
    """Let the ledger be asked as a user who may not use CONFIG, as on a managed Redis."""
    with Redis.from_url(site.REDIS_URL) as server:
        server.acl_setuser(
            "guest", enabled=True, passwords=["+pw"], keys=["*"], channels=["*"],
            categories=["+@all"], commands=["-config"],
        )  # fmt: skip
        url = urlsplit(site.REDIS_URL)
        address = f"guest:pw@{url.hostname}:{url.port}"
        ledger = {**settings.CACHES["ledger"], "LOCATION": url._replace(netloc=address).geturl()}
        settings.CACHES = {**settings.CACHES, "ledger": ledger}
        yield
        server.acl_deluser("guest")


def test_forbidden_config_command_keeps_other_findings(kept, without_config):
    assert ids(services.check_ledger) == []
    with configured(maxmemory="1gb", maxmemory_policy="allkeys-lru", appendfsync="no"):
        assert ids(services.check_ledger) == ["E010"]


@pytest.mark.parametrize(
    ("number", "found"), [("6.0.16", ["E011"]), ("6.2.0", []), ("7.4.1", []), ("10.0", [])]
)
def test_old_redis_is_an_error(kept, monkeypatch, number, found):
    info = {**ledger_connection().info(), "redis_version": number}
    monkeypatch.setattr(Redis, "info", lambda self, *sections: info)

    assert ids(services.check_ledger) == found


@pytest.mark.parametrize(("wanted", "found"), [(0, []), (1, ["W016"])])
def test_missing_replica_is_a_warning_if_wanted(settings, wanted, found):
    settings.SECKILL_LEDGER_REPLICAS = wanted

    assert ids(services.check_ledger_replicas) == found


def test_missing_redis_is_a_warning(redis_gone, settings):
    settings.SECKILL_LEDGER_REPLICAS = 1
    with redis_gone():
        asked = services.check_ledger, services.check_neighbours, services.check_ledger_replicas
        assert ids(*asked) == ["W010"]


# --- what is beside the ledger -------------------------------------------------------------------


def with_another_name(url):
    parts = urlsplit(url)
    assert parts.hostname == "127.0.0.1"
    return parts._replace(netloc=parts.netloc.replace("127.0.0.1", "localhost")).geturl()


def put_cache_at(settings, url):
    settings.CACHES = {**settings.CACHES, "default": {**settings.CACHES["default"]}}
    settings.CACHES["default"]["LOCATION"] = url


def test_separate_redis_databases_are_fine():
    assert ids(services.check_neighbours) == []


def test_cache_in_ledgers_database_is_an_error(settings):
    put_cache_at(settings, with_another_name(site.REDIS_URL))

    assert ids(services.check_neighbours) == ["E013"]


@pytest.mark.parametrize("name", [str, with_another_name])
def test_broker_in_ledgers_database_is_a_warning(monkeypatch, name):
    monkeypatch.setenv("CELERY_BROKER_URL", name(site.REDIS_URL))

    assert ids(services.check_neighbours) == ["W015"]


def test_other_brokers_are_not_asked(monkeypatch):
    monkeypatch.setenv("CELERY_BROKER_URL", "amqp://127.0.0.1:1//")

    assert ids(services.check_neighbours) == []


def test_missing_cache_and_broker_are_warnings(settings, monkeypatch):
    put_cache_at(settings, "redis://127.0.0.1:1/1")
    monkeypatch.setenv("CELERY_BROKER_URL", "redis://127.0.0.1:1/2")

    assert ids(services.check_neighbours) == ["W014", "W014"]


# --- addresses that lead to no primary -----------------------------------------------------------


@pytest.fixture(scope="module")
def sentinel(tmp_path_factory):
    """A sentinel of the service "there", and of "gone", whose primary it has lost."""
    with OwnRedis(tmp_path_factory.mktemp("node")) as node:
        lines = [*monitor("there", node.port), *monitor("gone", CLOSED_PORT, down_after_ms=1)]
        with Sentinel(tmp_path_factory.mktemp("sentinel"), *lines) as sentinel:
            wait_for(lambda: sentinel.has_lost("gone"), what="a primary that is away")
            yield sentinel


@pytest.mark.parametrize(
    ("address", "found"),
    [
        ("redis+sentinel://{here}/there/0", []),
        ("redis+sentinel://{here}/0", ["E031"]),
        ("redis+sentinel://{here}/other/0", ["E032"]),
        ("redis+sentinel://127.0.0.1:1,127.0.0.1:1/there/0", ["E033"]),
        ("redis+sentinel://{here}/gone/0", ["E034"]),
        ("redis://{here}/0", ["E035"]),
        ("redis://{here}/3", ["E035"]),
    ],
)
def test_address_without_a_primary_is_an_error(monkeypatch, settings, sentinel, address, found):
    """For the ledger, the cache and the broker alike."""
    address = address.format(here=f"127.0.0.1:{sentinel.port}")
    settings.DEBUG = True
    ledger = {**settings.CACHES["ledger"], "LOCATION": address}
    with override_settings(CACHES={**settings.CACHES, "ledger": ledger}):
        assert ids(services.check_ledger) == found
    put_cache_at(settings, address)
    assert ids(services.check_neighbours) == found
    monkeypatch.setenv("CELERY_BROKER_URL", address)
    assert ids(services.check_neighbours) == 2 * found


# --- the database --------------------------------------------------------------------------------


@contextmanager
def connected_with(**options):
    """Let connections be made with other options; None takes one out."""
    wanted = {**connection.settings_dict["OPTIONS"], **options}
    wanted = {name: value for name, value in wanted.items() if value is not None}
    with mock.patch.dict(connection.settings_dict, OPTIONS=wanted):
        yield


@pytest.mark.django_db
def test_present_database_passes_all_checks():
    assert ids(services.check_database, services.check_migrations) == []


@pytest.mark.django_db
@pytest.mark.parametrize(
    "level", slow_after(1, ["repeatable read", "read uncommitted", "serializable"])
)
def test_other_isolation_level_is_an_error(level):
    with connected_with(isolation_level=level):
        assert ids(services.check_database) == ["E020"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("statement", "found"),
    slow_after(
        3,
        [
            ("sql_mode = ''", ["E021"]),
            ("sql_mode = 'NO_ENGINE_SUBSTITUTION'", ["E021"]),
            ("sql_mode = 'TRADITIONAL'", []),
            ("innodb_lock_wait_timeout = 50", ["W021"]),
            ("innodb_lock_wait_timeout = 10", []),
        ],
    ),
)
def test_session_variables_are_checked(statement, found):
    with connected_with(init_command=f"SET SESSION innodb_lock_wait_timeout = 3, {statement}"):
        assert ids(services.check_database) == found


@pytest.mark.django_db
@pytest.mark.usefixtures("row_locks")
def test_database_without_binary_log_is_a_warning(settings):
    """The servers of the tests have none."""
    assert ids(services.check_binary_log) == ["W024"]
    settings.DEBUG = True
    assert ids(services.check_binary_log) == []


@pytest.mark.django_db
@pytest.mark.usefixtures("row_locks")
@pytest.mark.parametrize(
    ("log_bin", "log_slave_updates", "found"),
    [("ON", "ON", []), ("ON", "OFF", ["E025"]), ("OFF", "OFF", ["E025"])],
)
def test_node_of_galera_needs_a_log_of_all_writes(monkeypatch, log_bin, log_slave_updates, found):
    said = {"WSREP_ON": "ON", "LOG_BIN": log_bin, "LOG_SLAVE_UPDATES": log_slave_updates}
    values = " ".join(f"WHEN '{name}' THEN '{value}'" for name, value in said.items())
    monkeypatch.setattr(
        services,
        "SESSION_VARIABLES",
        f"SELECT LOWER(variable_name), CASE variable_name {values} ELSE variable_value END "
        "FROM information_schema.session_variables",
    )
    assert ids(services.check_database) == found


@pytest.mark.django_db
def test_narrow_charset_is_a_warning():
    with connected_with(charset="latin1"):
        assert ids(services.check_database) == ["W022"]


@pytest.mark.django_db
def test_old_database_is_an_error(monkeypatch):
    assert connection.features.minimum_database_version == (10, 10)
    monkeypatch.setattr(type(connection.features), "minimum_database_version", (99, 0))

    assert ids(services.check_database) == ["E022"]


def test_missing_database_is_one_warning(database_gone):
    assert ids(services.check_database, services.check_migrations) == ["W020"]


@contextmanager
def dropped(model, name):
    """Take a constraint out of the test's database for a while."""
    [constraint] = [each for each in model._meta.constraints if each.name == name]
    with connection.schema_editor() as editor:
        editor.remove_constraint(model, constraint)
    try:
        yield
    finally:
        with connection.schema_editor() as editor:
            editor.add_constraint(model, constraint)


@pytest.mark.parametrize(
    ("model", "name"),
    slow_after(
        1,
        [
            (VoucherOrder, "order_one_live_per_buyer_unit"),
            (SeckillVoucher, "sale_sold_within_stock"),
        ],
    ),
)
def test_missing_constraint_is_a_named_error(transactional_db, model, name):
    with dropped(model, name):
        [error] = found_by(services.check_database)

    assert error.id == "seckill.E023"
    assert name in error.msg
    assert ids(services.check_database) == []


def test_plain_index_is_no_unique_constraint(transactional_db):
    name, table = "order_one_live_per_buyer_unit", VoucherOrder._meta.db_table
    with dropped(VoucherOrder, name), connection.cursor() as cursor:
        cursor.execute(f"CREATE INDEX {name} ON {table} (unit)")
        found = ids(services.check_database)
        cursor.execute(f"DROP INDEX {name} ON {table}")

    assert found == ["E023"]


def test_missing_table_is_a_named_error(transactional_db):
    with renamed("django_session"):
        [error] = found_by(services.check_database)

    assert (error.id, error.msg) == (
        "seckill.E026",
        "Tables are missing: 1. The first is django_session.",
    )
    assert "manage.py migrate" in str(error.hint)


@contextmanager
def renamed(table):
    """Let a table be missing for a while."""
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} RENAME TO away")
        try:
            yield
        finally:
            cursor.execute(f"ALTER TABLE away RENAME TO {table}")


def test_unapplied_migration_is_a_named_warning(transactional_db):
    recorder = MigrationRecorder(connection)
    last = max(name for label, name in recorder.applied_migrations() if label == "orders")
    recorder.record_unapplied("orders", last)
    try:
        [warning] = found_by(services.check_migrations)
    finally:
        recorder.record_applied("orders", last)

    assert warning.id == "seckill.W023"
    assert f"orders.{last}" in warning.msg


@pytest.fixture
def empty_database(transactional_db):
    """Point the connection at a database that has just been made, and for latin letters only."""
    name = f"{connection.settings_dict['NAME']}_empty"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE OR REPLACE DATABASE {name} CHARACTER SET latin1")
        with mock.patch.dict(connection.settings_dict, NAME=name):
            yield
        cursor.execute(f"DROP DATABASE {name}")


def test_empty_database_misses_no_constraints(empty_database):
    assert ids(services.check_database) == ["W022", "E026"]
    assert ids(services.check_migrations) == ["W023"]


# --- where it is said ----------------------------------------------------------------------------


def manage(*command, **changes):
    """Run manage.py on SQLite, with ports on which nobody listens."""
    environ = {
        **os.environ,
        "DATABASE_URL": "sqlite://:memory:",
        "SECRET_KEY": GOOD_KEY,
        "DEBUG": "false",
        "REDIS_URL": "redis://127.0.0.1:1/0",
        "CACHE_URL": "redis://127.0.0.1:1/1",
        "CELERY_BROKER_URL": "redis://127.0.0.1:1/2",
        **changes,
    }
    return subprocess.run(
        [sys.executable, "manage.py", *command],
        env=environ,
        cwd=site.BASE_DIR,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


@pytest.mark.slow
def test_plain_check_asks_no_server():
    done = manage("check", "--fail-level", "WARNING")

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("debug", "found"), [("true", []), ("false", ["E009"])])
def test_only_debug_mode_has_a_sandbox_by_default(monkeypatch, settings, debug, found):
    monkeypatch.delenv("SECKILL_PAYMENT_PROVIDERS")
    monkeypatch.setenv("DEBUG", debug)
    read = runpy.run_path(inspect.getfile(product_settings))
    settings.SECKILL_PAYMENT_PROVIDERS = read["SECKILL_PAYMENT_PROVIDERS"]

    assert ids(configuration.check_payment_paths) == found


@pytest.mark.slow
def test_missing_servers_are_only_warnings_and_can_be_silenced():
    done = manage(
        *("check", "--deploy", "--tag", "seckill", "--tag", "services"),
        DATABASE_URL="mysql://a:b@localhost/c?unix_socket=/nowhere",
        SECKILL_SILENCED_CHECKS="seckill.W014",
    )

    assert done.returncode == 0, done.stderr
    for number, times in (("W010", 1), ("W020", 1), ("W014", 0)):
        assert done.stderr.count(f"(seckill.{number})") == times
    assert "HINT" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_deploy_check_says_nothing_about_other_hosts_of_the_domain():
    done = manage(
        "check", "--deploy", SECKILL_HTTPS_ONLY="true", SECKILL_TRUSTED_PROXIES="10.0.0.1"
    )

    assert "(security.W005)" not in done.stderr
    assert "(security.W021)" not in done.stderr


def test_silenced_error_does_not_fail_the_deploy_check(settings):
    settings.SECRET_KEY = "x"
    with pytest.raises(SystemCheckError, match=r"seckill\.E007"):
        call_command("check", deploy=True, tags=[SETTINGS])

    settings.SILENCED_SYSTEM_CHECKS = ["seckill.E007"]
    call_command("check", deploy=True, tags=[SETTINGS])


@pytest.mark.parametrize(("vendor", "found"), [("sqlite", ["W003"]), ("mysql", [])])
def test_sqlite_in_production_is_found(deployed, monkeypatch, vendor, found):
    monkeypatch.setattr(configuration, "connection", mock.Mock(vendor=vendor))

    assert ids(configuration.check_deployment) == found


def test_services_tag_without_deploy_is_refused():
    with pytest.raises(CommandError, match="no system check"):
        call_command("check", tags=["services"])


def test_every_message_has_id_hint_and_docs():
    names = ("configuration", "face", "keys", "services")
    checks = [f"seckill_site/checks/{it}.py" for it in names]
    modules = [*checks, "backoffice/today/queues.py"]
    source = "".join((site.BASE_DIR / it).read_text() for it in modules)
    page = (site.BASE_DIR / "docs" / "checks.md").read_text()
    documented = {
        line.split("`")[1] for line in page.splitlines() if line.startswith("| `seckill.")
    }

    used = set(re.findall(r"\b[EW]0\d\d\b", source))
    assert documented == {f"seckill.{number}" for number in used}
    assert set(findings._TEXTS) == used
    assert all(it["text"] and it["hint"] for it in findings._TEXTS.values())


def test_every_check_is_registered():
    registered = set(registry.registry.get_checks(include_deployment_checks=True))
    plain = set(registry.registry.get_checks())

    modules = (configuration, keys, services)
    checks = {
        getattr(module, name): module
        for module in modules
        for name in re.findall(r"^def (check_\w+)\(\*\*_", inspect.getsource(module), re.MULTILINE)
    }
    assert len(checks) == 18
    assert set(checks) <= registered
    assert keys.check_shared_keys not in plain
    assert not plain & {check for check, module in checks.items() if module is services}


@pytest.mark.django_db
def test_worker_logs_findings_by_level(kept, caplog, monkeypatch):
    monkeypatch.setattr(services.check_binary_log, "tags", ())  # the server of the tests has none
    configuration.log_at_start()
    assert [each for each in caplog.records if each.name == configuration.__name__] == []
    with configured(maxmemory="1gb", maxmemory_policy="allkeys-lru"), caplog.at_level("INFO"):
        configuration.log_at_start()

    [record] = [each for each in caplog.records if each.name == configuration.__name__]
    assert record.levelno == logging.ERROR
    assert "seckill.E010" in record.message
    assert "noeviction" in record.message


@pytest.mark.slow
def test_real_worker_logs_findings_and_starts(kept, stack):
    with configured(maxmemory="1gb", maxmemory_policy="allkeys-lru"):
        worker = stack.worker()

    assert worker.text().count("seckill.E010") == 1


# --- settings: the keys of payment providers ------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (
            "orders.payments.stripe_checkout.StripeCheckout",
            ["SECKILL_STRIPE_SECRET_KEY", "SECKILL_STRIPE_WEBHOOK_SECRETS"],
        ),
        (
            "orders.payments.alipay.Alipay",
            [
                "SECKILL_ALIPAY_APP_ID",
                "SECKILL_ALIPAY_PRIVATE_KEY",
                "SECKILL_ALIPAY_PUBLIC_KEYS",
            ],
        ),
        (
            "orders.payments.wechat_pay.WeChatPay",
            [
                "SECKILL_WECHAT_APP_ID",
                "SECKILL_WECHAT_MERCHANT_ID",
                "SECKILL_WECHAT_CERTIFICATE_SERIAL",
                "SECKILL_WECHAT_PRIVATE_KEY",
                "SECKILL_WECHAT_PUBLIC_KEYS",
                "SECKILL_WECHAT_API_V3_KEY",
            ],
        ),
    ],
)
def test_each_missing_key_of_a_provider_is_named(settings, path, names):
    settings.SECKILL_PAYMENT_PROVIDERS = [path]

    found = found_by(configuration.check_payment_paths)

    assert {it.id for it in found} == {"seckill.E019"}
    assert [it.msg.replace(":", " ").split()[0] for it in found] == names


@pytest.mark.parametrize("name", ["ALIPAY_PRIVATE_KEY", "ALIPAY_PUBLIC_KEYS"])
def test_unreadable_key_is_named_and_not_quoted(settings, name):
    settings.SECKILL_PAYMENT_PROVIDERS = ["orders.payments.alipay.Alipay"]
    settings.SECKILL_ALIPAY_APP_ID = "2021000000000001"
    pair = key_pair("shop")
    settings.SECKILL_ALIPAY_PRIVATE_KEY = pair.private
    settings.SECKILL_ALIPAY_PUBLIC_KEYS = [pair.public]
    assert ids(configuration.check_payment_paths) == []

    value = getattr(settings, f"SECKILL_{name}")
    bad = value[:-9] if isinstance(value, str) else [value[0][:-9]]
    setattr(settings, f"SECKILL_{name}", bad)

    (found,) = found_by(configuration.check_payment_paths)
    assert f"SECKILL_{name}" in found.msg
    assert pair.private[:20] not in found.msg
