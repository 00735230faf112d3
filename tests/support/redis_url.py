"""The Redis of the tests, for those that run without Django."""

from __future__ import annotations

import os


def redis_url() -> str:
    """Return the address that ``script/test`` gave this process."""
    return os.environ["REDIS_URL"]
