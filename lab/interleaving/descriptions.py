"""Describe statements, commands and their replies, short enough for a column."""

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import Any

from locks.lua_script import LuaScript, ScriptCall

WIDEST, WIDEST_REPLY, WIDEST_VALUE = 110, 60, 24
SHOWN_COLUMNS = ("stock", "sold", "epoch", "fence", "batch", "status", "reason", "count")
"""Columns whose values decide a race; for others the number of rows is enough."""

READS = frozenset(
    {"EXISTS", "GET", "HGET", "HGETALL", "HMGET", "INFO", "TIME", "TYPE", "ZRANGE"}
    | {"read_buyer_holdings.lua", "snapshot.lua"}
)
"""Commands and scripts that change nothing."""

_QUALIFIED = re.compile(r"`\w+`\.`(\w+)`")
_COLUMNS = re.compile(r"(?<=SELECT )(?!COUNT|1 AS).{40,}?(?= FROM )")
_LONG_LIST = re.compile(r"\([^()]{40,}\)")
_LONG_VALUE = re.compile(r"\b[0-9a-f]{13,}\b")
_OWNER = re.compile(r"[\w.-]+(/[\w.-]+){2,}")
_NOISE = re.compile(r" LIMIT 21| AS __count| RETURNING id$")


def is_read(what: str) -> bool:
    """Return whether a statement or command only reads."""
    return what.partition(" ")[0] in READS or (
        what.startswith("SELECT") and not what.endswith("FOR UPDATE")
    )


def describe_statement(sql: str, params: Any, *, many: bool) -> str:
    """Return a statement with its values, and without details that a reader does not need."""
    text = _NOISE.sub("", _QUALIFIED.sub(r"\1", sql).replace("`", ""))
    if not many and isinstance(params, Sequence) and params:
        text = text % tuple(_value(it) for it in params)
    text = _LONG_LIST.sub("(…)", _COLUMNS.sub("…", text))
    return _short(f"{text} × {len(params)}" if many else text)


def describe_rows(cursor: Any) -> str:
    """Return what a statement found; the driver's cursor is left as it was."""
    if cursor.description is None or cursor.rowcount != 1:
        return _count(cursor.rowcount)
    (row,) = cursor.fetchall()
    cursor.scroll(0, mode="absolute")
    names = [it[0] for it in cursor.description]
    if len(names) == 1 and "COUNT" in names[0].upper():
        return str(row[0])
    shown = [
        f"{name} {value}"
        for name, value in zip(names, row, strict=True)
        if name.lower() in SHOWN_COLUMNS and value not in (None, "")
    ]
    return ", ".join(shown) or _count(1)


def describe_call(call: ScriptCall[Any], client: Any) -> str:
    """Return a script's name, its first key that names no caller, and its first arguments."""
    return describe_calls(call.script, client, [(call.keys, call.args)])


def describe_calls(script: LuaScript, client: Any, calls: Any) -> str:
    """Return the same of the first of several calls."""
    keys, given = next(iter(calls), ((), ()))
    key = next((it for it in keys if ":released:" not in it), "")
    words = [f"{script.name}.lua", key, *(_argument(it) for it in given[:2])]
    return _short(" ".join(word for word in words if word))


def describe_command(client: Any, *args: Any, **options: Any) -> str:
    """Return a Redis command as typed on a command line."""
    return _short(" ".join(_argument(it) for it in args))


def describe_reply(reply: Any) -> str:
    """Return a reply of Redis."""
    if reply is None:
        return "nil"
    if isinstance(reply, bool):
        return "OK" if reply else "no"
    if isinstance(reply, Mapping):
        pairs = ", ".join(f"{key} {_argument(it)}" for key, it in reply.items())
        return _short(pairs or "empty", WIDEST_REPLY)
    if isinstance(reply, list | tuple | set):
        return _short(", ".join(describe_reply(it) for it in reply) or "empty", WIDEST_REPLY)
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
    """Return a value; a long or random number is cut to its last digits."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    text = _OWNER.sub(lambda match: f"…{match[0][-5:]}", text)
    text = _LONG_VALUE.sub(lambda match: f"…{match[0][-5:]}", text)
    return text if len(text) <= WIDEST_VALUE else f"{text[: WIDEST_VALUE - 1]}…"


def _short(text: str, widest: int = WIDEST) -> str:
    return text if len(text) <= widest else f"{text[: widest - 1]}…"
