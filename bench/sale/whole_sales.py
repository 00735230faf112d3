"""Row f: a whole sale, from the first request to the last committed row, by both designs.

Every buyer asks twice, as impatient buyers do. The second request says that it is a repeat, so the
shop may not refuse it from memory. Each design must sell every unit once, to exactly the buyers
that it accepted.
"""

import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bench.classic import orders as classic
from bench.classic.models import ClassicOrder, ClassicSale
from bench.sale.data import open_sale, users
from bench.sale.generator import Hits, Shot, classic_order_request, order_request
from bench.sale.outcome import CLASSIC, EXACT, OURS, Outcome, verdict_on
from bench.sale.plan import SALE_CONNECTIONS
from bench.sale.report import Line, Target
from bench.sale.run import Run, WrongAnswers, back_half
from bench.tables import ratios
from lab.waiting import wait_until
from orders.fulfilment.reconcile import reconcile
from orders.models import VoucherOrder
from orders.placing.tokens import issue_tokens
from vouchers.models import SeckillVoucher

ACCEPTED, REFUSED, UNAVAILABLE = 202, 409, 503
LONGEST_S = 120.0
LOOK_S = 0.02
WARM_UP_UNITS = 5


@dataclass(frozen=True)
class Prepared:
    """A sale before its first request: the requests, and ways to read its rows."""

    requests: Sequence[bytes]
    sold: Callable[[], int]
    rows: Callable[[], list[int]]
    books_agree: Callable[[], bool]


