"""Row l: an evening, from the first page load to the last receipt.

It is compared with the same sale without page loads. The latency of an order counts from the press,
so it includes whatever the pages have left to do.
"""

from collections.abc import Sequence
from functools import partial

from bench.processes import cpu_spent
from bench.sale.buyers import LIVE, ME, ORDER, PAGE, buyers_with_pages, buyers_with_tokens
from bench.sale.data import open_sale, sign_in, users
from bench.sale.generator import Crowd, Hits, Visit
from bench.sale.plan import SALE_CONNECTIONS
from bench.sale.report import Line, Target
from bench.sale.run import Run, back_half
from bench.sale.whole_sales import UNAVAILABLE, expect_exact
from orders.placing.tokens import issue_tokens
from vouchers.models import SeckillVoucher

LEAD_S = 2
"""Time to start a crowd before the first page load, or before a sale without any."""

MOST_TIMES = 1.5


def measure(run: Run) -> list[Line]:
    user_ids = users(count=run.plan.evening_buyers)
    without: list[Hits] = []
    with back_half(run.site):
        for has_pages in run.steps([False, True, False], what="l an evening"):
            if has_pages:
                evening, shares = _evening(run, user_ids)
            else:
                without.append(_sale_alone(run, user_ids))
    return _lines(run, evening, without, shares)


def _evening(run: Run, user_ids: Sequence[int]) -> tuple[Hits, str]:
    """Return the answers, and the shares of the processor time."""
    cookies, minute_s = sign_in(user_ids=user_ids), run.plan.minute_s
    sale = open_sale(stock=run.plan.sale_units, begins_in_s=LEAD_S + 2 * minute_s)
    opens_at = sale.begins_at.timestamp()
    visits = partial(buyers_with_pages, sale.pk, cookies, opens_at, minute_s)
    with cpu_spent(*run.parts(run.web)) as spent:
        hits = _sell(run, sale, user_ids, visits)
    spent.append(hits.generator_cpu_s)
    names = ("web", "Redis", "MariaDB", "generator")
    shares = [f"{name} {it / sum(spent):.0%}" for name, it in zip(names, spent, strict=True)]
    return hits, f"{', '.join(shares)} of {sum(spent):.0f} s"


def _sale_alone(run: Run, user_ids: Sequence[int]) -> Hits:
    sale = open_sale(stock=run.plan.sale_units, begins_in_s=LEAD_S)
    tokens = [token.sign() for token in issue_tokens(sale=sale, user_ids=user_ids)]
    opens_at = sale.begins_at.timestamp()
    return _sell(run, sale, user_ids, partial(buyers_with_tokens, sale.pk, tokens, opens_at))


def _sell(
    run: Run, sale: SeckillVoucher, user_ids: Sequence[int], visits: "partial[list[Visit]]"
) -> Hits:
    hits = run.start(Crowd(run.web.port, visits, SALE_CONNECTIONS)).result()
    expect_exact(sale, hits.of(ORDER), user_ids)
    return hits


# --- The lines ------------------------------------------------------------------------------------


def _lines(run: Run, evening: Hits, without: Sequence[Hits], shares: str) -> list[Line]:
    plan = run.plan
    others = [it.of(ORDER).latency_ms(99) for it in without]
    mine = [evening.of(ORDER).latency_ms(99)] * len(others)
    what = f"an evening of {plan.evening_buyers:,} buyers for {plan.sale_units:,} units"
    against, note = "a sale without page loads", f"processor time: {shares}"
    name = f"{what}: p99 of orders, from the press"
    most, busy = Target.most(MOST_TIMES), evening.statuses()[UNAVAILABLE]
    answers = f"of {len(evening.answers):,} answers"

    def shown(name: str) -> Line:
        value = evening.of(name).latency_ms(99)
        return Line("l", f"p99 of its {name} requests", "–", None, [value], "ms")

    return [
        Line.ratio("l", name, against, most, "ms", mine, others, note=note),
        Line("l", "its answers with 503", "–", Target.most(0, ""), [busy], note=answers),
        *map(shown, (PAGE, LIVE, ME)),
    ]
