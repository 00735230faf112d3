"""V4: a script in Redis decides, then the same request writes.

Redis runs one script at a time, so nobody is given a unit too many or a second one. But what it has
given is given: where the writing fails or the process dies, nobody takes it back. The unit is gone,
and its buyer hears "already ordered" for ever.

Points: "decided", "order written", "committed".
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from django.db import transaction
from django.db.models import F

from lab.answers import Answer
from lab.keys import LabKeys
from lab.models import LabOrder, LabSale
from lab.points import point
from lab.steps.sales import open_sale
from locks.lua_script import LuaScript
from seckill_site.ledger_connection import ledger_connection

LUA = Path(__file__).parents[1] / "lua"

_DECIDE = LuaScript(LUA / "decide.lua")


class Decision(StrEnum):
    """What the scripts answer."""

    TAKEN = "TAKEN"
    SOLD_OUT = "SOLD_OUT"
    ALREADY_ORDERED = "ALREADY_ORDERED"


ANSWER_OF_DECISION = {
    Decision.SOLD_OUT: Answer.SOLD_OUT,
    Decision.ALREADY_ORDERED: Answer.ALREADY_ORDERED,
}


def open_in_redis(step: str, offered: int) -> int:
    """Make a sale's row and its stock in Redis; return its id."""
    sale_id = open_sale(step, offered)
    ledger_connection().set(LabKeys(sale_id).stock, offered)
    return sale_id


def buy(*, sale_id: int, user_id: int) -> Answer:
    """Let Redis decide, and write what it has given away."""
    decision = decide(sale_id=sale_id, user_id=user_id)  # breaks: stuck
    point("decided")
    if decision in ANSWER_OF_DECISION:
        return ANSWER_OF_DECISION[decision]
    with transaction.atomic():
        answer = _write(sale_id, user_id)  # breaks: undersold
    point("committed")
    return answer


def decide(*, sale_id: int, user_id: int) -> Decision:
    """Take a unit for this buyer in Redis, or hear why not."""
    keys = LabKeys(sale_id)
    found = _DECIDE.run(ledger_connection(), keys=[keys.stock, keys.buyers], args=[user_id])
    return Decision(found)


def _write(sale_id: int, user_id: int) -> Answer:
    if not LabSale.objects.filter(pk=sale_id, stock__gt=0).update(stock=F("stock") - 1):
        return Answer.SOLD_OUT
    LabOrder.objects.create(sale_id=sale_id, user_id=user_id)
    point("order written")
    return Answer.BOUGHT
