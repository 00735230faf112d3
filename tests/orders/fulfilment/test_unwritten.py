"""Accepted orders that no row can hold: listed, written again, or refused by staff."""

from __future__ import annotations

import io

import pytest
from django.core.management import CommandError, call_command

from orders.fulfilment.unwritten import decide_unwritten
from orders.fulfilment.worker import fulfil_sale
from orders.receipts.service import find_receipt
from tests.support.inspection import assert_conserved, broker_length, live_ids, refusals_of
from tests.support.orders import ids, make_buyers, make_sale, pending, reserved_sale
from vouchers.inventory.batch_journal import Decision, set_aside
from vouchers.inventory.reservations import entries_set_aside
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db


def unwritten(count: int = 2) -> tuple[SeckillVoucher, list[int]]:
    """Return a sale with so many entries set aside, and their order ids."""
    sale, tokens = reserved_sale(make_buyers(count), stock=10)
    for entry in pending(sale):
        assert set_aside(sale_id=sale.pk, entries=[entry])
    assert fulfil_sale(sale_id=sale.pk) is False, "no worker takes them"
    return sale, ids(tokens)


def run(*args: object) -> list[str]:
    out = io.StringIO()
    call_command("unwritten_orders", *map(str, args), stdout=out)
    return out.getvalue().splitlines()


def test_buyers_of_unwritten_orders_read_queued() -> None:
    sale, order_ids = unwritten(1)
    (entry,) = entries_set_aside(sale_id=sale.pk)

    found = find_receipt(sale_id=sale.pk, order_id=order_ids[0], user_id=entry.user_id)

    assert found.status == "queued"
    assert live_ids(sale) == []


def test_retry_writes_them_as_accepted() -> None:
    sale, order_ids = unwritten()

    assert decide_unwritten(sale_id=sale.pk, decision=Decision.RETRY) == order_ids
    assert decide_unwritten(sale_id=sale.pk, decision=Decision.RETRY) == []
    assert broker_length() == 1
    fulfil_sale(sale_id=sale.pk)

    assert live_ids(sale) == order_ids
    assert_conserved(sale)


def test_refusing_ends_them_and_returns_their_units() -> None:
    sale, order_ids = unwritten()

    decide_unwritten(sale_id=sale.pk, decision=Decision.REFUSE)
    fulfil_sale(sale_id=sale.pk)

    assert refusals_of(sale) == dict.fromkeys(order_ids, "failed")
    assert_conserved(sale)


def test_command_lists_and_decides() -> None:
    sale, order_ids = unwritten()
    make_sale()

    assert [line.split()[0] for line in run()] == [str(order_id) for order_id in order_ids]
    assert run(sale.pk, "--retry") == [f"{order_id}  to retry" for order_id in order_ids]
    assert run(sale.pk) == []


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["404"], "there is no sale 404"),
        (["--retry"], "name the sales to decide about"),
        (["--refuse"], "name the sales to decide about"),
    ],
)
def test_command_explains_bad_input(args: list[str], text: str) -> None:
    with pytest.raises(CommandError, match=text) as caught:
        run(*args)
    assert caught.value.returncode == 2
