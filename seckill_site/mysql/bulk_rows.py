"""Insert rows whose values are numbers and times, thousands in a statement, without the ORM.

``bulk_create`` spends several times as long on a row as the database.
"""

from collections.abc import Sequence
from typing import Any

from django.db import connection
from django.db.models import Model
from django.db.models.constants import OnConflict

AT_ONCE = 5_000
"""The rows of one statement."""


def insert_new(
    model: type[Model], columns: Sequence[str], rows: Sequence[str], **parameters: Any
) -> None:
    """Insert rows, each written as ``(1,2,%(name)s)``; skip those that a unique key has already."""
    quote = connection.ops.quote_name
    verb = connection.ops.insert_statement(on_conflict=OnConflict.IGNORE)
    start = f"{verb} {quote(model._meta.db_table)} ({', '.join(map(quote, columns))}) VALUES "
    with connection.cursor() as cursor:
        for first in range(0, len(rows), AT_ONCE):
            cursor.execute(start + ",".join(rows[first : first + AT_ONCE]), parameters)
