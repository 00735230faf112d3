"""The database's clock, which decides about orders whatever the clocks of its clients say.

Orders are written and ended by many machines, whose clocks differ (``docs/adr/0021``). The window
of a sale and the age of what is pending follow the clock of Redis instead: ``clocks/ledger.py``.
"""

import datetime as dt
from typing import Any

from django.db import connection
from django.db.models.functions import Now

_SELECT = {
    "mysql": "SELECT UTC_TIMESTAMP(6)",
    "sqlite": "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')",
}


class DatabaseNow(Now):
    """The time at which a statement starts, whatever the time zone of the session is."""

    def as_mysql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        return self.as_sql(compiler, connection, template="UTC_TIMESTAMP(6)", **context)


def database_now() -> dt.datetime:
    """Return the database's current time.

    :raises django.db.Error: the database does not respond.
    """
    with connection.cursor() as cursor:
        cursor.execute(_SELECT[connection.vendor])
        return dt.datetime.fromisoformat(str(cursor.fetchone()[0])).replace(tzinfo=dt.UTC)
