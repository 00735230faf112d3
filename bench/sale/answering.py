"""Rows a to d: requests that buyers send, against an empty view of the same server.

Each repetition sends both one after the other, in changing order. The ratio is of answers per
second; as the load generator uses the same cores, the ratio of the processor time that the server
itself needed for an answer stands beside it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from bench.sale import wire
from bench.sale.course import Course, Sample
from bench.sale.figures import Line, Target, ratios
from bench.sale.shop import open_sale, reserve_all, strangers, users
from orders.fulfilment.worker import fulfill_sale
from orders.placing.tokens import issue_tokens

DIFFERENT = 512
"""So many different requests are sent in turn, where the same may be sent again."""

EMPTY_STATUS = 200


@dataclass(frozen=True)
class Kind:
    """A kind of request: how it is answered, and how fast at least beside the empty view."""

    row: str
    name: str
    bound: float
    status: int
    make: Callable[[Course], Sequence[bytes]]
    again: bool = True


@dataclass
class _Samples:
    ours: list[Sample] = field(default_factory=list)
    empty: list[Sample] = field(default_factory=list)


def measure(course: Course, *, rows: str = "abcd") -> list[Line]:
    kinds = [kind for kind in KINDS if kind.row in rows]
    made = {kind.name: kind.make(course) for kind in kinds if kind.again}
    samples: defaultdict[str, _Samples] = defaultdict(_Samples)
    turns = [(turn, kind) for turn in range(course.plan.repetitions) for kind in kinds]
    for turn, kind in course.steps(turns, what="a–d requests"):
        requests = made[kind.name] if kind.again else kind.make(course)
        _compare(course, kind, requests, samples[kind.name], empty_first=turn % 2 == 0)
    return [_line(kind, samples[kind.name]) for kind in kinds]


def _compare(
    course: Course, kind: Kind, requests: Sequence[bytes], to: _Samples, *, empty_first: bool
) -> None:
    if empty_first:
        to.empty.append(_empty(course))
    warm_up = course.plan.warm_up
    course.saturate(requests[:warm_up], expect=kind.status, again=False)
    rest = requests if kind.again else requests[warm_up:]
    to.ours.append(course.saturate(rest, expect=kind.status, again=kind.again))
    if not empty_first:
        to.empty.append(_empty(course))


def _empty(course: Course) -> Sample:
    course.saturate([wire.EMPTY] * course.plan.warm_up, expect=EMPTY_STATUS, again=False)
    return course.saturate([wire.EMPTY], expect=EMPTY_STATUS, again=True)


def _line(kind: Kind, samples: _Samples) -> Line:
    by_rate = ratios([it.rate for it in samples.ours], [it.rate for it in samples.empty])
    by_cpu = ratios([it.web_cpu_s for it in samples.empty], [it.web_cpu_s for it in samples.ours])
    limited = any(it.generator_was_the_limit for it in samples.ours + samples.empty)
    return Line(
        row=kind.row,
        name=kind.name,
        against="an empty view",
        target=Target(kind.bound),
        values=by_cpu if limited else by_rate,
        unit="/s",
        ours=[it.rate for it in samples.ours],
        theirs=[it.rate for it in samples.empty],
        processor=by_cpu,
        note=_note(samples, limited=limited),
    )


def _note(samples: _Samples, *, limited: bool) -> str:
    """Return what one answer costs the processors, and whether the rates can be believed."""

    def cost(of: Callable[[Sample], float], by: Sequence[Sample]) -> str:
        return f"{median(of(it) for it in by) * 1e6:.0f} µs"

    costs = (
        f"web {cost(lambda it: it.web_cpu_s, samples.ours)}, "
        f"Redis {cost(lambda it: it.redis_cpu_s, samples.ours)}, "
        f"MariaDB {cost(lambda it: it.database_cpu_s, samples.ours)} "
        f"(empty {cost(lambda it: it.web_cpu_s, samples.empty)})"
    )
    return f"the generator was the limit, so by processor time; {costs}" if limited else costs


def _wins(course: Course) -> list[bytes]:
    sale = open_sale()
    tokens = strangers(sale, count=course.plan.wins)
    return [wire.order(sale.pk, token.sign(), attempt=1) for token in tokens]


def _sold_out(attempt: int | None) -> Callable[[Course], list[bytes]]:
    def make(course: Course) -> list[bytes]:
        sale = open_sale(stock=1)
        first, *others = strangers(sale, count=DIFFERENT + 1)
        reserve_all([first])
        return [wire.order(sale.pk, token.sign(), attempt=attempt) for token in others]

    return make


def _ordered_already(course: Course) -> list[bytes]:
    """Return requests with a second token of each buyer."""
    sale = open_sale()
    reserve_all(strangers(sale, count=DIFFERENT))
    tokens = strangers(sale, count=DIFFERENT)
    return [wire.order(sale.pk, token.sign(), attempt=1) for token in tokens]


def _live(course: Course) -> list[bytes]:
    return [wire.get(f"/vouchers/{open_sale().pk}/live/")]


def _queued(course: Course) -> list[bytes]:
    sale = open_sale()
    tokens = strangers(sale, count=DIFFERENT)
    reserve_all(tokens)
    return [wire.receipt(sale.pk, token.order_id, token.sign()) for token in tokens]


def _finished(course: Course) -> list[bytes]:
    sale = open_sale()
    tokens = issue_tokens(sale=sale, user_ids=users(count=DIFFERENT))
    reserve_all(tokens)
    fulfill_sale(sale_id=sale.pk)
    return [wire.receipt(sale.pk, token.order_id, token.sign()) for token in tokens]


KINDS = (
    Kind("a", "order request that wins", 0.5, 202, _wins, again=False),
    Kind("a", "refused by the ledger: sold out", 0.5, 409, _sold_out(None)),
    Kind("a", "refused by the ledger: has ordered", 0.5, 409, _ordered_already),
    Kind("b", "sold out, first attempt", 5, 409, _sold_out(1)),
    Kind("c", "live/", 3, 200, _live),
    Kind("d", "receipt of a queued order", 0.5, 200, _queued),
    Kind("d", "receipt of a finished order", 0.5, 200, _finished),
)
