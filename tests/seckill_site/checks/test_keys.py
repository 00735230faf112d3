"""A half-done key rotation is found: in the settings of one server, and between two servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from pytest_django import Settings

from seckill_site.checks import keys
from seckill_site.checks.configuration import found_by

OLD, NEW = "the old key", "the new key"

Start = Callable[..., list[str]]


@pytest.fixture
def start(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Let a server start with a key and its fallbacks; return what the check says."""

    def start(host: str, key: str, fallbacks: Sequence[str] = ()) -> list[str]:
        settings.SECRET_KEY = settings.SECKILL_SANDBOX_KEY = key
        settings.SECRET_KEY_FALLBACKS = settings.SECKILL_SANDBOX_KEY_FALLBACKS = list(fallbacks)
        monkeypatch.setattr(keys, "gethostname", lambda: host)
        found = found_by(keys.check_shared_keys)
        assert {it.id for it in found} <= {"seckill.W031"}
        return [it.msg for it in found if "Their SECRET_KEY" in it.msg]

    return start


def test_two_steps_on_two_servers_are_silent(start: Start) -> None:
    for key, fallbacks in [(OLD, []), (OLD, [NEW]), (NEW, [OLD]), (NEW, [])]:
        for host in ("a", "b"):
            assert start(host, key, fallbacks) == []


def test_one_step_is_found_at_its_first_server(start: Start) -> None:
    start("a", OLD)
    start("b", OLD)

    (found,) = start("a", NEW, [OLD])

    assert "The server b refuses what this one signs" in found


def test_missing_fallback_is_found(start: Start) -> None:
    start("a", OLD, [NEW])
    start("b", OLD, [NEW])

    assert [it.partition(" has")[0] for it in start("a", NEW)] == [
        "This server refuses what a signs or",
        "This server refuses what b signs or",
    ]


def test_sandbox_key_is_compared_too(start: Start, settings: Settings) -> None:
    start("a", OLD)
    settings.SECKILL_SANDBOX_KEY = NEW

    found = found_by(keys.check_shared_keys)

    assert "Their SECKILL_SANDBOX_KEY differ" in found[0].msg


def test_old_fingerprints_are_forgotten(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    start("a", OLD)
    monkeypatch.setattr(keys, "FRESH_S", 0)

    assert start("b", NEW) == []


def test_redis_holds_no_key(start: Start, ledger: Any) -> None:
    start("a", OLD, [NEW])

    (text,) = ledger.hvals(keys.FINGERPRINTS)

    assert OLD not in text
    assert NEW not in text
    assert 0 < ledger.ttl(keys.FINGERPRINTS) <= keys.FRESH_S


@pytest.mark.parametrize("junk", ["", "{}", "[1]", '["x", {}]', "[9e9, 3]", '[9e9, {"a": 1}]'])
def test_junk_is_ignored(start: Start, ledger: Any, junk: str) -> None:
    ledger.hset(keys.FINGERPRINTS, "b", junk)

    assert start("a", OLD) == []
    assert json.loads(ledger.hget(keys.FINGERPRINTS, "a"))


def test_missing_redis_is_reported_by_another_check(start: Start, redis_gone: Any) -> None:
    start("a", OLD)

    with redis_gone():
        assert found_by(keys.check_shared_keys) == []


@pytest.mark.parametrize("name", ["SECRET_KEY", "SECKILL_SANDBOX_KEY"])
def test_key_among_its_fallbacks_is_found(settings: Settings, name: str) -> None:
    setattr(settings, name, OLD)
    setattr(settings, f"{name}_FALLBACKS", [NEW, OLD])

    (found,) = found_by(keys.check_fallbacks)

    assert found.id == "seckill.W030"
    assert found.msg.startswith(name)
