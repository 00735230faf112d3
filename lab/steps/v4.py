"""V4: a script in Redis decides, then the same request writes.

Redis runs one script at a time, so nobody gets a unit too many or a second one. But nothing takes a
unit back: if writing fails or the process dies, the unit is gone, and its buyer is told "already
ordered" forever. In the second form, the script compares a stock that nobody has put into Redis.

Points: "decided", "order written", "committed".
"""

from pathlib import Path

from django.db import transaction
from django.db.models import F

from lab.keys import LabKeys
from lab.models import LabOrder, LabSale
from lab.points import point
from lab.steps.step import Answer
from locks.lua_script import LuaScript
from seckill_site.redis.ledger_connection import ledger_connection

LUA = Path(__file__).parents[1] / "lua"

_DECIDE = LuaScript(LUA / "decide.lua")
COMPARE_NIL = LuaScript(LUA / "compare_nil.lua")


def set_stock(sale_id: int, units: int) -> None:
    """Put the stock of a new sale into Redis."""
    ledger_connection().set(LabKeys(sale_id).stock, units)


def buy(*, sale_id: int, user_id: int, script: LuaScript = _DECIDE) -> Answer:
    """Let Redis decide by a script, and write what it has given away."""
    refusal = decide(sale_id=sale_id, user_id=user_id, script=script)  # breaks: stuck
    point("decided")
    if refusal:
        return refusal
    with transaction.atomic():
        answer = _write(sale_id, user_id)  # breaks: undersold
    point("committed")
    return answer


def decide(*, sale_id: int, user_id: int, script: LuaScript = _DECIDE) -> Answer | None:
    """Take a unit for this buyer in Redis, or return why not."""
    keys = LabKeys(sale_id)
    code = script.run(ledger_connection(), keys=[keys.stock, keys.buyers], args=[user_id])
    return refusal_of(code)


def refusal_of(code: str) -> Answer | None:
    """Return the answer to a script's code; None if the buyer got a unit.

    :raises KeyError: no script returns this code.
    """
    return None if code == "TAKEN" else Answer[code]


def _write(sale_id: int, user_id: int) -> Answer:
    if not LabSale.objects.filter(pk=sale_id, stock__gt=0).update(stock=F("stock") - 1):
        return Answer.SOLD_OUT
    LabOrder.objects.create(sale_id=sale_id, user_id=user_id)
    point("order written")
    return Answer.BOUGHT
