"""Start-up checks of the servers: durability, versions, isolation, constraints, migrations.

A server that does not respond is a warning: it may come back. ``docs/checks.md`` lists them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from amqp.exceptions import PreconditionFailed
from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, register
from django.db import Error as DatabaseError
from django.db import NotSupportedError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.models import BaseConstraint, CheckConstraint, Model, UniqueConstraint
from kombu.exceptions import OperationalError
from redis import RedisError
from redis.exceptions import NoPermissionError, ResponseError

from seckill_site.broker.messages import impatient
from seckill_site.celery import app
from seckill_site.checks.findings import finding
from seckill_site.checks.ledger_commands import may_use_channel, refused_commands
from seckill_site.installation import ForeignLedger, check_owner
from seckill_site.mysql.collations import COLLATIONS
from seckill_site.redis.address import (
    NoPrimary,
    NoSentinel,
    NoServiceName,
    NoSuchService,
    address_of,
    is_rabbitmq,
    is_redis,
)
from seckill_site.redis.ledger_connection import ledger_connection

Check = Callable[..., Iterable[CheckMessage]]
"""A start-up check: returns what it finds."""

SERVICES = "services"

OLDEST_REDIS = (6, 2)
OLDEST_RABBITMQ = (3, 10)
LONGEST_LOCK_WAIT_SECONDS = 10

SESSION_VARIABLES = """
SHOW SESSION VARIABLES WHERE variable_name IN (
    'character_set_connection', 'character_set_database', 'innodb_lock_wait_timeout', 'sql_mode',
    'transaction_isolation', 'tx_isolation', 'wsrep_on', 'log_bin', 'log_slave_updates'
)
"""

COLUMNS_WITH_COLLATIONS = """
SELECT table_name, column_name, column_type, collation_name FROM information_schema.columns
WHERE table_schema = DATABASE() AND (table_name, column_name) IN %s
"""


def numbers(text: str) -> tuple[int, ...]:
    """Return the first two numbers of a version."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


# --- The ledger's Redis ---------------------------------------------------------------------------


@register(SERVICES, deploy=True)
def check_ledger(**_: Any) -> Iterator[CheckMessage]:
    """Find settings of the ledger's Redis that could lose orders, and commands that it refuses."""
    url = str(settings.CACHES["ledger"]["LOCATION"])
    try:
        with address_of(url).client() as client:  # one that a replica serves as well
            if refused := refused_commands(client):
                yield finding("E015", what=", ".join(refused))
                return
            if not may_use_channel(client):
                yield finding("W017")
            info = client.info()
            yield from _info(info)
            yield from _persistence(info, client)
    except NoPermissionError as error:  # already at the connection
        yield finding("E015", what=error)
    except RedisError as error:
        is_cluster = "cluster" in str(error).lower()
        other = finding("E016") if is_cluster else finding("W010", error=error)
        yield _lost("REDIS_URL", error) or other


@register(SERVICES, deploy=True)
def check_neighbours(**_: Any) -> Iterator[CheckMessage]:
    """Find a cache or a broker in the ledger's database, even under another name."""
    try:
        ledger = _database_of(ledger_connection())
    except RedisError:
        return  # another check reports it
    yield from _neighbour(ledger, "cache", str(settings.CACHES["default"]["LOCATION"]))
    yield from _neighbour(ledger, "broker", str(app.conf.broker_url))


def _info(info: dict[str, Any]) -> Iterator[CheckMessage]:
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        yield finding("E010" if info.get("maxmemory") else "W011", policy=policy)
    number = str(info.get("redis_version", dotted(OLDEST_REDIS)))  # some services hide their own
    if numbers(number) < OLDEST_REDIS:
        yield finding("E011", number=number, oldest=dotted(OLDEST_REDIS))
    if info.get("role", "master") != "master":
        yield finding("E012")
    if info.get("cluster_enabled"):
        yield finding("E016")


def _persistence(info: dict[str, Any], client: Any) -> Iterator[CheckMessage]:
    if settings.DEBUG:
        return
    fsync = None
    with suppress(RedisError):  # CONFIG is forbidden, as in managed services
        fsync = client.config_get("appendfsync").get("appendfsync")
    if info.get("aof_enabled") == 0:
        yield finding("W012")
    elif fsync == "no":
        yield finding("W013")


