"""The calls of the scripts, awaited: nothing is sent twice, and no cancellation loses an answer."""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from redis import ResponseError
from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from locks import scripts
from locks.lua_script import Command, ScriptCall, is_unknown_script, pack_command
from locks.protocol import RenewResult

T = TypeVar("T")

_unfinished: set[asyncio.Task[Any]] = set()
"""Strong references: an event loop has only weak ones."""


async def finished(coroutine: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine to its end; a cancellation is raised only then.

    A second cancellation is raised at once, and leaves the coroutine to the event loop.
    """
    task = asyncio.ensure_future(coroutine)
    _unfinished.add(task)
    task.add_done_callback(_unfinished.discard)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.add_done_callback(_look_at_error)
        await asyncio.wait([task])
        raise
    return task.result()


def _look_at_error(task: asyncio.Task[Any]) -> None:
    """Take note of an error that nobody awaits any more, or asyncio would log it."""
    if not task.cancelled():
        task.exception()


async def answer_of(client: Redis, call: ScriptCall[T]) -> T:
    """Send a call in one round trip and return its result, as ``ScriptCall.run`` does.

    :raises redis.RedisError: no reply; whether the script ran is unknown
    """
    replies = await send_once(client, *call.commands())
    if is_unknown_script(replies):
        replies = await send_once(client, *call.commands(in_full=True))
    return call.settle(replies)


async def renew(
    client: Redis, requests: Iterable[tuple[Sequence[str], str, int]]
) -> list[RenewResult | ResponseError]:
    """Renew many holds in one round trip, as ``scripts.renew`` does."""
    script = scripts.SCRIPTS["renew"]
    commands = [script.command(names, (owner, ms)) for names, owner, ms in requests]
    replies = await send_once(client, *commands)
    if any(isinstance(reply, NoScriptError) for reply in replies):
        await client.script_load(script.source)
        replies = await send_once(client, *commands)
    return scripts.renewed(replies)


async def send_once(client: Redis, *commands: Command) -> list[Any]:
    """Send commands in one write and return their replies, as ``lua_script.send_once`` does.

    :raises redis.RedisError: no reply; unknown which commands were run
    """
    pool: Any = client.connection_pool
    connection = await pool.get_connection()
    try:
        await connection.send_packed_command([b"".join(map(pack_command, commands))])
        return [await _reply(connection) for _ in commands]
    except BaseException:
        await connection.disconnect(nowait=True)  # a late reply must not answer the next command
        raise
    finally:
        await pool.release(connection)


async def _reply(connection: Any) -> Any:
    try:
        return await connection.read_response()
    except ResponseError as error:
        return error
