"""What every test of orders starts from: a short circuit of its own, and parts that can go away."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import connection
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import seckill_site.lua
from orders import publishing
from seckill_site.lua import ledger_connection

CLOSED_PORT = 1
"""Nobody listens here: a connection is refused at once."""


@pytest.fixture(autouse=True)
def circuit(monkeypatch: pytest.MonkeyPatch) -> publishing.ShortCircuit:
    """A short circuit that no earlier test has tripped."""
    fresh = publishing.ShortCircuit(pause_ms=60_000)
    monkeypatch.setattr(publishing, "circuit", fresh)
    return fresh


@pytest.fixture
def ledger() -> Redis:
    """The client of the ledger's Redis."""
    client: Redis = ledger_connection()
    return client


@pytest.fixture
def broker_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the broker is at a closed port."""
    monkeypatch.setenv("CELERY_BROKER_URL", f"redis://127.0.0.1:{CLOSED_PORT}/0")


@pytest.fixture
def lose_ledger(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Call it, and the ledger is at a closed port."""
    nowhere = Redis(port=CLOSED_PORT, decode_responses=True, retry=Retry(NoBackoff(), 0))

    def lose() -> None:
        monkeypatch.setattr(seckill_site.lua, "get_redis_connection", lambda alias: nowhere)

    return lose


@pytest.fixture
def lose_database(transactional_db: None) -> Iterator[Callable[[], None]]:
    """Call it, and the database is at a closed port until the test is over."""
    options = dict(connection.settings_dict["OPTIONS"])
    options.pop("unix_socket", None)
    elsewhere = {"HOST": "127.0.0.1", "PORT": str(CLOSED_PORT), "OPTIONS": options}
    with pytest.MonkeyPatch.context() as patch:

        def lose() -> None:
            for name, value in elsewhere.items():
                patch.setitem(connection.settings_dict, name, value)
            connection.close()

        yield lose
    connection.close()
