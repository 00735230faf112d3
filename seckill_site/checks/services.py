"""Start-up checks of the servers: durability, versions, isolation, constraints, migrations.

A server that does not respond is a warning: it may come back. ``docs/checks.md`` lists them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.db import Error as DatabaseError
from django.db import NotSupportedError, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.models import BaseConstraint, CheckConstraint, Model, UniqueConstraint
from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError
from redis.retry import Retry

from seckill_site.celery import app
from seckill_site.checks.ledger_commands import may_use_channel, refused_commands
from seckill_site.installation import ForeignLedger, check_owner
from seckill_site.mysql.collations import COLLATIONS
from seckill_site.redis.ledger_connection import ledger_connection

Check = Callable[..., Iterable[CheckMessage]]
"""A start-up check: returns what it finds."""

SERVICES = "services"

OLDEST_REDIS = (6, 2)
LONGEST_LOCK_WAIT_SECONDS = 10

SESSION_VARIABLES = """
SHOW SESSION VARIABLES WHERE variable_name IN (
    'character_set_connection', 'character_set_database', 'innodb_lock_wait_timeout', 'sql_mode',
    'transaction_isolation', 'tx_isolation', 'wsrep_on', 'log_bin'
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
        with _client_at(url) as client:  # one that a replica serves as well
            if refused := refused_commands(client):
                yield _refused(", ".join(refused))
                return
            if not may_use_channel(client):
                yield Warning(
                    "The ledger's Redis refuses its channels to its user. "
                    "Who waits for a lock has to poll.",
                    hint="Allow both commands on all channels: "
                    "ACL SETUSER name &* +publish +subscribe.",
                    id="seckill.W017",
                )
            info = client.info()
            yield from _eviction(info)
            yield from _persistence(info, client)
            yield from _kind(info)
    except NoPermissionError as error:  # already at the connection
        yield _refused(str(error))
    except RedisError as error:
        if "cluster" in str(error).lower():
            yield _clustered()
        else:
            yield _unasked("The ledger's Redis", error, "REDIS_URL", "seckill.W010")


def _refused(what: str) -> CheckMessage:
    return Error(
        f"The ledger's Redis refuses what the shop needs to its user. Refused: {what}.",
        hint="Allow all commands but the dangerous ones, and INFO, on all keys: "
        "ACL SETUSER name ~* &* +@all -@dangerous +info.",
        id="seckill.E015",
    )


def _clustered() -> CheckMessage:
    return Error(
        "The ledger's Redis is a node of a cluster. It has only some of the keys, or none.",
        hint="Set REDIS_URL to a Redis without cluster mode.",
        id="seckill.E016",
    )


@register(SERVICES, deploy=True)
def check_neighbours(**_: Any) -> Iterator[CheckMessage]:
    """Find a cache or a broker in the ledger's database, even under another name."""
    try:
        ledger = _database_of(ledger_connection())
    except RedisError:
        return  # another check reports it
    yield from _neighbour(ledger, "cache", str(settings.CACHES["default"]["LOCATION"]))
    yield from _neighbour(ledger, "broker", str(app.conf.broker_url))


def _eviction(info: dict[str, Any]) -> Iterator[CheckMessage]:
    policy = info.get("maxmemory_policy", "noeviction")
    kind, number = (Error, "E010") if info.get("maxmemory") else (Warning, "W011")
    if policy != "noeviction":
        when = "as soon as its memory is full" if kind is Error else "once it gets a maxmemory"
        yield kind(
            f"The ledger's Redis evicts keys {when}. Its maxmemory-policy is {policy}.",
            hint="Set maxmemory-policy to noeviction, in its configuration too.",
            id=f"seckill.{number}",
        )


def _persistence(info: dict[str, Any], client: Any) -> Iterator[CheckMessage]:
    if settings.DEBUG:
        return
    if info.get("aof_enabled") == 0:
        yield Warning(
            "The ledger's Redis has no append-only file. A restart loses who was just accepted.",
            hint="Set appendonly yes, in its configuration too.",
            id="seckill.W012",
        )
    elif _configured(client, "appendfsync") == "no":
        yield Warning(
            "The ledger's Redis leaves it to the system when to write. That may be half a minute.",
            hint="Set appendfsync to everysec or always, in its configuration too.",
            id="seckill.W013",
        )


def _kind(info: dict[str, Any]) -> Iterator[CheckMessage]:
    number = str(info.get("redis_version", dotted(OLDEST_REDIS)))  # some services hide their own
    if numbers(number) < OLDEST_REDIS:
        yield Error(
            f"The ledger's Redis is too old. It is {number}.",
            hint=f"Install Redis {dotted(OLDEST_REDIS)} or newer.",
            id="seckill.E011",
        )
    if info.get("role", "master") != "master":
        yield Error(
            "The ledger's Redis is a replica. It takes no orders, or forgets them.",
            hint="Set REDIS_URL to the primary.",
            id="seckill.E012",
        )
    if info.get("cluster_enabled"):
        yield _clustered()


@register(SERVICES, deploy=True)
def check_installation(**_: Any) -> Iterator[CheckMessage]:
    """Find the ledgers of another installation in our Redis."""
    try:
        check_owner()
    except ForeignLedger as error:
        yield Error(
            f"The ledger's Redis is another installation's. Its identity is {error.owner}.",
            hint="Give this installation a Redis database of its own in REDIS_URL; or, after its "
            "database was set up anew, run manage.py adopt_ledger.",
            id="seckill.E014",
        )
    except (RedisError, DatabaseError):
        return  # another check reports it, or that migrations are missing


def _configured(client: Any, name: str) -> str | None:
    """Return a setting of the server; None if CONFIG is forbidden, as in managed services."""
    try:
        value: str | None = client.config_get(name).get(name)
    except RedisError:
        return None
    return value


def _neighbour(ledger: tuple[Any, ...], name: str, url: str) -> Iterator[CheckMessage]:
    if not url.startswith(("redis", "unix")):
        return
    try:
        with _client_at(url) as client:
            shares = _database_of(client) == ledger
    except RedisError as error:
        yield _unasked(f"The Redis of the {name}", error, "its URL", "seckill.W014")
        return
    if shares and name == "cache":
        yield Error(
            "The cache is in the ledger's database. Clearing it would clear the sales.",
            hint="Give REDIS_URL a database number that CACHE_URL does not have.",
            id="seckill.E013",
        )
    elif shares:
        yield Warning(
            "The broker is in the ledger's database. Flushing its queue would flush the sales.",
            hint="Give REDIS_URL a database number that CELERY_BROKER_URL does not have.",
            id="seckill.W015",
        )


def _client_at(url: str) -> Redis:
    return Redis.from_url(
        url,
        decode_responses=True,
        socket_connect_timeout=0.5,
        socket_timeout=1,
        retry=Retry(NoBackoff(), 0),
    )


def _database_of(client: Any) -> tuple[Any, ...]:
    """Return the identity of a Redis database, whatever its URL."""
    return client.info("server").get("run_id", client), client.get_connection_kwargs().get("db", 0)


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
        yield Error(
            f"The database is too old. {error}",
            hint="Install MariaDB 10.10 or newer.",
            id="seckill.E022",
        )
    except DatabaseError as error:
        yield _unasked("The database", error, "DATABASE_URL", "seckill.W020")


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
        yield Warning(
            f"Migrations are not applied: {len(plan)}. The first is {plan[0][0]}.",
            hint="Run manage.py migrate.",
            id="seckill.W023",
        )


def _session(variables: dict[str, str]) -> Iterator[CheckMessage]:
    # MySQL has the first name, older MariaDB the second, newer MariaDB both.
    level = variables.get("transaction_isolation") or variables.get("tx_isolation", "")
    if level != "READ-COMMITTED":
        yield Error(
            f"Transactions are {level}. A worker would count the orders of the past.",
            hint="Leave isolation_level 'read committed' in the options of DATABASES.",
            id="seckill.E020",
        )
    if not {"STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"} & set(variables["sql_mode"].split(",")):
        yield Error(
            "The database clips what does not fit. Its sql_mode is not strict.",
            hint="Put STRICT_TRANS_TABLES into sql_mode, in the init_command of DATABASES.",
            id="seckill.E021",
        )
    if (variables.get("wsrep_on"), variables.get("log_bin")) == ("ON", "OFF"):
        yield Error(
            "The database is a node of Galera without a binary log. What is rolled back to a "
            "savepoint may stay on the other nodes, which then exclude this one.",
            hint="Set log_bin and log_slave_updates on all nodes.",
            id="seckill.E025",
        )
    if int(variables["innodb_lock_wait_timeout"]) > LONGEST_LOCK_WAIT_SECONDS:
        yield Warning(
            f"A row is waited for {variables['innodb_lock_wait_timeout']} s. Workers would stand.",
            hint="Set innodb_lock_wait_timeout to 3, in the init_command of DATABASES.",
            id="seckill.W021",
        )
    charsets = {variables["character_set_connection"], variables["character_set_database"]}
    if charsets != {"utf8mb4"}:
        yield Warning(
            f"The database speaks {', '.join(sorted(charsets))}. Some texts cannot be stored.",
            hint="Use utf8mb4: ALTER DATABASE … CHARACTER SET utf8mb4, and charset in OPTIONS.",
            id="seckill.W022",
        )


def _names(cursor: Any) -> Iterator[CheckMessage]:
    wanted = {}
    for (label, name), collation in COLLATIONS.items():
        model = apps.get_model(label)
        wanted[model._meta.db_table, model._meta.get_field(name).column] = collation
    cursor.execute(COLUMNS_WITH_COLLATIONS, [tuple(wanted)])
    for table, column, kind, collation in cursor.fetchall():
        if collation != wanted[table, column]:
            yield Error(
                f"{table}.{column} has the collation {collation}. "
                "It may take two names for one, or one for two.",
                hint="Run manage.py migrate. If nothing is left to migrate: ALTER TABLE "
                f"{table} MODIFY {column} {kind} COLLATE {wanted[table, column]} NOT NULL.",
                id="seckill.E024",
            )


def _constraints(probe: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    with probe.cursor() as cursor:
        tables = probe.introspection.table_names(cursor)
        for model in apps.get_models():
            if not model._meta.constraints or model._meta.db_table not in tables:
                continue  # a missing table is a pending migration
            there = probe.introspection.get_constraints(cursor, model._meta.db_table)
            for constraint in model._meta.constraints:
                if not _exists(constraint, model, there.get(constraint.name, {})):
                    yield Error(
                        f"The table {model._meta.db_table} is without its constraint "
                        f"{constraint.name}. Nothing stands behind Redis there.",
                        hint="Find out who removed it, and put it back: manage.py sqlmigrate shows "
                        "its statement.",
                        id="seckill.E023",
                    )


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


def _unasked(what: str, error: Exception, setting: str, number: str) -> CheckMessage:
    return Warning(
        f"{what} could not be probed. {error}",
        hint=f"See whether it runs, whether {setting} is right, and check again.",
        id=number,
    )


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
        yield Warning(
            f"The ledger's Redis has too few replicas: {connected} of {wanted}. Every order is "
            "answered with 503.",
            hint="Start the missing replicas, or lower SECKILL_LEDGER_REPLICAS.",
            id="seckill.W016",
        )
