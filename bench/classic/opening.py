"""Opens a classic sale: its row, its keys, and a session for each buyer."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from bench.classic.keys import STREAM, buyers_key, session_key, stock_key
from bench.classic.models import ClassicSale
from bench.classic.ordering import SESSION_S
from seckill_site.ledger_connection import ledger_connection


def open_sale(*, stock: int) -> ClassicSale:
    """Make a sale and put its stock into Redis; the stream of the last one is read and done."""
    sale = ClassicSale.objects.create(stock=stock)
    redis = ledger_connection()
    redis.delete(buyers_key(sale.pk))
    redis.set(stock_key(sale.pk), stock)
    redis.xtrim(STREAM, maxlen=0)
    return sale


def sign_in(*, user_ids: Sequence[int]) -> list[str]:
    """Return a session's token for each user."""
    tokens = [secrets.token_hex(16) for _ in user_ids]
    with ledger_connection().pipeline(transaction=False) as pipe:
        for token, user_id in zip(tokens, user_ids, strict=True):
            user = {"id": user_id, "nick_name": f"user_{user_id}", "icon": ""}
            pipe.hset(session_key(token), mapping=user)
            pipe.expire(session_key(token), SESSION_S)
        pipe.execute()
    return tokens
