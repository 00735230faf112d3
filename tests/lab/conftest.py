"""Fixtures for races: a database that their processes see, and the server that forks them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection

from lab.engine.fork_server import ForkServer
from tests.support.database import delete_rows


@pytest.fixture(scope="session")
def fork_server(django_db_setup: None) -> Iterator[ForkServer]:
    """Fork the processes of all races, on the tests' database."""
    with ForkServer() as server:
        yield server


@pytest.fixture(scope="module")
def seen_by_all(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Open the database without a transaction around it, so that other processes see it.

    A module uses this as its own ``db``: by that name pytest knows that it needs the database. A
    race leaves only the buyers of ours.
    """
    with django_db_blocker.unblock():
        if not connection.features.has_select_for_update:
            pytest.fail(f"played races need row locks, and {connection.vendor} has none")
        yield
        delete_rows()
