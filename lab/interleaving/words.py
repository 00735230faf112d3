"""Statements, commands and their replies, short enough for a column."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import Any

from locks.lua_script import LuaScript

WIDEST, WIDEST_REPLY, WIDEST_VALUE = 110, 60, 24
TELLING = ("stock", "sold", "epoch", "fence", "batch", "status", "reason", "count")
"""Columns whose value is what a race turns on; of others it is enough how many rows there were."""

READS = frozenset(
    {"EXISTS", "GET", "HGET", "HGETALL", "HMGET", "INFO", "TIME", "TYPE", "ZRANGE"}
    | {"read_buyer_holdings.lua", "read_suspects.lua", "snapshot.lua"}
)
"""Commands and scripts that change nothing."""

_QUALIFIED = re.compile(r"`\w+`\.`(\w+)`")
_COLUMNS = re.compile(r"(?<=SELECT )(?!COUNT|1 AS).{40,}?(?= FROM )")
_LONG_LIST = re.compile(r"\([^()]{40,}\)")
_LONG_VALUE = re.compile(r"\b[0-9a-f]{13,}\b")
_OWNER = re.compile(r"[\w.-]+(/[\w.-]+){2,}")
_NOISE = re.compile(r" LIMIT 21| AS __count| RETURNING id$")


def is_read(what: str) -> bool:
    """Say whether a statement or command only reads."""
    return what.partition(" ")[0] in READS or (
        what.startswith("SELECT") and not what.endswith("FOR UPDATE")
    )


def statement_words(sql: str, params: Any, *, many: bool) -> str:
    """Return a statement with its values in it and what a reader does not miss left out."""
    text = _NOISE.sub("", _QUALIFIED.sub(r"\1", sql).replace("`", ""))
    if not many and isinstance(params, Sequence) and params:
        text = text % tuple(_value(it) for it in params)
    text = _LONG_LIST.sub("(…)", _COLUMNS.sub("…", text))
    return _short(f"{text} × {len(params)}" if many else text)


def rows_words(cursor: Any) -> str:
    """Return what a statement found, by the cursor of the driver, which is left as it was."""
    if cursor.description is None or cursor.rowcount != 1:
        return _count(cursor.rowcount)
    (row,) = cursor.fetchall()
    cursor.scroll(0, mode="absolute")
    names = [it[0] for it in cursor.description]
    if len(names) == 1 and "COUNT" in names[0].upper():
        return str(row[0])
    telling = [
        f"{name} {value}"
        for name, value in zip(names, row, strict=True)
        if name.lower() in TELLING and value not in (None, "")
    ]
    return ", ".join(telling) or _count(1)


def script_words(script: LuaScript, *args: Any, **kwargs: Any) -> str:
    """Return a script's name with its first key that names no caller, and what it was given."""
    calls = [(kwargs["keys"], kwargs["args"])] if kwargs else list(args[1])
    keys, given = calls[0] if calls else ((), ())
    key = next((it for it in keys if ":released:" not in it), "")
    words = [f"{script.name}.lua", key, *(_argument(it) for it in given[:2])]
    return _short(" ".join(word for word in words if word))


def command_words(client: Any, *args: Any, **options: Any) -> str:
    """Return a Redis command as one would type it."""
    return _short(" ".join(_argument(it) for it in args))


def reply_words(reply: Any) -> str:
    """Return what Redis has answered."""
    if reply is None:
        return "nil"
    if isinstance(reply, bool):
        return "OK" if reply else "no"
    if isinstance(reply, Mapping):
        pairs = ", ".join(f"{key} {_argument(it)}" for key, it in reply.items())
        return _short(pairs or "empty", WIDEST_REPLY)
    if isinstance(reply, list | tuple | set):
        return _short(", ".join(reply_words(it) for it in reply) or "empty", WIDEST_REPLY)
    return _argument(reply)


def _count(rows: int) -> str:
    return {0: "no row", 1: "1 row"}.get(rows, f"{rows} rows")


def _value(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int | float):
        return _argument(value)
    if isinstance(value, dt.datetime):
        return f"'{value:%H:%M:%S}'"
    return f"'{_argument(value)}'"


def _argument(value: Any) -> str:
    """Return a value; of a long number or a random one, the end that tells it from others."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    text = _OWNER.sub(lambda match: f"…{match[0][-5:]}", text)
    text = _LONG_VALUE.sub(lambda match: f"…{match[0][-5:]}", text)
    return text if len(text) <= WIDEST_VALUE else f"{text[: WIDEST_VALUE - 1]}…"


def _short(text: str, widest: int = WIDEST) -> str:
    return text if len(text) <= widest else f"{text[: widest - 1]}…"
