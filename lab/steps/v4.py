"""V4: a script in Redis decides, then the same request writes.

Redis runs one script at a time, so nobody gets a unit too many or a second one. But nothing takes a
unit back: if writing fails or the process dies, the unit is gone, and its buyer is told "already
ordered" forever. The script as taught looks at the stock before the buyer, and at no window. In the
second form, it compares a stock that nobody has put into Redis. In the third, it looks at the buyer
first, then at the window, then at the stock.

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
from seckill_site.clocks.machine import epoch_ms
from seckill_site.redis.ledger_connection import ledger_connection

LUA = Path(__file__).parents[1] / "lua"

DECIDE = LuaScript(LUA / "decide.lua")
COMPARE_NIL = LuaScript(LUA / "compare_nil.lua")
DECIDE_IN_ORDER = LuaScript(LUA / "decide_in_order.lua")


def set_stock(sale_id: int, units: int) -> None:
    """Put the stock of a new sale into Redis."""
    ledger_connection().set(LabKeys(sale_id).stock, units)


def set_stock_and_window(sale_id: int, units: int) -> None:
    """Put the stock and the window of a new sale into Redis."""
    set_stock(sale_id, units)
    sale = LabSale.objects.get(pk=sale_id)
    times = {"begins_ms": epoch_ms(sale.begins_at), "ends_ms": epoch_ms(sale.ends_at)}
    ledger_connection().hset(LabKeys(sale_id).window, mapping=times)


def buy(*, sale_id: int, user_id: int, script: LuaScript) -> Answer:
    """Let Redis decide by a script, and write what it has given away."""
    refusal = decide(sale_id=sale_id, user_id=user_id, script=script)  # breaks: stuck
    point("decided")
    if refusal:
        return refusal
    with transaction.atomic():
        answer = _write(sale_id, user_id)  # breaks: undersold
    point("committed")
    return answer


def decide(*, sale_id: int, user_id: int, script: LuaScript) -> Answer | None:
    """Take a unit for this buyer in Redis, or return why not."""
    keys = LabKeys(sale_id)
    names = [keys.stock, keys.buyers, keys.window]
    code = script.run(ledger_connection(), keys=names, args=[user_id])
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