def measure(run: Run) -> tuple[list[Line], list[Outcome]]:
    user_ids = users(count=run.plan.sale_buyers)
    asking = user_ids * (run.plan.sale_requests // len(user_ids))
    random.Random(7).shuffle(asking)  # the same order in every run
    outcomes: defaultdict[str, list[Outcome]] = defaultdict(list)
    turns = [
        turn
        for repetition in range(run.plan.sale_repetitions)
        for turn in (DESIGNS, DESIGNS[::-1])[repetition % 2]
    ]
    with back_half(run.site):
        for design, prepare in DESIGNS:  # warm up every process
            _sell(run, design, prepare, user_ids[: run.plan.warm_up], units=WARM_UP_UNITS)
        for design, prepare in run.steps(turns, what="f whole sales"):
            outcome = _sell(run, design, prepare, asking, units=run.plan.sale_units)
            outcomes[design].append(outcome)
    ours, theirs = outcomes[OURS], outcomes[CLASSIC]
    return _lines(run, ours, theirs), ours + theirs


def _sell(
    run: Run,
    design: str,
    prepare: Callable[..., Prepared],
    asking: Sequence[int],
    *,
    units: int,
) -> Outcome:
    prepared = prepare(units=units, asking=asking)
    web = run.web if design == OURS else run.plain
    shot = Shot(web.port, prepared.requests, SALE_CONNECTIONS)
    firing = run.start(shot)

    def is_over() -> bool:
        """Return whether every unit has its row, or the generator has failed."""
        return prepared.sold() >= units or (firing.done() and firing.exception() is not None)

    wait_until(is_over, within_s=LONGEST_S, every_s=LOOK_S)
    committed_at = time.monotonic()
    hits = firing.result()
    winners = {asking[it.number] for it in hits.answers if it.status == ACCEPTED}
    verdict = verdict_on(
        units=units,
        winners=winners,
        rows=prepared.rows(),
        books_agree=prepared.books_agree(),
        others={it.status for it in hits.answers} - {ACCEPTED, REFUSED},
    )
    return Outcome(
        design=design,
        to_last_row_s=committed_at - hits.began_at,
        to_last_answer_s=hits.ended_at - hits.began_at,
        answers=[(it.at - hits.began_at, it.latency_s) for it in hits.answers],
        accepted_s=[it.latency_s for it in hits.answers if it.status == ACCEPTED],
        verdict=verdict,
    )


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
        requests.append(order_request(sale.pk, tokens[user_id], attempt=attempts[user_id]))
    sales = SeckillVoucher.objects.filter(pk=sale.pk)
    return Prepared(
        requests=requests,
        sold=lambda: sales.values_list("sold", flat=True).get(),
        rows=partial(owners, sale),
        books_agree=partial(ours_agree, sale.pk, units),
    )


def owners(sale: SeckillVoucher) -> list[int]:
    rows = VoucherOrder.objects.filter(seckill_voucher=sale, live=True)
    return list(rows.values_list("user_id", flat=True))


def ours_agree(sale_id: int, units: int) -> bool:
    """Return whether ledger and database agree, once the last batch is confirmed."""
    wait_until(lambda: not reconcile(sale_id=sale_id).pending, within_s=LONGEST_S, every_s=LOOK_S)
    books = reconcile(sale_id=sale_id)
    return books.difference == 0 and (books.sold, books.buyers) == (units, units)


def expect_exact(sale: SeckillVoucher, orders: Hits, user_ids: Sequence[int]) -> None:
    """Raise unless a sale was sold exactly, to those visitors who were told so.

    :raises WrongAnswers: it was not.
    """
    verdict = verdict_on(
        units=sale.stock,
        winners={user_ids[it.number] for it in orders.answers if it.status == ACCEPTED},
        rows=owners(sale),
        books_agree=ours_agree(sale.pk, sale.stock),
        others=set(orders.statuses()) - {ACCEPTED, REFUSED, UNAVAILABLE},
    )
    if verdict != EXACT:
        raise WrongAnswers(verdict)


def _prepare_classic(*, units: int, asking: Sequence[int]) -> Prepared:
    sale = classic.open_sale(stock=units)
    buyers = sorted(set(asking))
    tokens = dict(zip(buyers, classic.sign_in(user_ids=buyers), strict=True))
    sales = ClassicSale.objects.filter(pk=sale.pk)
    rows = ClassicOrder.objects.filter(sale=sale)
    return Prepared(
        requests=[classic_order_request(sale.pk, tokens[user_id]) for user_id in asking],
        sold=lambda: units - sales.values_list("stock", flat=True).get(),
        rows=lambda: list(rows.values_list("user_id", flat=True)),
        books_agree=lambda: sales.values_list("stock", flat=True).get() == 0,
    )


DESIGNS = ((OURS, _prepare_ours), (CLASSIC, _prepare_classic))


# --- The lines ------------------------------------------------------------------------------------


def _lines(run: Run, ours: Sequence[Outcome], theirs: Sequence[Outcome]) -> list[Line]:
    plan = run.plan
    what = f"{plan.sale_requests:,} requests for {plan.sale_units:,} units"
    faults = {
        of[0].design: next((it.verdict for it in of if it.verdict != EXACT), EXACT)
        for of in (ours, theirs)
    }
    verdicts = "; ".join(f"{design}: {verdict}" for design, verdict in faults.items())

    def line(
        name: str, unit: str, value: Callable[[Outcome], float], bound: float | None, note: str = ""
    ) -> Line:
        mine, others = [value(it) for it in ours], [value(it) for it in theirs]
        faster = unit != "ms"  # times of the whole sale, as theirs / ours
        values = ratios(others, mine) if faster else ratios(mine, others)
        target = Target(bound, at_least=faster) if bound else None
        return Line("f", name, "the classic design", target, values, unit, mine, others, note=note)

    return [
        line(f"{what}: to the last row", "s", lambda it: it.to_last_row_s, 8, verdicts),
        line("the same, to the last row and answer", "s", lambda it: it.all_s, None),
        line("p50 of its requests", "ms", lambda it: it.latency_ms(50), None),
        line("p99 of its requests", "ms", lambda it: it.latency_ms(99), 0.5),
        line("p99 of its accepted requests", "ms", lambda it: it.accepted_ms(99), None),
    ]
