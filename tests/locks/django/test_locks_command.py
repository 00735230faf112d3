"""``manage.py locks``: the list, and a release by force that is asked for twice."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings as django_settings
from django.core.management import call_command
from django.core.management.base import CommandError
from redis import Redis

from tests.fixtures.site import RedisGone
from tests.locks.test_inspection import NAME, OTHER, OWNER, write_lock, write_reader, write_waiting

HEAD = ["name", "kind", "host", "process", "age", "lease", "left", "waiters", "token"]


class Terminal(io.StringIO):
    """Somebody who types."""

    def isatty(self) -> bool:
        return True


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("locks", *arguments, stdout=out)
    return out.getvalue()


def refusal_of(*arguments: str) -> str:
    with pytest.raises(CommandError) as caught:
        run(*arguments)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    assert caught.value.returncode != 0
    return message


def typed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal(text))


# --- The list -------------------------------------------------------------------------------------


def test_no_locks_prints_none_held(redis_client: Redis) -> None:
    assert run() == "No lock is held.\n"


def test_list_is_an_aligned_table_sorted_by_name(redis_client: Redis) -> None:
    write_lock(redis_client, token=7, age_ms=12_300)
    write_lock(redis_client, "lock:a", OTHER)
    write_waiting(redis_client, f"{NAME}:waiting", "web-2/12/bbbbbbbb", 2, left_ms=5_000)
    head, first, second = run().splitlines()
    assert head.split() == HEAD
    assert first.split()[:4] == ["lock:a", "exclusive", "web-2", "12"]
    assert first.split()[-2:] == ["0", "-"]
    assert second.split()[:4] == [NAME, "exclusive", "web-1", "4711"]
    assert 12.3 <= float(second.split()[4]) < 60
    assert second.split()[-2:] == ["2", "7"]
    for title in ("kind", "host", "process", "age", "lease left", "waiters", "token"):
        start = head.index(title)
        assert {row[start - 1] for row in (head, first, second)} == {" "}
        assert " " not in {row[start] for row in (head, first, second)}


def test_match_filters_the_list(redis_client: Redis) -> None:
    write_lock(redis_client)
    write_lock(redis_client, "job:a")
    assert [line.split()[0] for line in run("--match", "job:*").splitlines()[1:]] == ["job:a"]


def test_json_lists_one_object_per_hold(redis_client: Redis) -> None:
    write_lock(redis_client, token=7)
    write_reader(redis_client, OTHER, key="lock:{12}:page:readers")
    read, exclusive = json.loads(run("--json"))
    assert list(exclusive) == [
        "name", "kind", "host", "process", "thread", "age_ms", "lease_left_ms", "waiters",
        "token", "owner",
    ]  # fmt: skip
    assert (exclusive["name"], exclusive["owner"], exclusive["token"]) == (NAME, OWNER, 7)
    assert (read["kind"], read["age_ms"], read["token"]) == ("read", None, None)


def test_json_without_locks_is_an_empty_list(redis_client: Redis) -> None:
    assert json.loads(run("--json")) == []


# --- By force -------------------------------------------------------------------------------------


def test_typed_yes_shows_the_holder_and_releases(
    redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lock(redis_client, token=7)
    typed(monkeypatch, "yes\n")
    text = run("--release", NAME)
    assert "web-1" in text
    assert OWNER in text
    assert "within a third of its lease" in text
    assert "fencing token" in text
    assert text.endswith("Released.\n")
    assert not redis_client.exists(NAME)


@pytest.mark.parametrize("answer", ["no\n", "y\n", "\n", ""])
def test_any_other_answer_releases_nothing(
    redis_client: Redis, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    write_lock(redis_client)
    typed(monkeypatch, answer)
    assert "nothing was released" in refusal_of("--release", NAME)
    assert redis_client.exists(NAME)


def test_release_without_terminal_needs_yes_option(redis_client: Redis) -> None:
    write_lock(redis_client)
    assert "--yes" in refusal_of("--release", NAME)
    assert redis_client.exists(NAME)


def test_free_lock_cannot_be_released(redis_client: Redis) -> None:
    redis_client.set("lock:{12}:fence", 41)
    for name in (NAME, "lock:{12}:fence", ""):
        assert f"{name} is not held" in refusal_of("--release", name, "--yes")
    assert redis_client.get("lock:{12}:fence") == "41"


def test_invalid_name_gives_one_clear_line(redis_client: Redis) -> None:
    assert "lock:{" in refusal_of("--release", "lock:{", "--yes")


def test_release_among_several_readers_needs_an_owner(redis_client: Redis) -> None:
    write_reader(redis_client, OWNER)
    write_reader(redis_client, OTHER)
    refusal = refusal_of("--release", NAME, "--yes")
    assert OWNER in refusal
    assert OTHER in refusal
    assert "--owner" in refusal
    run("--release", NAME, "--owner", OTHER, "--yes")
    assert [row["owner"] for row in json.loads(run("--json"))] == [OWNER]


def test_release_of_another_owner_is_refused(redis_client: Redis) -> None:
    write_lock(redis_client)
    assert OTHER in refusal_of("--release", NAME, "--owner", OTHER, "--yes")
    assert redis_client.exists(NAME)


def test_lock_that_changed_hands_meanwhile_is_not_released(
    redis_client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lock(redis_client)

    class Slow(Terminal):
        def readline(self, size: int = -1, /) -> str:  # type: ignore[override]  # as StringIO has it
            write_lock(redis_client, owner=OTHER)
            return super().readline(size)

    monkeypatch.setattr(sys, "stdin", Slow("yes\n"))
    assert "not held by" in refusal_of("--release", NAME)
    assert str(redis_client.get(NAME)).startswith(OTHER)


@pytest.mark.parametrize(
    "arguments", [["--yes"], ["--owner", OWNER], ["--release", NAME, "--json"],
                  ["--release", NAME, "--match", "*"]],
)  # fmt: skip
def test_conflicting_options_are_refused(redis_client: Redis, arguments: list[str]) -> None:
    write_lock(redis_client)
    assert "--" in refusal_of(*arguments)
    assert redis_client.exists(NAME)


# --- Around it ------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["--json"], ["--release", NAME, "--yes"]])
def test_unreachable_redis_gives_one_clear_line(
    arguments: list[str], redis_gone: RedisGone
) -> None:
    with redis_gone():
        assert "Redis did not respond" in refusal_of(*arguments)


@pytest.mark.slow
def test_command_works_in_a_project_with_only_locks(redis_client: Redis, tmp_path: Path) -> None:
    write_lock(redis_client)
    options = {"CONNECTION_POOL_KWARGS": {"decode_responses": True}}
    cache = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": django_settings.REDIS_URL,
        "OPTIONS": options,
    }
    caches = {"default": cache, "ledger": cache}
    text = f"SECRET_KEY = 'x'\nINSTALLED_APPS = ['locks.django']\nCACHES = {caches!r}\n"
    (tmp_path / "bare.py").write_text(text)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{tmp_path}:{django_settings.BASE_DIR}",
        "DJANGO_SETTINGS_MODULE": "bare",
    }
    command = [sys.executable, "-m", "django", "locks"]

    def bare(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *arguments],
            env=environment,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )

    assert NAME in bare().stdout
    refused = bare("--release", NAME)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "Traceback" not in refused.stderr
    assert bare("--release", NAME, "--yes").stdout.endswith("Released.\n")
    assert bare().stdout == "No lock is held.\n"
