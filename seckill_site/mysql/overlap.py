"""A call of this process while MariaDB executes a statement.

The driver sends the statement, this process makes the call, and then the driver reads the answer.
So a process that has to wait for the database anyway needs no second thread to do something useful.

The driver's attribute ``query``, which its cursors call, is in one of two states:

=========  ===========  ============================================================
state      ``query``    leaves it
=========  ===========  ============================================================
usual      its own      at the start of the block → armed
armed      ours         at a statement → usual, and then it sends, calls and reads;
                        at the end of a block without a statement → usual
=========  ===========  ============================================================
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection


@contextmanager
def meanwhile(call: Callable[[], object]) -> Iterator[None]:
    """Make this call while the database executes the first statement of the ``with`` block.

    The block needs an open connection. The call must not use it; its error is raised once the
    statement has ended. SQLite, which is no other process, comes after the call.
    """
    driver: Any = connection.connection
    if connection.vendor != "mysql":
        call()
        yield
        return

    def query(statement: bytes | bytearray) -> None:
        del attributes["query"]
        driver.send_query(bytes(statement))
        try:
            call()
        finally:
            driver.read_query_result()

    attributes = vars(driver)  # the driver forbids to delete them in the usual way
    attributes["query"] = query
    try:
        yield
    finally:
        attributes.pop("query", None)
