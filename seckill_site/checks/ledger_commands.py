"""The commands that the ledger's Redis must allow, and which of them it refuses."""

from typing import Any

from redis import Redis
from redis.exceptions import NoPermissionError

from locks.lua_script import Command, send_once
from locks.protocol import CHANNEL

_TEXT, _HASH, _SET, _LIST = (
    f"seckill:{{probe}}:{kind}" for kind in ("text", "hash", "set", "list")
)
_LOCK = "lock:seckill:{probe}"
_SCRIPT = "return 1"

COMMANDS: tuple[Command, ...] = (
    ("PING",),
    ("TIME",),
    ("INFO", "server"),
    ("SCAN", "0", "COUNT", "1"),
    ("SCRIPT", "LOAD", _SCRIPT),
    ("EVAL", _SCRIPT, "2", _TEXT, _LOCK),
    ("EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "2", _TEXT, _LOCK),  # its SHA-1
    ("WAIT", "0", "1"),
    ("SET", _LOCK, "1", "PX", "1"),
    ("SET", _TEXT, "1"),
    ("GET", _TEXT),
    ("GETSET", _TEXT, "1"),
    ("MGET", _TEXT, _LOCK),
    ("TYPE", _TEXT),
    ("EXISTS", _TEXT),
    ("PTTL", _TEXT),
    ("PERSIST", _TEXT),
    ("EXPIRE", _TEXT, "1"),
    ("PEXPIRE", _TEXT, "1000"),
    ("PEXPIREAT", _TEXT, "1"),
    ("INCR", f"{_TEXT}:number"),
    ("RENAME", f"{_TEXT}:number", _TEXT),
    ("HSET", _HASH, "field", "1"),
    ("HSETNX", _HASH, "field", "1"),
    ("HGET", _HASH, "field"),
    ("HMGET", _HASH, "field"),
    ("HGETALL", _HASH),
    ("HEXISTS", _HASH, "field"),
    ("HLEN", _HASH),
    ("HINCRBY", _HASH, "field", "1"),
    ("HRANDFIELD", _HASH),
    ("HSCAN", _HASH, "0"),
    ("HDEL", _HASH, "field"),
    ("ZADD", _SET, "1", "member"),
    ("ZCARD", _SET),
    ("ZCOUNT", _SET, "0", "1"),
    ("ZRANGE", _SET, "0", "0"),
    ("ZRANGEBYSCORE", _SET, "0", "1"),
    ("ZRANK", _SET, "member"),
    ("ZSCORE", _SET, "member"),
    ("ZMSCORE", _SET, "member"),
    ("ZSCAN", _SET, "0"),
    ("ZINCRBY", _SET, "1", "member"),
    ("ZREVRANGE", _SET, "0", "0"),
    ("ZREM", _SET, "member"),
    ("ZREMRANGEBYSCORE", _SET, "0", "1"),
    ("ZPOPMIN", _SET),
    ("LPUSH", _LIST, "1"),
    ("LTRIM", _LIST, "0", "0"),
    ("MULTI",),
    ("EXEC",),
    ("DEL", _TEXT, _HASH, _SET, _LIST, _LOCK),
    ("UNLINK", _TEXT, _HASH, _SET, _LIST, _LOCK),
)
"""All that scripts and Python send to the ledger, on keys that are gone at the end."""


def refused_commands(client: Redis) -> list[str]:
    """Try what the product sends, and return what the user may not do, on its keys.

    :raises redis.RedisError: no reply.
    """
    replies = send_once(client, *COMMANDS)
    refused = [
        " ".join(str(word) for word in command[: 2 if command[0] == "SCRIPT" else 1])
        for command, reply in zip(COMMANDS, replies, strict=True)
        if isinstance(reply, NoPermissionError)
    ]
    return list(dict.fromkeys(refused))


def may_use_channel(client: Any) -> bool:
    """Return whether the user may publish and hear which locks are released.

    :raises redis.RedisError: no reply.
    """
    try:
        client.publish(CHANNEL, "")
        with client.pubsub() as pubsub:
            pubsub.subscribe(CHANNEL)
            pubsub.get_message(timeout=1)
    except NoPermissionError:
        return False
    return True
