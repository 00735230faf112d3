"""Work of this process while MariaDB executes a statement.

The driver sends the statement, this process works, and then it reads the answer. So a process that
has to wait for the database anyway needs no second thread to do something useful meanwhile.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection


@contextmanager
def meanwhile(work: Callable[[], object]) -> Iterator[None]:
    """Do this work while the database executes the first statement of the ``with`` block.

    The block needs an open connection and must send a statement. An error of the work is raised
    once the statement has ended. SQLite, which is no other process, comes after the work.
    """
    driver: Any = connection.connection
    if connection.vendor != "mysql":
        work()
        yield
        return

    def query(statement: bytes | bytearray) -> None:
        del attributes["query"]
        driver.send_query(bytes(statement))
        try:
            work()
        finally:
            driver.read_query_result()

    attributes = vars(driver)  # the driver forbids to delete them in the usual way
    attributes["query"] = query
    try:
        yield
    finally:
        attributes.pop("query", None)
