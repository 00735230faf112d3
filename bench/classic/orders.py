"""The front half of the classic design: a sale in Redis, sessions, and orders.

An order takes four round trips: session, id, script, message.
"""

import secrets
import time
from collections.abc import Sequence
from pathlib import Path

from bench.classic.models import ClassicSale
from locks.lua_script import LuaScript
from seckill_site.redis.ledger_connection import ledger_connection

STREAM = "classic:orders"
SESSION, STOCK, BUYERS = "classic:session:{}", "classic:stock:{}", "classic:buyers:{}"
SESSION_S = 30 * 60
ID_EPOCH_S = 1_640_995_200
SEQUENCE_BITS = 32

_DECIDE = LuaScript(Path(__file__).parent / "lua" / "decide.lua")


class NotSignedIn(Exception):
    """The token names no session."""


class Refused(Exception):
    """The script refused the order; the argument is its answer."""


def open_sale(*, stock: int) -> ClassicSale:
    """Create a sale, put its stock into Redis, and delete the messages of the last sale."""
    sale: ClassicSale = ClassicSale.objects.create(stock=stock)
    redis = ledger_connection()
    redis.delete(BUYERS.format(sale.pk))
    redis.set(STOCK.format(sale.pk), stock)
    redis.xtrim(STREAM, maxlen=0)
    return sale


def sign_in(*, user_ids: Sequence[int]) -> list[str]:
    tokens = [secrets.token_hex(16) for _ in user_ids]
    with ledger_connection().pipeline(transaction=False) as pipe:
        for token, user_id in zip(tokens, user_ids, strict=True):
            user = {"id": user_id, "nick_name": f"user_{user_id}", "icon": ""}
            pipe.hset(SESSION.format(token), mapping=user)
            pipe.expire(SESSION.format(token), SESSION_S)
        pipe.execute()
    return tokens


def order(*, token: str, sale_id: int) -> int:
    """Take one unit for the session's user, send its order on and return the order's id.

    :raises NotSignedIn: the token names no session.
    :raises Refused: the script refused the order.
    """
    redis = ledger_connection()
    with redis.pipeline(transaction=False) as pipe:
        session = SESSION.format(token)
        user, _ = pipe.hgetall(session).expire(session, SESSION_S).execute()
    if not user:
        raise NotSignedIn("no session")
    sequence = int(redis.incr(f"classic:ids:{time.strftime('%Y:%m:%d')}"))
    order_id = (int(time.time()) - ID_EPOCH_S) << SEQUENCE_BITS | sequence
    keys = [STOCK.format(sale_id), BUYERS.format(sale_id)]
    answer = _DECIDE.run(redis, keys=keys, args=[user["id"]])
    if answer != "TAKEN":
        raise Refused(answer)
    redis.xadd(STREAM, {"id": order_id, "user_id": user["id"], "sale_id": sale_id})
    return order_id
