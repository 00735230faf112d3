"""Lua scripts: load them and run them on a Redis client, never twice by accident.

A script is one file. It is sent by its SHA-1. If the server does not know it (a new server,
``SCRIPT FLUSH``, a failover), it is sent once more in full, and the server remembers it.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from redis import Redis
from redis.exceptions import NoScriptError, ResponseError

_INCLUDE = re.compile(r"(?P<indent> *)-- @include (?P<name>\w+)")

Argument = str | int | bytes
Command = tuple[Argument, ...]

T = TypeVar("T")
U = TypeVar("U")


def pack_in_python(command: Command) -> bytes:
    """Return a command as it is sent."""
    parts = [part if isinstance(part, bytes) else str(part).encode() for part in command]
    packed = [b"$%d\r\n%b\r\n" % (len(part), part) for part in parts]
    return b"*%d\r\n%b" % (len(parts), b"".join(packed))


try:
    from hiredis import pack_command as _pack_in_c
except ImportError:  # redis-py does without it, and so do locks
    pack_command: Callable[[Command], bytes] = pack_in_python
else:
    pack_command = _pack_in_c  # type: ignore[assignment]  # its types say a tuple of one


class LuaScript:
    """One Lua file; its header states keys, arguments and return values."""

    def __init__(self, path: Path) -> None:
        """Read the script and the helpers that it names in ``-- @include NAME`` lines."""
        self.name = path.stem
        self.source = _with_includes(path, set())
        self.sha = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    def run(self, client: Redis, *, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """Run the script in one round trip, or two if the server does not know it yet."""
        return ScriptCall(script=self, keys=keys, args=args, read=lambda reply: reply).run(client)

    def run_many(
        self, client: Redis, calls: Iterable[tuple[Sequence[str], Sequence[Argument]]]
    ) -> list[Any]:
        """Run the script once for each pair of keys and arguments, all in one round trip."""
        return checked(self.run_each(client, calls))

    def run_each(
        self, client: Redis, calls: Iterable[tuple[Sequence[str], Sequence[Argument]]]
    ) -> list[Any]:
        """Run the script like ``run_many``, but return errors of single calls as values."""
        commands = [self.command(keys, args) for keys, args in calls]
        if not commands:
            return []
        replies = send_once(client, *commands)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            client.script_load(self.source)
            replies = send_once(client, *commands)
        return replies

    def command(
        self, keys: Sequence[str], args: Sequence[Argument], *, in_full: bool = False
    ) -> Command:
        """Return the command that runs the script; ``in_full`` for a server that lacks it."""
        name, text = ("EVAL", self.source) if in_full else ("EVALSHA", self.sha)
        return (name, text, len(keys), *keys, *args)


class ScriptCall(NamedTuple, Generic[T]):
    """One call of a script, separate from sending it.

    ``read`` turns the raw reply into a value, and does nothing else; with commands in ``then``,
    which follow in the same write on the same connection, it takes the list of all replies.
    ``finish``, if there is one, is what follows: it takes that value and returns the result. The
    sender runs it once for each reply, even if nobody waits for the result any more.
    """

    script: LuaScript
    keys: Sequence[str]
    args: Sequence[Argument]
    read: Callable[[Any], T]
    then: Sequence[Command] = ()
    finish: Callable[[Any], T] | None = None

    def run(self, client: Redis) -> T:
        """Send the call in one round trip and return its result.

        :raises redis.RedisError: no reply; whether the script ran is unknown
        """
        return self.settle(self.send(client))

    def send(self, client: Redis) -> list[Any]:
        """Return the replies to all commands, errors included."""
        replies = send_once(client, *self.commands())
        if is_unknown_script(replies):
            replies = send_once(client, *self.commands(in_full=True))
        return replies

    def commands(self, *, in_full: bool = False) -> list[Command]:
        """Return what is sent; ``in_full`` if the server has said that it lacks the script."""
        return [self.script.command(self.keys, self.args, in_full=in_full), *self.then]

    def packed(self) -> bytes:
        """Return the command that runs the script, as it is sent; without ``then``."""
        args = pack_command(tuple(self.args))
        count = 3 + len(self.keys) + len(self.args)
        start = _packed_start(self.script.sha, tuple(self.keys))
        return b"*%d\r\n%b%b" % (count, start, args[args.index(b"\n") + 1 :])

    def finished_by(self, finish: Callable[[Any], U]) -> "ScriptCall[U]":
        """Return the same call with what follows its reply."""
        read: Callable[[Any], Any] = self.read
        return ScriptCall(self.script, self.keys, self.args, read, self.then, finish)

    def settle(self, replies: list[Any]) -> T:
        """Read the replies to all commands, do what follows, and return the result.

        :raises redis.ResponseError: the first reply that is an error
        """
        checked(replies)
        value = self.read(replies if self.then else replies[0])
        return value if self.finish is None else self.finish(value)


@lru_cache(maxsize=1024)
def _packed_start(sha: str, keys: tuple[str, ...]) -> bytes:
    """Return what all calls of a script with these keys begin with, after the first line."""
    packed: bytes = pack_command(("EVALSHA", sha, len(keys), *keys))
    return packed[packed.index(b"\n") + 1 :]


def is_unknown_script(replies: list[Any]) -> bool:
    """Return whether the server lacks the script, and so has not run it."""
    return isinstance(replies[0], NoScriptError)


def _with_includes(path: Path, included: set[str]) -> str:
    """Return a file with each ``-- @include NAME`` replaced, once, by ``include/NAME.lua``.

    One that is indented is for its block alone: the lines up to the next that is not.
    """
    lines, in_block = [], set(included)
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(" "):
            in_block = set(included)
        match = _INCLUDE.fullmatch(line)
        known = in_block if match and match["indent"] else included
        if match is None:
            lines.append(line)
        elif match["name"] not in known:
            known.add(match["name"])
            folder = path.parent if path.parent.name == "include" else path.parent / "include"
            lines.append(_with_includes(folder / f"{match['name']}.lua", known))
    return "\n".join(lines) + "\n"


def send_once(client: Redis, *commands: Command) -> list[Any]:
    """Send commands in one write and return their replies, errors included.

    It never repeats a command, as redis-py's own calls do (up to ten times, scripts included):
    after an error the caller does not know what happened, and decides whether to repeat.

    :raises redis.RedisError: no reply; unknown which commands were run
    """
    pool = client.connection_pool
    connection: Any = pool.get_connection()
    try:
        packed = b"".join([pack_command(command) for command in commands])
        connection.send_packed_command([packed])
        return [_reply(connection) for _ in commands]
    except BaseException:
        connection.disconnect()  # the next command must not read a reply still in flight
        raise
    finally:
        pool.release(connection)


def checked(replies: list[Any]) -> list[Any]:
    """Return the replies.

    :raises redis.ResponseError: the first reply that is an error
    """
    for reply in replies:
        if isinstance(reply, ResponseError):
            raise reply
    return replies


def _reply(connection: Any) -> Any:
    try:
        return connection.read_response()
    except ResponseError as error:
        return error
