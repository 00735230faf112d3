"""The ways of looking at Redis that the vouchers' tests have, and cheap passwords."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from django.db import connection

from tests.vouchers.conftest import ledger, ledger_trips, redis_gone

__all__ = ["cheap_passwords", "database_gone", "ledger", "ledger_trips", "redis_gone"]


@pytest.fixture
def cheap_passwords(settings: Any) -> None:
    """Hash passwords fast: PBKDF2 is Django's, and costs half a second each."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def database_gone(transactional_db: None) -> Iterator[None]:
    """Point this process at a socket on which no database listens."""
    connection.close()
    options = {**connection.settings_dict["OPTIONS"], "unix_socket": "/nowhere/mysqld.sock"}
    with mock.patch.dict(connection.settings_dict, OPTIONS=options):
        yield
    connection.close()
