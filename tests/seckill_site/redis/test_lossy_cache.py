"""Nothing is stored in a cache that is away, and only allauth's locks are granted."""

from __future__ import annotations

import pytest
from django.core.cache import cache
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

pytestmark = pytest.mark.django_db


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RedisConnectionError

    monkeypatch.setattr(Redis, "execute_command", refuse)


def test_add_says_whether_it_stored() -> None:
    assert [cache.add("name:lock", 1), cache.add("name:lock", 1)] == [True, False]


@pytest.mark.parametrize(("key", "added"), [("allauth:rl:login:lock", True), ("board", False)])
def test_missing_cache_grants_locks_of_allauth_alone(away: None, key: str, added: bool) -> None:
    assert cache.add(key, 1) is added
