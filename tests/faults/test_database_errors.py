"""D2: any error of the database, at any statement of a batch, once or for long; nobody is refused.

The errors are raised inside the workers (``inside/sitecustomize.py``), for many sales at a time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from tests.concurrency.sales import crowd_of, make_sale
from tests.faults.conftest import with_inside
from tests.faults.errors import DATABASE_ERRORS, STATEMENTS
from tests.faults.history import History, Outcome, Report
from tests.support.patience import wait_for
from tests.support.stack import Stack, Web
from vouchers.inventory.sale_state import snapshot

pytestmark = [pytest.mark.slow, pytest.mark.concurrency, pytest.mark.usefixtures("row_locks")]

CLASSES = {"full": 1114, "killed": 1317, "account": 1045, "cluster": 1047, "columns": 1364}
BUYERS = 3
RECOVERY_SECONDS = 15.0


@pytest.fixture
def web(stack: Stack, inside: Path) -> Web:
    """A web server, beat, and workers whose database fails as the file says."""
    (inside / "database").write_text("{}")
    with stack.together():
        server = stack.web()
        stack.worker("--beat", concurrency=4, **with_inside(inside))
    return server


def endure(
    what: str, faults: Sequence[tuple[int, str]], *, seconds: float, inside: Path, url: str
) -> Outcome:
    """Let each fault befall a sale of its own, all at the same time, and add up what came of it."""
    sales = [make_sale(stock=BUYERS) for _ in faults]
    crowds = [crowd_of(sale, count=BUYERS) for sale in sales]
    until = time.monotonic() + seconds if seconds else 0
    wanted = {sale.pk: [*fault, until] for sale, fault in zip(sales, faults, strict=True)}
    (inside / "database").write_text(json.dumps(wanted))
    histories = [History("D2", what) for _ in sales]
    for history, sale, tokens in zip(histories, sales, crowds, strict=True):
        history.fire(sale, tokens, url=url)
    time.sleep(max(0.0, until - time.monotonic()))
    for history in histories:
        history.fault_is_over()
    outcomes = []
    for history, sale in zip(histories, sales, strict=True):
        history.settle(sale)
        outcomes.append(history.check(sale, recovery_seconds=RECOVERY_SECONDS))
    return replace(
        outcomes[0],
        orders=sum(it.orders for it in outcomes),
        accepted=sum(it.accepted for it in outcomes),
        worst_recovery_s=max(it.worst_recovery_s for it in outcomes),
    )


def test_d2_errors_of_three_seconds_refuse_nobody(web: Web, inside: Path, report: Report) -> None:
    """A sample: each statement, with five numbers."""
    faults = list(zip([1114, 1317, 1045, 1047, 1364], STATEMENTS, strict=True))
    outcome = endure("5 errors for 3 s", faults, seconds=3, inside=inside, url=web.url)
    assert outcome.orders == outcome.accepted == BUYERS * len(faults)
    report(outcome)


def test_d2_without_control_write_errors_set_everybody_aside(stack: Stack, inside: Path) -> None:
    """The control: here every failure counts against the entries, of which none can be written."""
    (inside / "blind").touch()
    sale = make_sale(stock=BUYERS)
    (inside / "database").write_text(
        json.dumps({sale.pk: [1114, "insert orders", time.monotonic() + 600]})
    )
    with stack.together():
        server = stack.web()
        stack.worker(**with_inside(inside))
    History("D2", "control").fire(sale, crowd_of(sale, count=BUYERS), url=server.url)
    wait_for(lambda: snapshot(sale_id=sale.pk).set_aside == BUYERS, what="orders set aside")


@pytest.mark.faults
@pytest.mark.timeout(300)
@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("seconds", [0, 3])
def test_d2_any_error_refuses_nobody(
    web: Web, inside: Path, report: Report, statement: str, seconds: float
) -> None:
    faults = [(number, statement) for number in DATABASE_ERRORS]
    what = f"{len(faults)} errors at {statement}, {f'{seconds} s' if seconds else 'once'}"
    outcome = endure(what, faults, seconds=seconds, inside=inside, url=web.url)
    assert outcome.orders == outcome.accepted == BUYERS * len(faults)
    report(outcome)


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_d2_errors_of_half_a_minute_refuse_nobody(web: Web, inside: Path, report: Report) -> None:
    faults = list(product(CLASSES.values(), STATEMENTS))
    outcome = endure(
        f"{len(CLASSES)} classes of errors for 30 s", faults, seconds=30, inside=inside, url=web.url
    )
    assert outcome.orders == outcome.accepted == BUYERS * len(faults)
    report(outcome)
