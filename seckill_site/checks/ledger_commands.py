"""The commands that the ledger's Redis must allow, and which of them it refuses."""

import shlex
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import NoPermissionError

from locks.lua_script import Command, send_once
from locks.protocol import CHANNEL

_KEYS = {it: f"seckill:{{probe}}:{it}" for it in ("text", "hash", "set", "list")}
_KEYS["lock"] = "lock:seckill:{probe}"
_LINES = Path(__file__).with_suffix(".txt").read_text(encoding="ascii").splitlines()

COMMANDS: tuple[Command, ...] = tuple(tuple(shlex.split(it.format(**_KEYS))) for it in _LINES)
"""All that scripts and Python send to the ledger, on keys that are gone at the end.

The argument of EVALSHA is the SHA-1 of the script before it.
"""


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
