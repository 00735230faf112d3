"""Django's MySQL backend, with a breaker before each new connection, for a newer MariaDB.

Django looks for ``DatabaseWrapper`` here. A statement that is slow never opens the breaker.

Note [Deadlocks of one statement]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
Two statements can meet in a row from different sides: an update by the row's id that changes an
index, and one that found the row by that index (which MariaDB prefers while few rows match). InnoDB
ends one of them, and nothing of it has happened. So a statement that is a transaction by itself is
done again here. One within a transaction takes that with it: whoever began it decides.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Any

import MySQLdb
from django.db import OperationalError
from django.db.backends.mysql import base, features

from seckill_site.metrics import histogram
from seckill_site.redis.breaker import Breaker

breaker = Breaker(MySQLdb.OperationalError, server="database")

_DEADLOCK = 1213
_MOST_ATTEMPTS = 5


class DatabaseFeatures(features.DatabaseFeatures):
    """What the shop needs beside Django's needs."""

    minimum_database_version = (10, 10)  # the first MariaDB with the collations of names


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection that is not even tried while the last attempt of this process has failed."""

    features_class = DatabaseFeatures

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.execute_wrappers += [_again_after_deadlock, _timed]

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        with breaker.attempt():
            return super().get_new_connection(conn_params)


def _timed(execute: Callable[..., Any], *args: Any) -> Any:
    started_s = perf_counter()
    try:
        return execute(*args)
    finally:
        histogram("database").observe(perf_counter() - started_s)


def _again_after_deadlock(
    execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    """Execute a statement; see Note [Deadlocks of one statement]."""
    for _ in range(_MOST_ATTEMPTS - 1):
        try:
            return execute(sql, params, many, context)
        except OperationalError as error:
            if many or error.args[0] != _DEADLOCK or context["connection"].in_atomic_block:
                raise
    return execute(sql, params, many, context)
