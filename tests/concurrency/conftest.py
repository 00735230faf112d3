"""Crowds share databases and processes within a module."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="module")
def db(kept_databases: None) -> None:
    """The module's database, without a transaction around each test."""
