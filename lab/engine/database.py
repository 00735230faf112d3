"""The database's own view of its connections and row locks."""

from django.db import OperationalError, connection

_NOT_ALLOWED = 1227
"""The server's error number for a missing privilege."""


def has_row_locks() -> bool:
    """Return whether races can run on this database: SQLite has one lock for everything."""
    return connection.features.has_select_for_update


def waits_for_row(connection_id: int, *, known_waiting: int = 0) -> bool:
    """Return whether this connection waits for a row lock.

    This needs the privilege PROCESS. Without it, return whether more connections of the server wait
    than are known to, which is enough if nobody else uses the server.
    """
    with connection.cursor() as cursor:
        try:
            cursor.execute(
                "SELECT 1 FROM information_schema.innodb_trx"
                " WHERE trx_mysql_thread_id = %s AND trx_state = 'LOCK WAIT'",
                [connection_id],
            )
            return cursor.fetchone() is not None
        except OperationalError as error:
            if error.args[0] != _NOT_ALLOWED:
                raise
        cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")
        return int(cursor.fetchone()[1]) > known_waiting


def is_connected(connection_id: int) -> bool:
    """Return whether the server still has this connection, and with it the locks that it holds."""
    with connection.cursor() as cursor:
        table = "information_schema.processlist"
        cursor.execute(f"SELECT 1 FROM {table} WHERE id = %s", [connection_id])
        return cursor.fetchone() is not None


def cut_connection(connection_id: int) -> None:
    """End a connection from the server's side."""
    with connection.cursor() as cursor:
        cursor.execute("KILL CONNECTION %s", [connection_id])
