"""Periodic tasks: passes that are over after one item, and tasks without their lock."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest

from vouchers.inventory import passes


def cut_after_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each pass be over after its first item."""
    monkeypatch.setattr(passes, "PASS_S", 0.0)


def without_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every process believe that it has the lock: the control."""
    lock = MagicMock(lost=False)
    lock.__enter__.return_value = lock
    monkeypatch.setattr(passes, "RedisLock", MagicMock(return_value=lock))
