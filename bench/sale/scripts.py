"""Row j: the script that reserves, against a bare script with the steps of the course.

No web server: both are sent to Redis in writes of ``DEPTH`` calls, in turn, each to fresh keys. The
figure is the processor time of Redis for one call, by its own count.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from bench.sale.data import open_sale, reserve_all, strangers
from bench.sale.plan import DEPTH
from bench.sale.report import Line, Target
from bench.sale.run import Run, WrongAnswers
from locks.lua_script import LuaScript, ScriptCall
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerKeys
from vouchers.inventory.reservations import reserve_call

COURSE = LuaScript(Path(__file__).parent / "lua" / "course.lua")
TARGETS = {"ACCEPTED": ("a win", 1.7), "SOLD_OUT": ("sold out", 2.5)}


def measure(run: Run) -> list[Line]:
    costs: defaultdict[tuple[str, bool], list[float]] = defaultdict(list)
    turns = [(turn, code) for turn in range(run.plan.repetitions) for code in TARGETS]
    for turn, code in run.steps(turns, what="j scripts"):
        with _calls(code, count=run.plan.wins) as (ours, theirs):
            for calls in (ours, theirs)[:: -1 if turn % 2 else 1]:
                costs[code, calls is ours].append(_cost_us(calls, code))
    lines = []
    for code, (name, bound) in TARGETS.items():
        mine, other = costs[code, True], costs[code, False]
        what, target = f"the script that reserves: {name}", Target.most(bound)
        note = f"processor time of Redis, {DEPTH} calls in a write"
        against = "a bare script with the steps of the course"
        lines.append(Line.ratio("j", what, against, target, "µs", mine, other, note=note))
    return lines


@contextmanager
def _calls(
    code: str, *, count: int
) -> Iterator[tuple[Sequence[ScriptCall[Any]], Sequence[ScriptCall[Any]]]]:
    """Yield calls of both scripts that all get this reply; forget their keys afterwards."""
    sells = code == "ACCEPTED"
    sale = open_sale() if sells else open_sale(stock=1)
    first, *tokens = strangers(sale, count=count + 1)
    reserve_all([first])  # its task is on its way
    client = ledger_connection()
    keys = [f"course:{{{sale.pk}}}:{name}" for name in ("stock", "buyers", "orders")]
    client.set(keys[0], count if sells else 0)
    ours = [
        reserve_call(
            sale_id=sale.pk,
            order_id=it.order_id,
            user_id=it.user_id,
            identity=it.identity,
            address=str(IPv4Address("198.18.0.0") + n),  # each buyer has an address, and is counted
        )
        for n, it in enumerate(tokens)
    ]
    theirs = [
        ScriptCall(
            script=COURSE,
            keys=keys,
            args=[str(it.order_id), str(it.user_id), str(sale.pk)],
            read=lambda reply: reply,
        )
        for it in tokens
    ]
    try:
        yield ours, theirs
    finally:
        client.unlink(*keys, *LedgerKeys(sale.pk).movable)


def _cost_us(calls: Sequence[ScriptCall[Any]], code: str) -> float:
    client, script = ledger_connection(), calls[0].script
    client.script_load(script.source)
    pairs = [(call.keys, call.args) for call in calls]
    began_s = _redis_cpu_s(client)
    for start in range(0, len(pairs), DEPTH):
        for reply in script.run_many(client, pairs[start : start + DEPTH]):
            if reply.split(" ")[0] != code:
                raise WrongAnswers(f"{reply}, where {code} was expected")
    return (_redis_cpu_s(client) - began_s) / len(pairs) * 1e6


def _redis_cpu_s(client: Any) -> float:
    used = client.info("cpu")
    return float(used["used_cpu_user"] + used["used_cpu_sys"])
