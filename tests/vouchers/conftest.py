"""What these tests look through: the real ledger, what was done in which order, Redis gone."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client, override_settings
from redis import Redis
from redis.connection import AbstractConnection

from seckill_site.lua import LuaScript, ledger_connection
from vouchers.ledger import ledger_script

WRITES = ("INSERT", "UPDATE", "DELETE")


@pytest.fixture
def ledger() -> Any:
    """The raw client of the ledger's Redis, its replies decoded."""
    return ledger_connection()


@pytest.fixture
def dump() -> Callable[[], dict[bytes, bytes]]:
    """Return everything that the ledger holds: where it is equal, nothing was written."""

    def read() -> dict[bytes, bytes]:
        with Redis.from_url(django_settings.REDIS_URL) as client:
            return {key: client.dump(key) for key in client.scan_iter()}

    return read


def closed_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def redis_gone() -> Callable[[], AbstractContextManager[None]]:
    """While entered, the ledger's address is a port that refuses."""

    @contextmanager
    def gone() -> Iterator[None]:
        there = django_settings.CACHES
        nowhere = {**there["ledger"], "LOCATION": f"redis://127.0.0.1:{closed_port()}/0"}
        with override_settings(CACHES={**there, "ledger": nowhere}):
            yield

    return gone


@pytest.fixture
def ledger_trips(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one for each round trip to the ledger's Redis (a pipeline is one)."""
    trips: list[int] = []
    number = int(Redis.from_url(django_settings.REDIS_URL).connection_pool.connection_kwargs["db"])
    send = AbstractConnection.send_packed_command

    def counted(self: Any, command: Any, check_health: bool = True) -> None:
        if self.db == number:
            trips.append(number)
        send(self, command, check_health)

    ledger_connection().ping()  # connected before anything is counted
    monkeypatch.setattr(AbstractConnection, "send_packed_command", counted)
    return trips


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was done, in its order: FOR UPDATE, writes to a table, COMMIT, scripts of the ledger."""
    done: list[str] = []

    def note_sql(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        if "FOR UPDATE" in sql:
            done.append("FOR UPDATE")
        elif sql.startswith(WRITES):
            table = next(word for word in sql.split() if word.startswith("`"))
            done.append(f"{sql.split()[0]} {table.strip('`')}")
        return result

    def note_script(name: str) -> Callable[..., Any]:
        run = getattr(LuaScript, name)

        def noted(self: LuaScript, *args: Any, **kwargs: Any) -> Any:
            result = run(self, *args, **kwargs)
            done.append(self.name)
            return result

        return noted

    def note_commit() -> None:
        commit()
        done.append("COMMIT")

    commit = connection.commit
    monkeypatch.setattr(connection._connections[connection._alias], "commit", note_commit)
    monkeypatch.setattr(LuaScript, "run", note_script("run"))
    monkeypatch.setattr(LuaScript, "run_many", note_script("run_many"))
    with ExitStack() as stack:
        stack.enter_context(connection.execute_wrapper(note_sql))
        yield done


@pytest.fixture
def script_without(tmp_path: Path) -> Callable[..., LuaScript]:
    """Return a script with guards taken out, for the control of a test: each, what is instead."""

    def without(name: str, *pairs: str) -> LuaScript:
        source = ledger_script(name).source
        for guard, instead in zip(pairs[::2], pairs[1::2], strict=True):
            assert source.count(guard) == 1, "the guard stands no longer where it is expected"
            source = source.replace(guard, instead)
        path = tmp_path / f"{name}.lua"
        path.write_text(source, encoding="utf-8")
        return LuaScript(path)

    return without


@pytest.fixture
def shop(db: None) -> Client:
    """A browser signed in as the shop's superuser, in English."""
    owner = User.objects.create(username="shop", is_staff=True, is_superuser=True)
    client = Client(headers={"Accept": "text/html", "Accept-Language": "en"})
    client.force_login(owner, backend="django.contrib.auth.backends.ModelBackend")
    return client
