"""The front half of the classic design: session, id, script, message; four round trips."""

from __future__ import annotations

import time
from pathlib import Path

from bench.classic.keys import STREAM, buyers_key, id_key, session_key, stock_key
from locks.lua_script import LuaScript
from seckill_site.ledger_connection import ledger_connection

SESSION_S = 30 * 60
ID_EPOCH_S = 1_640_995_200
SEQUENCE_BITS = 32

_DECIDE = LuaScript(Path(__file__).parent / "lua" / "decide.lua")


class NotSignedIn(Exception):
    """There is no session of this token."""


class Refused(Exception):
    """Sold out, or the buyer has one already; the argument says which."""


def order(*, token: str, sale_id: int) -> int:
    """Take one unit for the session's user and send its order on its way; return the order's id.

    :raises NotSignedIn: the token names no session.
    :raises Refused: by the script.
    """
    user_id = _user_of(token)
    order_id = _next_id()
    answer = _DECIDE.run(
        ledger_connection(), keys=[stock_key(sale_id), buyers_key(sale_id)], args=[user_id]
    )
    if answer != "TAKEN":
        raise Refused(answer)
    message = {"id": order_id, "user_id": user_id, "sale_id": sale_id}
    ledger_connection().xadd(STREAM, message)
    return order_id


def _user_of(token: str) -> str:
    """Return the id in the session's hash, and let the session live on."""
    with ledger_connection().pipeline(transaction=False) as pipe:
        user, _ = pipe.hgetall(session_key(token)).expire(session_key(token), SESSION_S).execute()
    if not user:
        raise NotSignedIn
    return str(user["id"])


def _next_id() -> int:
    """Return seconds and a daily sequence."""
    sequence = ledger_connection().incr(id_key(time.strftime("%Y:%m:%d")))
    return (int(time.time()) - ID_EPOCH_S) << SEQUENCE_BITS | int(sequence)
