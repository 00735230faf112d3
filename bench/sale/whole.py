"""Row f: a whole sale, from the first request to the last committed row, by both designs.

Every buyer asks twice, as the impatient do; the second request says that it is one, so that the
shop may not refuse it out of hand. Each design must sell every unit, none twice, to exactly the
buyers whom it told so.
"""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from bench.classic import opening
from bench.classic.models import ClassicOrder, ClassicSale
from bench.sale import wire
from bench.sale.course import Course
from bench.sale.figures import Line, Target, ratios
from bench.sale.found import CLASSIC, EXACT, OURS, Found, verdict_on
from bench.sale.generator import Hits, Shot
from bench.sale.places import back_half
from bench.sale.plan import SALE_CONNECTIONS
from bench.sale.shop import open_sale, users
from orders.fulfilment.reconcile import reconcile
from orders.models import VoucherOrder
from orders.placing.tokens import issue_tokens
from vouchers.models import SeckillVoucher

ACCEPTED = 202
REFUSED = 409
LONGEST_S = 120.0
LOOK_S = 0.02
WARM_UP_UNITS = 5


@dataclass(frozen=True)
class Prepared:
    """A sale about to begin: its requests and whose they are, and how to look at its rows."""

    requests: Sequence[bytes]
    buyers: Sequence[int]
    sold: Callable[[], int]
    rows: Callable[[], list[int]]
    books_agree: Callable[[], bool]


def measure(course: Course) -> tuple[list[Line], list[Found]]:
    user_ids = users(count=course.plan.sale_buyers)
    found: defaultdict[str, list[Found]] = defaultdict(list)
    turns = [
        turn
        for repetition in range(course.plan.sale_repetitions)
        for turn in (DESIGNS, DESIGNS[::-1])[repetition % 2]
    ]
    with back_half(course.place):
        _warm_up(course, user_ids)
        for design, prepare in course.steps(turns, what="f whole sales"):
            prepared = prepare(units=course.plan.sale_units, asking=_asking(course, user_ids))
            found[design].append(_run(course, design, prepared, units=course.plan.sale_units))
    return _lines(course, found[OURS], found[CLASSIC]), found[OURS] + found[CLASSIC]


def _warm_up(course: Course, user_ids: Sequence[int]) -> None:
    """Let every process do once what it will be measured at."""
    for design, prepare in DESIGNS:
        prepared = prepare(units=WARM_UP_UNITS, asking=user_ids[: course.plan.warm_up])
        _run(course, design, prepared, units=WARM_UP_UNITS)


def _asking(course: Course, user_ids: Sequence[int]) -> list[int]:
    """Return who asks, in the order of asking, the same in every run."""
    times = course.plan.sale_requests // len(user_ids)
    asking = list(user_ids) * times
    random.Random(7).shuffle(asking)
    return asking


def _run(course: Course, design: str, prepared: Prepared, *, units: int) -> Found:
    shot = Shot(course.web.port, prepared.requests, SALE_CONNECTIONS)
    firing = course.begin(shot)
    committed_at = _wait_until_committed(prepared.sold, units, firing)
    hits = firing.result()
    told = {prepared.buyers[it.number] for it in hits.answers if it.status == ACCEPTED}
    verdict = verdict_on(
        units=units,
        told=told,
        rows=prepared.rows(),
        books_agree=prepared.books_agree(),
        others={it.status for it in hits.answers} - {ACCEPTED, REFUSED},
    )
    return Found(
        design=design,
        to_last_row_s=committed_at - hits.began_at,
        to_last_answer_s=hits.ended_at - hits.began_at,
        answers=[(it.at - hits.began_at, it.latency_s) for it in hits.answers],
        verdict=verdict,
    )


def _wait_until_committed(sold: Callable[[], int], units: int, firing: Future[Hits]) -> float:
    """Return when the last unit had its row, or when nothing has come for too long."""
    deadline = time.monotonic() + LONGEST_S
    while sold() < units and time.monotonic() < deadline:
        if firing.done():
            firing.result()  # raises what went wrong
        time.sleep(LOOK_S)
    return time.monotonic()


# --- The two designs ------------------------------------------------------------------------------


def _prepare_ours(*, units: int, asking: Sequence[int]) -> Prepared:
    sale = open_sale(stock=units)
    buyers = sorted(set(asking))
    issued = issue_tokens(sale=sale, user_ids=buyers)
    tokens = {token.user_id: token.sign() for token in issued}
    attempts: defaultdict[int, int] = defaultdict(int)
    requests = []
    for user_id in asking:
        attempts[user_id] += 1
        requests.append(wire.order(sale.pk, tokens[user_id], attempt=attempts[user_id]))
    sales = SeckillVoucher.objects.filter(pk=sale.pk)
    rows = VoucherOrder.objects.filter(seckill_voucher=sale, live=True)
    return Prepared(
        requests=requests,
        buyers=asking,
        sold=lambda: sales.values_list("sold", flat=True).get(),
        rows=lambda: list(rows.values_list("user_id", flat=True)),
        books_agree=partial(_ours_agree, sale.pk, units),
    )


def _ours_agree(sale_id: int, units: int) -> bool:
    """Say whether ledger and database agree, once the ledger has been told of the last batch."""
    deadline = time.monotonic() + LONGEST_S
    while (books := reconcile(sale_id=sale_id)).pending and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    return books.difference == 0 and (books.sold, books.buyers) == (units, units)


def _prepare_classic(*, units: int, asking: Sequence[int]) -> Prepared:
    sale = opening.open_sale(stock=units)
    buyers = sorted(set(asking))
    tokens = dict(zip(buyers, opening.sign_in(user_ids=buyers), strict=True))
    sales = ClassicSale.objects.filter(pk=sale.pk)
    rows = ClassicOrder.objects.filter(sale=sale)
    return Prepared(
        requests=[wire.classic_order(sale.pk, tokens[user_id]) for user_id in asking],
        buyers=asking,
        sold=lambda: units - sales.values_list("stock", flat=True).get(),
        rows=lambda: list(rows.values_list("user_id", flat=True)),
        books_agree=lambda: sales.values_list("stock", flat=True).get() == 0,
    )


DESIGNS = ((OURS, _prepare_ours), (CLASSIC, _prepare_classic))


# --- The lines ------------------------------------------------------------------------------------


def _lines(course: Course, ours: Sequence[Found], classic: Sequence[Found]) -> list[Line]:
    plan = course.plan
    what = f"{plan.sale_requests:,} requests for {plan.sale_units:,} units"
    verdicts = "; ".join(f"{of[0].design}: {_verdict_of(of)}" for of in (ours, classic))

    def line(
        name: str, unit: str, value: Callable[[Found], float], bound: float | None, note: str = ""
    ) -> Line:
        mine, theirs = [value(it) for it in ours], [value(it) for it in classic]
        is_latency = unit == "ms"
        return Line(
            row="f",
            name=name,
            against="the classic design",
            target=Target(bound, at_least=not is_latency) if bound else None,
            values=ratios(mine, theirs) if is_latency else ratios(theirs, mine),
            unit=unit,
            ours=mine,
            theirs=theirs,
            note=note,
        )

    return [
        line(f"{what}: to the last row", "s", lambda it: it.to_last_row_s, 4, verdicts),
        line("the same, to the last row and answer", "s", lambda it: it.all_s, None),
        line("p50 of its requests", "ms", lambda it: it.latency_ms(0.5), None),
        line("p99 of its requests", "ms", lambda it: it.latency_ms(0.99), 0.5),
    ]


def _verdict_of(found: Sequence[Found]) -> str:
    return next((it.verdict for it in found if not it.exact), EXACT)