@register(SERVICES, deploy=True)
def check_installation(**_: Any) -> Iterator[CheckMessage]:
    """Find the ledgers of another installation in our Redis."""
    try:
        check_owner()
    except ForeignLedger as error:
        yield finding("E014", owner=error.owner)
    except (RedisError, DatabaseError):
        return  # another check reports it, or that migrations are missing


def _neighbour(ledger: tuple[Any, ...], name: str, url: str) -> Iterator[CheckMessage]:
    if not is_redis(url):
        return
    setting = "CACHE_URL" if name == "cache" else "CELERY_BROKER_URL"
    try:
        with address_of(url).client() as client:
            shares = _database_of(client) == ledger
    except RedisError as error:
        yield _lost(setting, error) or finding("W014", name=name, error=error)
        return
    if shares:
        yield finding("E013" if name == "cache" else "W015")


_WITHOUT_PRIMARY = {
    NoServiceName: "E031",
    NoSuchService: "E032",
    NoSentinel: "E033",
    NoPrimary: "E034",
}


def _lost(setting: str, error: RedisError) -> CheckMessage | None:
    """Return what is wrong with an address that leads to no Redis, unless that is just silent."""
    if isinstance(error, NoPrimary):
        return finding(_WITHOUT_PRIMARY[type(error)], setting=setting, error=error)
    # A sentinel has no databases; a cluster node knows SELECT and refuses it.
    is_sentinel = re.search("unknown command .?SELECT|Sentinel instances", str(error))
    return finding("E035", setting=setting) if is_sentinel else None


def _database_of(client: Any) -> tuple[Any, ...]:
    """Return the identity of a Redis database, whatever its URL."""
    info = client.info("server")
    if info.get("redis_mode") == "sentinel":
        raise ResponseError("It is one of the Sentinel instances.")
    return info.get("run_id", client), client.get_connection_kwargs().get("db", 0)


# --- RabbitMQ -------------------------------------------------------------------------------------


@register(SERVICES, deploy=True)
def check_rabbitmq(**_: Any) -> Iterator[CheckMessage]:
    """Find a RabbitMQ that is too old for quorum queues, and queues of another type."""
    if not is_rabbitmq():
        return
    broker: Any = app.connection_for_write(transport_options=impatient(1, connect_s=0.5))
    try:
        with broker:
            number = broker.default_channel.connection.server_properties["version"]
            if settings.SECKILL_QUORUM_QUEUES and numbers(number) < OLDEST_RABBITMQ:
                yield finding("E036", number=number, oldest=dotted(OLDEST_RABBITMQ))
                return
            for queue in app.conf.task_queues:
                queue(broker.default_channel).declare()
    except PreconditionFailed as error:
        yield finding("E037", error=error)
    except (*broker.connection_errors, *broker.channel_errors, OperationalError) as error:
        yield finding("W025", error=error)


# --- The database ---------------------------------------------------------------------------------


@contextmanager
def probe_connection() -> Iterator[BaseDatabaseWrapper]:
    """Connect to the database as the site does, with a timeout of one second."""
    probe = connection.copy()
    limits = {"timeout": 1}
    if probe.vendor == "mysql":
        limits = {"connect_timeout": 1, "read_timeout": 1, "write_timeout": 1}
    probe.settings_dict["OPTIONS"].update(limits)
    try:
        yield probe
    finally:
        probe.close()


@register(SERVICES, deploy=True)
def check_database(**_: Any) -> Iterator[CheckMessage]:
    """Find session settings and missing constraints that break the database's guarantees."""
    try:
        with probe_connection() as probe:
            probe.check_database_version_supported()  # Django's own check, which it runs only once
            if probe.vendor == "mysql":
                with probe.cursor() as cursor:
                    cursor.execute(SESSION_VARIABLES)
                    yield from _session(dict(cursor.fetchall()))
                    yield from _names(cursor)
            yield from _constraints(probe)
    except NotSupportedError as error:
        yield finding("E022", error=error)
    except DatabaseError as error:
        yield finding("W020", error=error)


