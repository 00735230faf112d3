"""Pages of large tables: none costs more because the shop has sold more before."""

from __future__ import annotations

import datetime as dt
import re

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from backoffice.report.day_sums import sum_days
from bench.shop.filling import Size, add_orders, analyze, fill, make_people
from bench.shop.pages import MOST_STATEMENTS, Page, Sample, find_subjects, measure, pages
from vouchers.models import SeckillVoucher

# To let the server count its rows commits.
pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

SIZE = Size(orders=2_000, sales=120, buyers=300, big=2)
OLDER = "older-"

ADDED = 20, 100
"""The sales that get further orders, and how many each."""

MORE_STATEMENTS, MORE_ROWS = 1, 200
"""What a page may cost more, as a plan may change on small tables: a tenth of the added orders."""

BY_STATEMENTS = re.compile(
    r"/admin/$"  # the past has the latest ids here, where Today expects the day's events
    r"|reason__exact=sold_out"  # a page is longer than this list
)
"""Pages of which the statements alone are compared."""


def cost_of(shown: list[Page], clients: dict[bool, Client]) -> dict[str, Sample]:
    sum_days(now=timezone.now() + dt.timedelta(hours=1))
    return {it.name: measure(clients[it.of_buyer], it) for it in shown}


def test_no_page_reads_more_when_the_orders_double() -> None:
    """The further orders are of old sales and of other buyers: what a shop keeps of its past."""
    make_people(SIZE.buyers, names=OLDER)
    fill(SIZE, in_bulk=False)
    owner = User.objects.create_superuser("owner")
    subjects = find_subjects()
    clients = {it: Client(SERVER_NAME="localhost") for it in (False, True)}
    for client, user in zip(clients.values(), (owner, subjects.buyer), strict=True):
        client.force_login(user, backend=settings.AUTHENTICATION_BACKENDS[-1])
    # What adds up a year reads it.
    shown = [it for it in pages(subjects) if "over a year" not in it.name]
    cost_of(shown, clients)  # the first request of a process fills its memory
    few = cost_of(shown, clients)
    sales = SeckillVoucher.objects.order_by("begins_at").values_list("pk", "begins_at")
    added, count = ADDED
    for sale_id, begins_at in sales[1 : 1 + added]:
        buyers, first = SIZE.buyers, SIZE.usual
        add_orders(sale_id, begins_at, count=count, buyers=buyers, first=first, names=OLDER)
    analyze()
    many = cost_of(shown, clients)
    by_statements = {it.name for it in shown if BY_STATEMENTS.search(it.url)}
    grown = {
        name: f"{before.statements}, {before.rows}: {after.statements}, {after.rows}"
        for name, before in few.items()
        if (after := many[name]).statements > before.statements + MORE_STATEMENTS
        or (after.rows > before.rows + MORE_ROWS and name not in by_statements)
    }
    assert not grown
    assert {
        name: it.statements for name, it in many.items() if it.statements > MOST_STATEMENTS
    } == {}
    assert {name: it.status for name, it in many.items() if it.status >= 400} == {}
