"""Every step, one buyer after the other; and the lines in which they say that they break."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.utils import translation

import lab
from lab.keys import LabKeys
from lab.models import LabOrder, LabSale
from lab.steps import STEPS
from lab.steps.step import PROMISES, Answer
from seckill_site.redis.ledger_connection import ledger_connection
from tests.lab.steps.meeting import buy, write_all
from tests.support.tiers import slow_after

pytestmark = pytest.mark.django_db(transaction=True)

UNCHECKED = [name for name in STEPS if name.partition("-")[0] == "v1" or name == "v3-uncounted"]
"""These never ask whether the buyer has an order."""

NOT_SELLING = ("v1-late-filter", "v4-nil", "v5-poisoned", "v6-mistyped")
"""These sell too many, answer with an error, or write nothing, however quiet the sale."""

SELLING = [name for name in STEPS if name not in NOT_SELLING]

CHECKED = [name for name in SELLING if name not in UNCHECKED]
OWN = [name for name in SELLING if name != "ours"]
BOUNDED = ("v5-add", "v5-offer", "v5-put")
FINDINGS = {
    *("oversold", "undersold", "doubled", "early", "lost", "denied", "stuck", "errors", "delayed"),
}


@pytest.mark.parametrize("name", slow_after(4, [it for it in SELLING if it not in BOUNDED]))
def test_step_sells_its_stock_to_sequential_buyers(name: str) -> None:
    step = STEPS[name]
    sale_id, buyers = step.open(3), step.buyers(5)
    answers = [buy(name, sale_id, buyer) for buyer in buyers]
    write_all(step, sale_id, until=3)
    assert set(answers[:3]) < {*PROMISES}
    assert answers[3:] == [Answer.SOLD_OUT] * 2
    assert sorted(step.rows(sale_id)) == buyers[:3]
    if name in OWN:
        sale = LabSale.objects.get(pk=sale_id)
        assert (sale.step, sale.offered, sale.stock) == (name, 3, 0)


@pytest.mark.parametrize("name", slow_after(4, CHECKED))
def test_checked_step_refuses_a_second_press(name: str) -> None:
    step = STEPS[name]
    (buyer,) = step.buyers(1)
    for sale_id in (step.open(3), step.open(3)):  # which do not share their buyers
        assert buy(name, sale_id, buyer) in PROMISES
        write_all(step, sale_id, until=1)
        assert buy(name, sale_id, buyer) is Answer.ALREADY_ORDERED
        assert step.rows(sale_id) == [buyer]


@pytest.mark.parametrize("name", slow_after(1, UNCHECKED))
def test_unchecked_step_sells_twice_to_a_buyer(name: str) -> None:
    sale_id = STEPS[name].open(3)
    assert [buy(name, sale_id, 7), buy(name, sale_id, 7)] == [Answer.BOUGHT] * 2
    assert STEPS[name].rows(sale_id) == [7, 7]


@pytest.mark.parametrize("name", ["v1", "ours"])
def test_buyers_are_distinct(name: str) -> None:
    assert len(set(STEPS[name].buyers(501))) == 501


@pytest.mark.parametrize("name", slow_after(4, OWN))
def test_clearing_leaves_other_sales(name: str) -> None:
    step = STEPS[name]
    sale_id, kept_id = step.open(3), step.open(3)
    for it in (sale_id, kept_id):
        buy(name, it, 1)
        write_all(step, it, until=1)
        ledger_connection().set(LabKeys(it).lock_of(2), "left behind")
    kept = set(ledger_connection().keys(LabKeys(kept_id).pattern))
    step.clear(sale_id)
    assert list(LabSale.objects.values_list("pk", flat=True)) == [kept_id]
    assert list(LabOrder.objects.values_list("sale_id", flat=True)) == [kept_id]
    assert set(ledger_connection().keys("lab:*")) == kept


def test_steps_are_in_the_order_of_the_story() -> None:
    assert list(STEPS) == [
        *("v1", "v1-as-read", "v1-version", "v1-any-left", "v1-late-filter"),
        *("v1-retry", "v1-retry-stale", "v1-for-update", "v1-scan", "v2"),
        *("v3", "v3-one-lock", "v3-equal-key", "v3-inside", "v3-bypassed", "v3-uncounted"),
        *("v4", "v4-nil", "v4-window", "v5", "v5-add", "v5-offer", "v5-put"),
        *("v5-stream", "v5-poisoned", "v5-aside", "v5-one-name", "v5-new-only", "v5-returning"),
        *("v6-setnx", "v6-expiring", "v6-thread-id", "v6-uuid", "v6-owned", "v6-watchdog"),
        *("v6-per-buyer", "v6-mistyped", "v6-row", "v6-get-lock", "v6-dropped", "v6-kept"),
        *("v6-queue", "v6-stream", "v6-renewed", "ours"),
    ]
    assert all(name == step.name for name, step in STEPS.items())


def test_titles_are_short_and_distinct() -> None:
    with translation.override("en"):
        titles = [str(step.title) for step in STEPS.values()]
    assert len(set(titles)) == len(titles)
    assert max(map(len, titles)) <= 40


def test_markers_name_known_findings() -> None:
    sources = Path(lab.__file__).parent
    paths = [*sources.glob("steps/*.py"), sources / "locks.py", *sources.glob("lua/*.lua")]
    text = "".join(path.read_text() for path in paths)
    marks = [re.findall("[a-z]+", it) for it in re.findall(r"(?:#|--) breaks: (.*)", text)]
    assert {finding for mark in marks for finding in mark} == FINDINGS