@register(SERVICES, deploy=True)
def check_binary_log(**_: Any) -> Iterator[CheckMessage]:
    """Find a database that a backup brings back without its last orders."""
    try:
        with probe_connection() as probe, probe.cursor() as cursor:
            if probe.vendor == "mysql" and not settings.DEBUG:
                cursor.execute("SELECT @@log_bin, @@sync_binlog")
                if (found := cursor.fetchone()) != (1, 1):
                    yield finding("W024", log_bin=found[0], sync_binlog=found[1])
    except DatabaseError:
        return  # another check reports it


@register(SERVICES, deploy=True)
def check_migrations(**_: Any) -> Iterator[CheckMessage]:
    """Find migrations that are not applied."""
    try:
        with probe_connection() as probe:
            executor = MigrationExecutor(probe)
            plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        return  # another check reports it
    if plan:
        yield finding("W023", count=len(plan), first=plan[0][0])


def _session(variables: dict[str, str]) -> Iterator[CheckMessage]:
    # MySQL has the first name, older MariaDB the second, newer MariaDB both.
    level = variables.get("transaction_isolation") or variables.get("tx_isolation", "")
    if level != "READ-COMMITTED":
        yield finding("E020", level=level)
    if not {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"} & set(variables["sql_mode"].split(",")):
        yield finding("E021")
    logs = {variables.get("log_bin"), variables.get("log_slave_updates")}
    if variables.get("wsrep_on") == "ON" and logs != {"ON"}:
        yield finding("E025")
    seconds = int(variables["innodb_lock_wait_timeout"])
    if seconds > LONGEST_LOCK_WAIT_SECONDS:
        yield finding("W021", seconds=seconds)
    charsets = {variables["character_set_connection"], variables["character_set_database"]}
    if charsets != {"utf8mb4"}:
        yield finding("W022", charsets=", ".join(sorted(charsets)))


def _names(cursor: Any) -> Iterator[CheckMessage]:
    wanted = {}
    for (label, name), collation in COLLATIONS.items():
        model = apps.get_model(label)
        wanted[model._meta.db_table, model._meta.get_field(name).column] = collation
    cursor.execute(COLUMNS_WITH_COLLATIONS, [tuple(wanted)])
    for table, column, kind, collation in cursor.fetchall():
        if collation != (right := wanted[table, column]):
            where = {"table": table, "column": column, "kind": kind}
            yield finding("E024", **where, collation=collation, wanted=right)


def _constraints(probe: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    with probe.cursor() as cursor:
        tables = set(probe.introspection.table_names(cursor))
        if missing := sorted({*probe.introspection.django_table_names()} - tables):
            yield finding("E026", count=len(missing), first=missing[0])
        for model in apps.get_models():
            if not model._meta.constraints or model._meta.db_table not in tables:
                continue
            there = probe.introspection.get_constraints(cursor, model._meta.db_table)
            for constraint in model._meta.constraints:
                if not _exists(constraint, model, there.get(constraint.name, {})):
                    yield finding("E023", table=model._meta.db_table, name=constraint.name)


def _exists(constraint: BaseConstraint, model: type[Model], actual: Mapping[str, Any]) -> bool:
    if isinstance(constraint, CheckConstraint):
        return bool(actual.get("check"))
    if not isinstance(constraint, UniqueConstraint) or not constraint.fields:
        return True
    if constraint.condition:
        return True  # allauth's: MariaDB has none of these
    fields = [field for field in model._meta.concrete_fields if field.name in constraint.fields]
    columns = {field.column for field in fields}
    return bool(actual.get("unique")) and set(actual["columns"]) == columns


# --- The ledger's replicas ------------------------------------------------------------------------


@register(SERVICES, deploy=True)
def check_ledger_replicas(**_: Any) -> Iterator[CheckMessage]:
    """Find fewer replicas of the ledger's Redis than each order waits for."""
    wanted = settings.SECKILL_LEDGER_REPLICAS
    if not wanted:
        return
    try:
        connected = ledger_connection().info("replication").get("connected_slaves", 0)
    except RedisError:
        return  # another check reports it
    if connected < wanted:
        yield finding("W016", connected=connected, wanted=wanted)
