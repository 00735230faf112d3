"""The front door's connection to the ledger: whose reply is whose, and what a sick server costs."""

from __future__ import annotations

import asyncio
import math
import random
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from django.conf import settings
from pytest_django import Settings
from redis import Redis, RedisError, ResponseError
from redis.connection import parse_url

from locks.lua_script import LuaScript, ScriptCall
from seckill_site.front_door import ledger_node
from seckill_site.front_door.ledger_node import LONGEST_S, LedgerNode, close_ledger_nodes
from seckill_site.redis.ledger_connection import ledger_connection
from seckill_site.redis.primary import Primary
from tests.faults.conftest import OwnRedis
from tests.support.patience import GENEROUS_S, MOMENT_S, Stalls
from tests.support.proxy import HOST, FaultProxy, redis_server

ECHO = "redis.call('INCR', KEYS[1]) return {ARGV[1], redis.call('GET', KEYS[1])}"
KEY = "node:{test}"

Use = Callable[[LedgerNode], Coroutine[Any, Any, Any]]


@pytest.fixture(autouse=True)
def shops_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait as long as the shop does: that is what these tests are about."""
    monkeypatch.setattr(ledger_node, "LONGEST_S", LONGEST_S)


@pytest.fixture
def echo(tmp_path: Path) -> LuaScript:
    path = tmp_path / "echo.lua"
    path.write_text(ECHO)
    return LuaScript(path)


@pytest.fixture
def server() -> Iterator[Any]:
    with Redis.from_url(settings.REDIS_URL, decode_responses=True) as client:
        client.delete(KEY)
        yield client
        client.delete(KEY)


@pytest.fixture
def proxy() -> Iterator[FaultProxy]:
    with FaultProxy(redis_server(settings.REDIS_URL)) as proxy:
        yield proxy


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[OwnRedis]:
    """A Redis that a test may configure."""
    with OwnRedis(tmp_path) as own:
        yield own


def through(proxy: FaultProxy) -> str:
    return proxy.url(parse_url(settings.REDIS_URL)["db"], like=settings.REDIS_URL)


def with_node(use: Use, *, url: str = "") -> Any:
    """Run a coroutine on a node of its own, and close that."""

    async def run() -> Any:
        node = LedgerNode(url or settings.REDIS_URL)
        try:
            return await asyncio.wait_for(use(node), GENEROUS_S)
        finally:
            await node.close()

    return asyncio.run(run())


def asking(
    script: LuaScript, text: object, read: Callable[[Any], Any] = lambda it: it
) -> ScriptCall[Any]:
    return ScriptCall(script=script, keys=[KEY], args=[str(text)], read=read)


def plain(source: str, tmp_path: Path) -> ScriptCall[Any]:
    path = tmp_path / "plain.lua"
    path.write_text(source)
    return ScriptCall(script=LuaScript(path), keys=[KEY], args=[], read=lambda it: it)


def identity(tmp_path: Path) -> ScriptCall[int]:
    """Return a call that reads the number of its connection."""
    path = tmp_path / "one.lua"
    path.write_text("return 1")
    return ScriptCall(
        script=LuaScript(path),
        keys=[KEY],
        args=[],
        read=lambda replies: replies[1],
        then=[("CLIENT", "ID")],
    )


def test_call_returns_what_its_reply_reads_as(echo: LuaScript, server: Any) -> None:
    found = with_node(lambda node: node.run(asking(echo, "a", read=lambda reply: reply[0] * 2)))
    assert found == "aa"


def test_following_commands_are_read_with_the_script(echo: LuaScript, server: Any) -> None:
    call = ScriptCall(script=echo, keys=[KEY], args=["a"], read=list, then=[("GET", KEY)])
    assert with_node(lambda node: node.run(call)) == [["a", "1"], "1"]


def test_unknown_script_is_sent_in_full_and_run_once(echo: LuaScript, server: Any) -> None:
    server.script_flush()

    async def ask(node: LedgerNode) -> None:
        await asyncio.gather(*[node.run(asking(echo, number)) for number in range(20)])

    with_node(ask)
    assert server.get(KEY) == "20"


def test_following_commands_are_sent_once_for_all_that_come_together(
    echo: LuaScript, server: Any
) -> None:
    server.script_flush()  # also while a script has to be sent again

    def counting(number: int) -> ScriptCall[Any]:
        then = [("INCR", KEY + "then")]
        return ScriptCall(script=echo, keys=[KEY], args=[str(number)], read=list, then=then)

    async def ask(node: LedgerNode) -> list[Any]:
        await node.run(counting(0))
        first = asyncio.ensure_future(node.run(counting(1)))
        await asyncio.sleep(0)
        rest = [node.run(counting(number)) for number in range(2, 100)]
        return [await first, *await asyncio.gather(*rest)]

    found = with_node(ask)
    assert [said[0] for said, _ in found] == [str(number) for number in range(1, 100)]
    assert len({then for _, then in found}) <= 3
    server.delete(KEY + "then")


def test_commands_that_come_together_leave_in_one_write(echo: LuaScript, server: Any) -> None:
    def reads() -> int:
        return int(server.info("stats")["total_reads_processed"])

    async def ask(node: LedgerNode) -> int:
        await node.run(asking(echo, 0))
        before = reads()
        await asyncio.gather(*[node.run(asking(echo, number)) for number in range(100)])
        return reads() - before

    assert with_node(ask) < 10


def test_replies_reach_their_questions_however_many_are_cancelled(
    echo: LuaScript, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_node, "LONGEST_S", GENEROUS_S)  # a busy machine may stall for 1 s
    draw = random.Random(18)
    followed: list[str] = []

    async def one(node: LedgerNode, number: int) -> str | None:
        await asyncio.sleep(draw.random() / 20)

        def finish(reply: list[str]) -> str:
            followed.append(reply[0])
            return reply[0]

        call = asking(echo, number).finished_by(finish)
        asked = asyncio.ensure_future(node.run(call))
        if draw.random() < 0.5:
            await asyncio.sleep(draw.random() / 500)
            asked.cancel()
        try:
            return await asked
        except asyncio.CancelledError:
            return None

    async def ask(node: LedgerNode) -> list[str | None]:
        return await asyncio.gather(*[one(node, number) for number in range(1_000)])

    answers = with_node(ask)
    assert all(answer in (None, str(number)) for number, answer in enumerate(answers))
    assert 0 < answers.count(None) < 1_000
    # What follows a reply is done once, also where nobody waited for it any more.
    assert len(followed) == int(server.get(KEY)) > 1_000 - answers.count(None)


def test_error_of_a_script_is_its_own(echo: LuaScript, server: Any, tmp_path: Path) -> None:
    wrong = plain("return redis.call('LPUSH', KEYS[1], 'x')", tmp_path)

    async def ask(node: LedgerNode) -> list[Any]:
        await node.run(asking(echo, "first"))
        calls = [asking(echo, "a"), wrong, asking(echo, "b")]
        return await asyncio.gather(*map(node.run, calls), return_exceptions=True)

    before, failed, after = with_node(ask)
    assert (before[0], after[0]) == ("a", "b")
    assert isinstance(failed, ResponseError)


def test_silent_server_costs_one_timeout_for_all(
    echo: LuaScript, server: Any, proxy: FaultProxy
) -> None:
    async def ask(node: LedgerNode) -> tuple[float, float, Any]:
        await node.run(asking(echo, "before"))
        proxy.stall()
        began = time.monotonic()
        first = await asyncio.gather(
            *[node.run(asking(echo, "lost")) for _ in range(50)], return_exceptions=True
        )
        waited_s = time.monotonic() - began
        assert all(isinstance(it, RedisError) for it in first)
        began = time.monotonic()
        for _ in range(50):
            with pytest.raises(RedisError):
                await node.run(asking(echo, "refused"))
        refused_s = time.monotonic() - began
        proxy.heal()
        return waited_s, refused_s, await until_answered(node, echo)

    stalls = Stalls()
    waited_s, refused_s, found = with_node(ask, url=through(proxy))
    stalled_s = stalls.seconds()
    assert 0.9 * LONGEST_S < waited_s < 1.5 + stalled_s
    assert refused_s < 0.5 * LONGEST_S + stalled_s  # all fifty: nobody waits once it is known
    assert found[0] == "again"  # and not a late reply to one who was lost


@pytest.mark.slow
def test_silent_server_is_tried_by_one_connection_at_a_time(echo: LuaScript) -> None:
    accepted: list[socket.socket] = []

    def attempts() -> int:
        with suppress(BlockingIOError):
            while True:
                accepted.append(silent.accept()[0])
        return len(accepted)

    async def ask(node: LedgerNode) -> None:
        while attempts() < 3:
            asked = [node.run(asking(echo, "lost")) for _ in range(10)]
            found = await asyncio.gather(*asked, return_exceptions=True)
            assert all(isinstance(it, RedisError) for it in found)
            await asyncio.sleep(0.01)

    with ExitStack() as open_sockets:
        silent = open_sockets.enter_context(socket.create_server((HOST, 0), backlog=1_000))
        silent.setblocking(False)
        began = time.monotonic()
        with_node(ask, url=f"redis://{HOST}:{silent.getsockname()[1]}/0")
        # Each attempt lasts for LONGEST_S, because its handshake is not answered.
        assert attempts() <= 1 + math.ceil((time.monotonic() - began) / LONGEST_S)
        for connection in accepted:
            connection.close()


async def until_answered(node: LedgerNode, echo: LuaScript) -> Any:
    """Ask until Redis is back, as buyers do."""
    while True:
        try:
            return await node.run(asking(echo, "again"))
        except RedisError:
            await asyncio.sleep(0.02)


def test_lost_command_is_not_sent_again(echo: LuaScript, server: Any, proxy: FaultProxy) -> None:
    async def ask(node: LedgerNode) -> None:
        await node.run(asking(echo, "before"))
        proxy.drop_replies(1)
        with pytest.raises(RedisError):
            await node.run(asking(echo, "lost"))
        await until_answered(node, echo)

    with_node(ask, url=through(proxy))
    assert server.get(KEY) == "3"


def test_connection_closed_by_the_server_is_opened_again(echo: LuaScript, server: Any) -> None:
    async def ask(node: LedgerNode) -> Any:
        await node.run(asking(echo, "before"))
        server.client_kill_filter(_type="normal", skipme=True)
        await asyncio.sleep(0.05)  # the end of the connection is on its way
        return await until_answered(node, echo)

    assert with_node(ask)[0] == "again"


def test_doubt_about_the_primary_closes_the_connection(
    echo: LuaScript, server: Any, tmp_path: Path
) -> None:
    doubtful = plain("return redis.error_reply('READONLY it says')", tmp_path)
    who = identity(tmp_path)

    async def ask(node: LedgerNode) -> tuple[int, int]:
        before = await node.run(who)
        with pytest.raises(RedisError):
            await node.run(doubtful)
        return before, await node.run(who)

    before, after = with_node(ask)
    assert before != after


@pytest.mark.parametrize("guarded", [True, False], ids=["guard", "control"])
def test_doubt_closes_the_other_connections_of_the_process(
    guarded: bool, server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        monkeypatch.setattr(Primary, "distrust", lambda *_, **__: None)
    doubtful = plain("return redis.error_reply('READONLY it says')", tmp_path)
    who = identity(tmp_path)

    def thread() -> int:
        return int(ledger_connection().client_id())

    async def ask() -> list[bool]:
        one, other = LedgerNode(settings.REDIS_URL), LedgerNode(settings.REDIS_URL)
        before = await other.run(who), thread()
        with pytest.raises(RedisError):
            await one.run(doubtful)
        await asyncio.sleep(0)  # the other hangs up in its own turn
        after = await other.run(who), thread()
        await asyncio.gather(one.close(), other.close())
        return [was != now for was, now in zip(before, after, strict=True)]

    assert asyncio.run(ask()) == [guarded, guarded]


def test_another_run_of_the_server_costs_the_new_connection_nothing(
    server: Any, tmp_path: Path
) -> None:
    async def ask(node: LedgerNode) -> tuple[int, int]:
        node._threads.primary.run_id = "of another run"
        return await node.run(identity(tmp_path)), await node.run(identity(tmp_path))

    first, second = with_node(ask)
    assert first == second


def test_silence_is_known_to_the_threads_until_the_server_is_back(
    echo: LuaScript, server: Any, proxy: FaultProxy
) -> None:
    async def ask(node: LedgerNode) -> tuple[bool, bool]:
        await node.run(asking(echo, "before"))
        proxy.stall()
        with pytest.raises(RedisError):
            await node.run(asking(echo, "silence"))
        silent = node._threads.breaker.open
        proxy.heal()
        await until_answered(node, echo)
        return silent, node._threads.breaker.open

    assert with_node(ask, url=through(proxy)) == (True, False)


@pytest.mark.parametrize("where", ["url", "options"])
def test_password_logs_in(
    where: str, echo: LuaScript, own_redis: OwnRedis, settings: Settings
) -> None:
    password = "s/cr@t: 密"
    with own_redis.client() as client:
        client.config_set("requirepass", password)
    if where == "options":
        ledger = settings.CACHES["ledger"]
        options = {**ledger["OPTIONS"], "PASSWORD": password}
        settings.CACHES = {**settings.CACHES, "ledger": {**ledger, "OPTIONS": options}}
    login = f":{quote(password, safe='')}@" if where == "url" else ""
    url = own_redis.url().replace("//", f"//{login}")
    assert with_node(lambda node: node.run(asking(echo, "a")), url=url)[0] == "a"


def test_control_server_with_a_password_refuses_strangers(
    echo: LuaScript, own_redis: OwnRedis
) -> None:
    with own_redis.client() as client:
        client.config_set("requirepass", "secret")
    for login in ("", ":wrong@"):
        url = own_redis.url().replace("//", f"//{login}")
        with pytest.raises(RedisError):
            with_node(lambda node: node.run(asking(echo, "a")), url=url)


def test_replica_refuses_even_a_script_that_only_reads(own_redis: OwnRedis, tmp_path: Path) -> None:
    reads = plain("return redis.call('GET', KEYS[1])", tmp_path)
    with own_redis.client() as client:
        client.set(KEY, "old")
        client.replicaof(HOST, 1)  # nobody listens there, so it keeps what it has
        assert client.eval(reads.script.source, 1, KEY) == "old"  # Redis itself would answer
        with pytest.raises(RedisError, match="replica"):
            with_node(lambda node: node.run(reads), url=own_redis.url())
        client.replicaof("NO", "ONE")
        assert with_node(lambda node: node.run(reads), url=own_redis.url()) == "old"


def test_calls_that_wait_have_a_connection_of_their_own(server: Any, tmp_path: Path) -> None:
    who = identity(tmp_path)

    async def ask() -> list[int]:
        nodes = [ledger_node.ledger_node(with_then=it) for it in (False, True, False, True)]
        try:
            return [await asyncio.wait_for(it.run(who), GENEROUS_S) for it in nodes]
        finally:
            await close_ledger_nodes()

    first, with_then, again, with_then_again = asyncio.run(ask())
    assert first != with_then
    assert (again, with_then_again) == (first, with_then)


def test_unreachable_server_refuses_at_once(echo: LuaScript, proxy: FaultProxy) -> None:
    proxy.close()

    async def ask(node: LedgerNode) -> None:
        began, stalls = time.monotonic(), Stalls()
        for _ in range(20):
            with pytest.raises(RedisError):
                await node.run(asking(echo, "refused"))
        assert time.monotonic() - began < MOMENT_S + stalls.seconds()

    with_node(ask, url=through(proxy))


def test_more_questions_than_allowed_are_refused_at_once(
    echo: LuaScript, server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_node, "MOST_QUESTIONS", 10)

    async def ask(node: LedgerNode) -> list[Any]:
        asked = [node.run(asking(echo, number)) for number in range(15)]
        return await asyncio.gather(*asked, return_exceptions=True)

    answers = with_node(ask)
    assert [it[0] for it in answers[:10]] == [str(number) for number in range(10)]
    assert all(isinstance(it, RedisError) for it in answers[10:])


def test_close_waits_for_replies(echo: LuaScript, server: Any) -> None:
    async def ask() -> Any:
        node = LedgerNode(settings.REDIS_URL)
        asked = asyncio.ensure_future(node.run(asking(echo, "last")))
        await asyncio.sleep(0)
        await node.close()
        with pytest.raises(RedisError):
            await node.run(asking(echo, "later"))
        return await asked

    assert asyncio.run(ask())[0] == "last"
