"""What the tests of the catalogue share."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def committed(django_capture_on_commit_callbacks: Any) -> Any:
    """Return a block after which the callbacks of the commit run."""
    return lambda: django_capture_on_commit_callbacks(execute=True)
