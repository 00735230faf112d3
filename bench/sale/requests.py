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

from django.conf import settings
from django.contrib.auth import (
    BACKEND_SESSION_KEY,
    HASH_SESSION_KEY,
    SESSION_KEY,
    get_user_model,
)
from django.contrib.sessions.backends.cached_db import SessionStore

from bench.sale.data import open_sale, reserve_all, strangers, users
from bench.sale.generator import EMPTY_REQUEST, Shot, order_request, packed, receipt_request
from bench.sale.plan import DEPTH
from bench.sale.report import Line, Target
from bench.sale.run import GENERATOR_LIMIT, Run, Sample
from bench.tables import ratios
from orders.fulfilment.worker import fulfill_sale
from orders.placing.tokens import issue_tokens

DIFFERENT = 512
"""The number of different requests sent in turn, if they may be repeated."""


SESSIONS = 32
"""The number of buyers with a session."""


@dataclass(frozen=True)
class Kind:
    """A kind of request, its status, and its minimum rate relative to the empty view."""

    row: str
    name: str
    bound: float
    status: int
    make: Callable[[Run], Sequence[bytes]]
    again: bool = True


def measure(run: Run, *, rows: str) -> list[Line]:
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
    return [_line(kind, samples[kind, kind], samples[kind, EMPTY]) for kind in kinds]


def _line(kind: Kind, ours: Sequence[Sample], empty: Sequence[Sample]) -> Line:
    rates, empty_rates = [it.hits.rate for it in ours], [it.hits.rate for it in empty]
    by_cpu = ratios([it.web_cpu_s for it in empty], [it.web_cpu_s for it in ours])
    limited = any(it.hits.generator_load >= GENERATOR_LIMIT for it in (*ours, *empty))

    def cost(of: Callable[[Sample], float], by: Sequence[Sample]) -> str:
        return f"{median(of(it) for it in by) * 1e6:.0f} µs"

    note = (
        f"web {cost(lambda it: it.web_cpu_s, ours)}, "
        f"Redis {cost(lambda it: it.redis_cpu_s, ours)}, "
        f"MariaDB {cost(lambda it: it.database_cpu_s, ours)} "
        f"(empty {cost(lambda it: it.web_cpu_s, empty)})"
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
    return [order_request(sale.pk, token.sign(), attempt=1) for token in tokens]


def _sold_out(run: Run, attempt: int | None) -> list[bytes]:
    sale = open_sale(stock=1)
    first, *others = strangers(sale, count=DIFFERENT + 1)
    reserve_all([first])
    return [order_request(sale.pk, token.sign(), attempt=attempt) for token in others]


def _ordered_already(run: Run) -> list[bytes]:
    """Return requests with a second token of each buyer."""
    sale = open_sale()
    reserve_all(strangers(sale, count=DIFFERENT))
    tokens = strangers(sale, count=DIFFERENT)
    return [order_request(sale.pk, token.sign(), attempt=1) for token in tokens]


def _queued(run: Run) -> list[bytes]:
    sale = open_sale()
    tokens = strangers(sale, count=DIFFERENT)
    reserve_all(tokens)
    return [receipt_request(sale.pk, token.order_id, token.sign()) for token in tokens]


def _finished(run: Run) -> list[bytes]:
    sale = open_sale()
    tokens = issue_tokens(sale=sale, user_ids=users(count=DIFFERENT))
    reserve_all(tokens)
    fulfill_sale(sale_id=sale.pk)
    return [receipt_request(sale.pk, token.order_id, token.sign()) for token in tokens]


def _page(path: str) -> bytes:
    return packed(path, headers={"Accept": "text/html"})


def _of_signed_in(make: Callable[[int], str], *, accept: str) -> list[bytes]:
    """Return a request of each of some buyers with a session."""
    path = make(open_sale().pk)
    found = []
    for user in get_user_model().objects.filter(pk__in=users(count=SESSIONS)):
        session = SessionStore()
        session[SESSION_KEY] = str(user.pk)
        session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[-1]
        session[HASH_SESSION_KEY] = user.get_session_auth_hash()
        session.create()
        cookie = f"{settings.SESSION_COOKIE_NAME}={session.session_key}"
        found.append(packed(path, headers={"Accept": accept, "Cookie": cookie}))
    return found


EMPTY = Kind("", "an empty view", 1, 200, lambda run: [EMPTY_REQUEST] * run.plan.warm_up)
KINDS = (
    Kind("a", "order request that wins", 2.2, 202, wins, again=False),
    Kind("a", "refused by the ledger: sold out", 2.4, 409, partial(_sold_out, attempt=None)),
    Kind("a", "refused by the ledger: has ordered", 2.4, 409, _ordered_already),
    Kind("b", "sold out, first attempt", 3.5, 409, partial(_sold_out, attempt=1)),
    Kind("c", "live/", 4, 200, lambda run: [packed(f"/vouchers/{open_sale().pk}/live/")]),
    Kind("d", "receipt of a queued order", 0.5, 200, _queued),
    Kind("d", "receipt of a finished order", 0.5, 200, _finished),
    Kind("k", "list page, visitor", 3, 200, lambda run: [_page("/")]),
    Kind(
        "k",
        "purchase page, visitor",
        3,
        200,
        lambda run: [_page(f"/vouchers/{open_sale().pk}/")],
    ),
    Kind(
        "k",
        "purchase page, buyer",
        0.8,
        200,
        lambda run: _of_signed_in("/vouchers/{}/".format, accept="text/html"),
    ),
    Kind(
        "k",
        "token/",
        1.5,
        200,
        lambda run: _of_signed_in("/vouchers/{}/token/".format, accept="application/json"),
    ),
)
