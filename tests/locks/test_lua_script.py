"""The script loader: by SHA in one round trip, in full where the server does not know it."""

from __future__ import annotations

import pytest
from redis.exceptions import ResponseError

from locks.lua_script import LuaScript, ScriptCall, pack_command, pack_in_python

ADD = """
redis.call('INCRBY', KEYS[1], ARGV[1])
return {KEYS[1], ARGV[1], redis.call('GET', KEYS[1])}
"""


@pytest.fixture
def script(tmp_path, redis_client):
    """A script that the server does not know."""
    path = tmp_path / "add.lua"
    path.write_text(ADD, encoding="utf-8")
    redis_client.script_flush()
    return LuaScript(path)


def calls(redis_client, command):
    """How often the server was sent a command since its statistics were reset."""
    return redis_client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})["calls"]


def test_script_is_named_after_its_file(script, redis_client):
    assert script.name == "add"
    assert redis_client.script_load(ADD) == script.sha


def test_keys_and_arguments_arrive_as_strings(script, redis_client):
    assert script.run(redis_client, keys=["k"], args=[3]) == ["k", "3", "3"]
    assert script.run(redis_client, keys=["k"], args=["4"]) == ["k", "4", "7"]


def test_script_source_is_sent_once(script, redis_client):
    redis_client.config_resetstat()

    for _ in range(5):
        script.run(redis_client, keys=["k"], args=[1])

    assert redis_client.get("k") == "5"
    assert calls(redis_client, "eval") == 1
    assert calls(redis_client, "script|load") + calls(redis_client, "script") == 0


def test_call_is_built_apart_from_sending_and_reads_reply(script, redis_client):
    call = ScriptCall(script=script, keys=["k"], args=[3], read=lambda reply: int(reply[2]))

    assert redis_client.get("k") is None
    assert call.run(redis_client) == 3


def test_call_reads_the_replies_of_following_commands(script, redis_client):
    call = ScriptCall(script=script, keys=["k"], args=[3], read=list, then=[("GET", "k")])

    assert call.run(redis_client) == [["k", "3", "3"], "3"]


@pytest.mark.parametrize("args", [[], [1], ["a", 2, b"\xff\r\n"], ["ä"] * 12])
def test_packed_call_is_its_packed_command(script, args):
    for keys in ([], ["k"], ["k", "l{1}"] * 5):
        call = ScriptCall(script=script, keys=keys, args=args, read=list, then=[("GET", "k")])
        command = call.commands()[0]
        assert call.packed() == pack_command(command) == pack_in_python(command)


def test_known_script_takes_one_round_trip(script, redis_client, trips):
    script.run(redis_client, keys=["k"], args=[1])
    trips.clear()

    script.run(redis_client, keys=["k"], args=[1])

    assert len(trips) == 1


def test_script_survives_script_flush(script, redis_client):
    script.run(redis_client, keys=["k"], args=[1])
    redis_client.script_flush()

    assert script.run(redis_client, keys=["k"], args=[1]) == ["k", "1", "2"]


def test_many_calls_take_one_round_trip(script, redis_client, trips):
    script.run(redis_client, keys=["k"], args=[1])
    trips.clear()

    answers = script.run_many(redis_client, [([f"k{n}"], [n]) for n in range(100)])

    assert len(trips) == 1
    assert answers == [[f"k{n}", str(n), str(n)] for n in range(100)]


def test_many_calls_survive_script_flush(script, redis_client):
    script.run(redis_client, keys=["k"], args=[1])
    redis_client.script_flush()

    answers = script.run_many(redis_client, [([f"k{n}"], [1]) for n in range(10)])

    assert answers == [[f"k{n}", "1", "1"] for n in range(10)]


def test_no_calls_send_nothing(script, redis_client, trips):
    assert script.run_many(redis_client, []) == []
    assert script.run_many(redis_client, iter([])) == []
    assert trips == []


def test_failing_script_raises(script, redis_client):
    redis_client.rpush("list", "x")

    with pytest.raises(ResponseError):
        script.run(redis_client, keys=["list"], args=[1])
    with pytest.raises(ResponseError):
        script.run_many(redis_client, [(["k"], [1]), (["list"], [1])])


def test_script_file_is_read_as_utf_8(tmp_path, redis_client):
    path = tmp_path / "say.lua"
    path.write_text("-- 牛肉面\nreturn '售罄'", encoding="utf-8")

    assert LuaScript(path).run(redis_client, keys=[], args=[]) == "售罄"


def test_included_helpers_come_once_before_the_script(tmp_path, redis_client):
    shared, path = tmp_path / "include", tmp_path / "fourfold.lua"
    shared.mkdir()
    (shared / "twice.lua").write_text("local function twice(n) return 2 * n end")
    (shared / "four.lua").write_text(
        "-- @include twice\nlocal function four(n) return twice(twice(n)) end"
    )
    path.write_text("-- @include twice\n-- @include four\nreturn four(ARGV[1])")

    script = LuaScript(path)

    assert script.run(redis_client, keys=[], args=[21]) == 84
    assert script.source.count("function twice") == 1


def test_helper_included_in_a_block_is_for_that_block(tmp_path, redis_client):
    shared, path = tmp_path / "include", tmp_path / "twofold.lua"
    shared.mkdir()
    (shared / "twice.lua").write_text("local function twice(n) return 2 * n end")
    (shared / "four.lua").write_text(
        "-- @include twice\nlocal function four(n) return twice(twice(n)) end"
    )
    block = "if ARGV[1] == '%s' then\n  -- @include twice\n  -- @include four\n  return %s\nend\n"
    path.write_text(block % (1, "twice(21)") + block % (2, "four(21)") + "return twice")

    script = LuaScript(path)

    replies = [script.run(redis_client, keys=[], args=[it]) for it in (1, 2)]
    assert replies == [42, 84]
    assert script.source.count("function twice") == 2
    with pytest.raises(ResponseError, match="nonexistent global variable 'twice'"):
        script.run(redis_client, keys=[], args=[3])
