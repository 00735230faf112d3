"""The script loader: by SHA in one round trip, in full where the server does not know it."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import ExitStack, closing

import pytest
from django.test import override_settings
from hiredis import pack_command
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from locks.lua_script import LuaScript, ScriptCall
from seckill_site.ledger_connection import ledger_connection
from tests.support.patience import MOMENT_S

ADD = """
redis.call('INCRBY', KEYS[1], ARGV[1])
return {KEYS[1], ARGV[1], redis.call('GET', KEYS[1])}
"""


@pytest.fixture
def script(tmp_path, ledger):
    """A script that the server does not know."""
    path = tmp_path / "add.lua"
    path.write_text(ADD, encoding="utf-8")
    ledger.script_flush()
    return LuaScript(path)


def calls(ledger, command):
    """How often the server was sent a command since its statistics were reset."""
    return ledger.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]


def test_script_is_named_after_its_file(script, ledger):
    assert script.name == "add"
    assert ledger.script_load(ADD) == script.sha


def test_keys_and_arguments_arrive_as_strings(script, ledger):
    assert script.run(ledger, keys=["k"], args=[3]) == ["k", "3", "3"]
    assert script.run(ledger, keys=["k"], args=["4"]) == ["k", "4", "7"]


def test_script_source_is_sent_once(script, ledger):
    ledger.config_resetstat()

    for _ in range(5):
        script.run(ledger, keys=["k"], args=[1])

    assert ledger.get("k") == "5"
    assert calls(ledger, "eval") == 1
    assert calls(ledger, "script|load") + calls(ledger, "script") == 0


def test_call_is_built_apart_from_sending_and_reads_reply(script, ledger):
    call = ScriptCall(script=script, keys=["k"], args=[3], read=lambda reply: int(reply[2]))

    assert ledger.get("k") is None
    assert call.run(ledger) == 3


def test_call_reads_the_replies_of_following_commands(script, ledger):
    call = ScriptCall(script=script, keys=["k"], args=[3], read=list, then=[("GET", "k")])

    assert call.run(ledger) == [["k", "3", "3"], "3"]


@pytest.mark.parametrize("args", [[], [1], ["a", 2, b"\xff\r\n"], ["ä"] * 12])
def test_packed_call_is_its_packed_command(script, args):
    for keys in ([], ["k"], ["k", "l{1}"] * 5):
        call = ScriptCall(script=script, keys=keys, args=args, read=list, then=[("GET", "k")])
        assert call.packed() == pack_command(call.commands()[0])  # type: ignore[arg-type]


def test_known_script_takes_one_round_trip(script, ledger, ledger_trips):
    script.run(ledger, keys=["k"], args=[1])
    ledger_trips.clear()

    script.run(ledger, keys=["k"], args=[1])

    assert len(ledger_trips) == 1


def test_script_survives_script_flush(script, ledger):
    script.run(ledger, keys=["k"], args=[1])
    ledger.script_flush()

    assert script.run(ledger, keys=["k"], args=[1]) == ["k", "1", "2"]


def test_many_calls_take_one_round_trip(script, ledger, ledger_trips):
    script.run(ledger, keys=["k"], args=[1])
    ledger_trips.clear()

    answers = script.run_many(ledger, [([f"k{n}"], [n]) for n in range(100)])

    assert len(ledger_trips) == 1
    assert answers == [[f"k{n}", str(n), str(n)] for n in range(100)]


def test_many_calls_survive_script_flush(script, ledger):
    script.run(ledger, keys=["k"], args=[1])
    ledger.script_flush()

    answers = script.run_many(ledger, [([f"k{n}"], [1]) for n in range(10)])

    assert answers == [[f"k{n}", "1", "1"] for n in range(10)]


def test_no_calls_send_nothing(script, ledger, ledger_trips):
    assert script.run_many(ledger, []) == []
    assert script.run_many(ledger, iter([])) == []
    assert ledger_trips == []


def test_calls_may_come_from_a_generator(script, ledger):
    answers = script.run_many(ledger, (([f"k{n}"], [1]) for n in range(3)))

    assert len(answers) == 3


def test_failing_script_raises(script, ledger):
    ledger.rpush("list", "x")

    with pytest.raises(ResponseError):
        script.run(ledger, keys=["list"], args=[1])
    with pytest.raises(ResponseError):
        script.run_many(ledger, [(["k"], [1]), (["list"], [1])])


def test_script_file_is_read_as_utf_8(tmp_path, ledger):
    path = tmp_path / "say.lua"
    path.write_text("-- 牛肉面\nreturn '售罄'", encoding="utf-8")

    assert LuaScript(path).run(ledger, keys=[], args=[]) == "售罄"


def test_included_helpers_come_once_before_the_script(tmp_path, ledger):
    shared, path = tmp_path / "include", tmp_path / "fourfold.lua"
    shared.mkdir()
    (shared / "twice.lua").write_text("local function twice(n) return 2 * n end")
    (shared / "four.lua").write_text(
        "-- @include twice\nlocal function four(n) return twice(twice(n)) end"
    )
    path.write_text("-- @include twice\n-- @include four\nreturn four(ARGV[1])")

    script = LuaScript(path)

    assert script.run(ledger, keys=[], args=[21]) == 84
    assert script.source.count("function twice") == 1


def test_helper_included_in_a_block_is_for_that_block(tmp_path, ledger):
    shared, path = tmp_path / "include", tmp_path / "twofold.lua"
    shared.mkdir()
    (shared / "twice.lua").write_text("local function twice(n) return 2 * n end")
    (shared / "four.lua").write_text(
        "-- @include twice\nlocal function four(n) return twice(twice(n)) end"
    )
    block = "if ARGV[1] == '%s' then\n  -- @include twice\n  -- @include four\n  return %s\nend\n"
    path.write_text(block % (1, "twice(21)") + block % (2, "four(21)") + "return twice")

    script = LuaScript(path)

    replies = [script.run(ledger, keys=[], args=[it]) for it in (1, 2)]
    assert replies == [42, 84]
    assert script.source.count("function twice") == 2
    with pytest.raises(ResponseError, match="nonexistent global variable 'twice'"):
        script.run(ledger, keys=[], args=[3])


# --- the ledger's client -------------------------------------------------------------------------


def test_replies_are_text(ledger):
    ledger.set("k", "售罄")

    assert ledger.get("k") == "售罄"


class Listener:
    """A server that accepts, and then hangs up or says nothing."""

    def __init__(self, *, hang_up):
        self.hang_up, self.accepted, self._held = hang_up, 0, []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._socket.getsockname()[1]}/0"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.accepted += 1
            if self.hang_up:
                connection.close()
            else:
                self._held.append(connection)

    def close(self):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)
        for connection in self._held:
            connection.close()


@pytest.fixture
def at_listener(settings):
    """Point the ledger at a listener; return a function that makes it."""
    with ExitStack() as stack:

        def point(*, hang_up):
            listener = stack.enter_context(closing(Listener(hang_up=hang_up)))
            there = settings.CACHES
            ledger = {**there["ledger"], "LOCATION": listener.url}
            stack.enter_context(override_settings(CACHES={**there, "ledger": ledger}))
            return listener

        yield point


def test_ledger_client_does_not_retry(at_listener):
    """Who replays a script is decided where its answer is needed, not in the client."""
    listener = at_listener(hang_up=True)

    with pytest.raises(RedisConnectionError):
        ledger_connection().ping()

    assert listener.accepted == 1


def test_silent_server_times_out(at_listener):
    listener = at_listener(hang_up=False)
    started = time.monotonic()

    with pytest.raises(RedisTimeoutError):
        ledger_connection().ping()

    assert 0.5 < time.monotonic() - started < MOMENT_S
    assert listener.accepted == 1
