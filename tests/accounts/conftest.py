"""No account test begins with the attempts of another."""

from __future__ import annotations

import pytest
from django.core.cache import cache


@pytest.fixture(autouse=True)
def no_attempts() -> None:
    cache.clear()
