"""Contests: a sale that honest buyers and an attacker want at the same time."""

import datetime as dt
import math
import os
import time
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from allauth.account.models import EmailAddress

from bench.fairness import attacker
from bench.fairness.buyers import honest_buyers
from bench.fairness.guards import ADDRESSES, CONFIRMED, Guard, Shares
from bench.processes import spawned
from bench.sale.data import open_sale, sign_in, users
from bench.sale.generator import Crowd
from bench.sale.plan import SALE_CONNECTIONS
from bench.sale.run import Run, Site, Web, WrongAnswers, back_half, expect_soon, web
from bench.sale.whole_sales import LONGEST_S, ours_agree, owners
from orders.placing.tokens import issue_tokens
from vouchers.catalogue.sales import edit_sale, terms_of
from vouchers.models import Draw, SaleMode, SeckillVoucher

HOUR_S = 3600
START_S = 3
"""How long before a sale starts everybody is ready."""

DRAW = dt.timedelta(seconds=20)
"""How long a draw takes entries: longer than anybody needs here."""

PROXY = {"SECKILL_TRUSTED_PROXIES": "127.0.0.1"}
NO_LIMITS = {
    f"SECKILL_{name}": "0"
    for name in (
        "ORDERS_PER_ADDRESS", "ORDERS_PER_ACCOUNT", "REQUESTS_PER_ADDRESS", "REQUESTS_PER_ACCOUNT",
    )
}  # fmt: skip


@dataclass(frozen=True)
class Rivals:
    """The web servers, and the accounts of both sides."""

    run: Run
    limited: Web
    unlimited: Web
    workers: Executor
    honest: Sequence[int]
    attacking: Sequence[int]
    cookies: Sequence[str]
    """The sessions of the attacker's accounts."""


def measure(run: Run, guards: Sequence[Guard]) -> list[Shares]:
    plan = run.plan
    user_ids = users(count=plan.honest + plan.attacking)
    honest, attacking = user_ids[: plan.honest], user_ids[plan.honest :]
    contests = [Shares(guard, addresses) for guard in guards for addresses in ADDRESSES]
    EmailAddress.objects.bulk_create(
        EmailAddress(user_id=it, email=f"{it}@example.com", verified=True, primary=True)
        for it in (*honest, *attacking[:CONFIRMED])
    )
    with ExitStack() as stack:
        environ = {**os.environ, **PROXY}
        stack.enter_context(back_half(run.site))
        rivals = Rivals(
            run,
            stack.enter_context(web(Site(1, environ))),
            stack.enter_context(web(Site(2, {**environ, **NO_LIMITS}))),
            stack.enter_context(spawned(2)),
            honest,
            attacking,
            sign_in(user_ids=attacking),
        )
        for shares in run.steps(contests * plan.contests, what="contests"):
            shares.units.append(_compete(rivals, shares.guard, shares.addresses))
    return contests


def _compete(rivals: Rivals, guard: Guard, addresses: int) -> int:
    """Hold one sale; return the units of the attacker.

    :raises WrongAnswers: the sale was not sold out exactly.
    """
    run, units = rivals.run, rivals.run.plan.contested
    rules: dict[str, Any] = {
        "work": guard.work,
        "per_address": None if guard.limited else 0,
        "needs_contact": guard.needs_contact,
        "mode": SaleMode.DRAW if guard.drawn else SaleMode.FIRST_COME,
    }
    sale = open_sale(stock=units, begins_in_s=HOUR_S, **rules)
    port = (rivals.limited if guard.limited else rivals.unlimited).port
    attack = attacker.Attack(port, sale.pk, rivals.cookies, addresses, guard.work)
    issued = issue_tokens(sale=sale, user_ids=rivals.honest)
    tokens = [token.sign() for token in issued]  # no work is left: their browsers did it meanwhile
    prepared: list[str] = []
    if guard.prepares:
        prepared = attacker.do_all_work(rivals.workers, attacker.collect_tokens(attack), guard.work)

    opens_at = _start_soon(sale)
    crowd = Crowd(port, partial(honest_buyers, sale.pk, tokens, opens_at), SALE_CONNECTIONS)
    buying = run.start(crowd)
    attacking = (
        run.generator.submit(attacker.send_all_at, attack, prepared, opens_at)
        if guard.prepares
        else run.generator.submit(attacker.work_and_send_from, attack, opens_at)
    )
    buying.result(), attacking.result()
    if guard.drawn:
        finished = Draw.objects.filter(seckill_voucher=sale, finished_at__isnull=False)
        within_s = DRAW.total_seconds() + LONGEST_S
        expect_soon(finished.exists, "the draw did not finish", within_s=within_s)
    if not ours_agree(sale.pk, units):
        raise WrongAnswers(f"{guard.title}: the sale was not sold out exactly")
    return len(set(rivals.attacking) & set(owners(sale)))


def _start_soon(sale: SeckillVoucher) -> float:
    """Let the sale start at a full second in a moment; return it, in seconds since 1970."""
    opens_at = math.ceil(time.time()) + START_S
    begins_at = dt.datetime.fromtimestamp(opens_at, dt.UTC)
    terms = replace(terms_of(sale), begins_at=begins_at)
    if sale.is_draw:
        terms = replace(terms, ends_at=begins_at + DRAW)
    edit_sale(sale_id=sale.pk, terms=terms)
    return float(opens_at)
