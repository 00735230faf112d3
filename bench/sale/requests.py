"""Rows a to d and k: requests of visitors and buyers, against an empty view of the same server.

Each repetition sends both one after the other, in changing order. The ratio is of answers per
second. The load generator uses the same cores, so the ratio of the server's own processor time per
answer is shown beside it.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from bench.sale import generator
from bench.sale.data import in_line, open_sale, reserve_all, sign_in, strangers, users
from bench.sale.generator import Shot
from bench.sale.plan import DEPTH
from bench.sale.report import Line, Target
from bench.sale.run import GENERATOR_LIMIT, Run, Sample
from bench.tables import ratios
from orders.fulfilment.worker import fulfil_sale
from orders.placing.tokens import issue_tokens

DIFFERENT = 512
"""The number of different requests sent in turn, if they may be repeated."""


SESSIONS = 32
"""The number of buyers with a session."""


@dataclass(frozen=True)
class Kind:
    """A kind of request, its status, and its minimum rate relative to the empty view.

    ``parts`` requests in a row count as one.
    """

    row: str
    name: str
    bound: float
    status: int
    make: Callable[[Run], Sequence[bytes]]
    again: bool = True
    parts: int = 1


def measure(run: Run, *, rows: Sequence[str]) -> list[Line]:
    kinds = [kind for kind in KINDS if kind.row in rows]
    made = {kind: kind.make(run) for kind in kinds if kind.again}
    samples: defaultdict[tuple[Kind, Kind], list[Sample]] = defaultdict(list)
    turns = [(turn, kind) for turn in range(run.plan.repetitions) for kind in kinds]
    for turn, kind in run.steps(turns, what="a–d, k requests"):
        requests = made[kind] if kind.again else kind.make(run)
        pair = [(EMPTY, EMPTY.make(run)), (kind, requests)]
        for sent, them in pair[:: -1 if turn % 2 else 1]:
            web = run.plain if sent is EMPTY else run.web
            shot = Shot(web.port, them, run.plan.connections, DEPTH, run.plan.shot_s, sent.again)
            sample = run.sample_warm(shot, web=web, expect=sent.status)
            samples[kind, sent].append(sample)
    return [line_of(kind, samples[kind, kind], samples[kind, EMPTY]) for kind in kinds]


def line_of(kind: Kind, ours: Sequence[Sample], empty: Sequence[Sample]) -> Line:
    """Return the line of a kind: its rate by that of the empty view, in the same repetition."""
    rates = [it.hits.rate / kind.parts for it in ours]
    empty_rates = [it.hits.rate for it in empty]
    costs = [it.web_cpu_s * kind.parts for it in ours]
    by_cpu = ratios([it.web_cpu_s for it in empty], costs)
    limited = any(it.hits.generator_load >= GENERATOR_LIMIT for it in (*ours, *empty))

    def cost(of: Callable[[Sample], float], by: Sequence[Sample], parts: int = kind.parts) -> str:
        return f"{median(of(it) for it in by) * parts * 1e6:.0f} µs"

    note = (
        f"web {cost(lambda it: it.web_cpu_s, ours)}, "
        f"Redis {cost(lambda it: it.redis_cpu_s, ours)}, "
        f"MariaDB {cost(lambda it: it.database_cpu_s, ours)} "
        f"(empty {cost(lambda it: it.web_cpu_s, empty, 1)})"
    )
    return Line(
        row=kind.row,
        name=kind.name,
        against="an empty view",
        target=Target(kind.bound),
        values=by_cpu if limited else ratios(rates, empty_rates),
        unit="/s",
        ours=rates,
        theirs=empty_rates,
        processor=by_cpu,
        note=f"the generator was the limit, so by processor time; {note}" if limited else note,
    )


def wins(run: Run) -> list[bytes]:
    sale = open_sale()
    tokens = strangers(sale, count=run.plan.wins)
    return [generator.order_request(sale.pk, token.sign(), attempt=1) for token in tokens]


def sold_out(run: Run, attempt: int | None = None) -> list[bytes]:
    sale = open_sale(stock=1)
    first, *others = strangers(sale, count=DIFFERENT + 1)
    reserve_all([first])
    return [generator.order_request(sale.pk, token.sign(), attempt=attempt) for token in others]


def _ordered_already(run: Run) -> list[bytes]:
    """Return requests with a second token of each buyer."""
    sale = open_sale()
    reserve_all(strangers(sale, count=DIFFERENT))
    tokens = strangers(sale, count=DIFFERENT)
    return [generator.order_request(sale.pk, token.sign(), attempt=1) for token in tokens]


def queued(run: Run) -> list[bytes]:
    sale = open_sale()
    tokens = strangers(sale, count=DIFFERENT)
    reserve_all(tokens)
    return [generator.receipt_request(sale.pk, token.order_id, token.sign()) for token in tokens]


def _finished(run: Run) -> list[bytes]:
    sale = open_sale()
    tokens = issue_tokens(sale=sale, user_ids=users(count=DIFFERENT))
    reserve_all(tokens)
    fulfil_sale(sale_id=sale.pk)
    return [generator.receipt_request(sale.pk, token.order_id, token.sign()) for token in tokens]


def _of_buyers(*requests: Callable[[int, str], bytes]) -> list[bytes]:
    """Return these requests, for a sale, of each of some buyers with a session."""
    sale_id = open_sale().pk
    cookies = sign_in(user_ids=users(count=SESSIONS))
    return [request(sale_id, cookie) for cookie in cookies for request in requests]


def _token_request(sale_id: int, cookie: str) -> bytes:
    return generator.packed(f"/vouchers/{sale_id}/token/", headers={"Cookie": cookie})


def _polls(run: Run) -> list[bytes]:
    """Return polls of buyers in a long line, who hold their places.

    Without the front door they also need a session.
    """
    sale = open_sale(begins_in_s=3600, room_rate=1)
    if run.web is run.plain:
        cookies = sign_in(user_ids=users(count=DIFFERENT))
    else:
        cookies = in_line(sale, count=DIFFERENT)
    return [generator.room_request(sale.pk, cookie) for cookie in cookies]


def _page_and_me(run: Run) -> list[bytes]:
    return _of_buyers(generator.page_request, generator.me_request)


EMPTY = Kind("", "an empty view", 1, 200, lambda run: [generator.EMPTY_REQUEST] * run.plan.warm_up)
KINDS = (
    Kind("a", "order request that wins", 2.2, 202, wins, again=False),
    Kind("a", "refused by the ledger: sold out", 2.4, 409, sold_out),
    Kind("a", "refused by the ledger: has ordered", 2.4, 409, _ordered_already),
    Kind("b", "sold out, first attempt", 3.5, 409, partial(sold_out, attempt=1)),
    Kind("c", "live/", 4, 200, lambda run: [generator.live_request(open_sale().pk)]),
    Kind("d", "receipt of a queued order", 0.5, 200, queued),
    Kind("d", "receipt of a finished order", 0.5, 200, _finished),
    Kind("k", "list page, visitor", 3, 200, lambda run: [generator.LIST_REQUEST]),
    Kind(
        "k", "purchase page, visitor", 3, 200, lambda run: [generator.page_request(open_sale().pk)]
    ),
    Kind("k", "purchase page and its me/, buyer", 0.8, 200, _page_and_me, parts=2),
    Kind("k", "me/ with token", 1.5, 200, lambda run: _of_buyers(generator.me_request)),
    Kind("k", "token/", 1.5, 200, lambda run: _of_buyers(_token_request)),
    Kind("k", "poll of a place in line", 2, 200, _polls),
)
