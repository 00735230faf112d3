"""Django's MySQL backend, with a breaker before each new connection, for a newer MariaDB.

Django looks for ``DatabaseWrapper`` here. A statement that is slow never opens the breaker.
"""

from typing import Any

import MySQLdb
from django.db.backends.mysql import base, features

from seckill_site.redis.breaker import Breaker

breaker = Breaker(MySQLdb.OperationalError)


class DatabaseFeatures(features.DatabaseFeatures):
    """What the shop needs beside Django's needs."""

    minimum_database_version = (10, 10)  # the first MariaDB with the collations of names


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection that is not even tried while the last attempt of this process has failed."""

    features_class = DatabaseFeatures

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        with breaker.attempt():
            return super().get_new_connection(conn_params)
