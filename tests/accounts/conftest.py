"""An account; no test begins with the attempts of another."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache

from tests.support.accounts import PASSWORD


@pytest.fixture(autouse=True)
def no_attempts() -> None:
    cache.clear()


@pytest.fixture
def ada() -> User:
    return User.objects.create_user("ada", password=PASSWORD)
