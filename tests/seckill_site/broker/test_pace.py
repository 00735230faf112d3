"""Signs of life, which keep beat at its full pace."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.test import Client
from redis import Redis

from backoffice.tasks import work_at_job
from orders.tasks import confirm_payments, fulfil_sale
from seckill_site.broker import pace
from seckill_site.broker.pace import AWAKE, AWAKE_S, note_life
from seckill_site.process_memory import forget_everything
from tests.support.asgi import ask
from tests.support.browsers import browser_of
from tests.support.inspection import Commands, redis_commands
from tests.support.orders import make_buyer, make_sale
from tests.support.tiers import slow_after
from vouchers.inventory.rebuild import load_sale
from vouchers.inventory.request_stats import count_request, flush_request_counts
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

Sign = Callable[[SeckillVoucher], object]


def told(sign: Callable[[], object]) -> bool:
    """Return whether Redis is told to stay awake after this, once the thread has run."""
    forget_everything()
    commands: Commands
    with redis_commands() as commands:
        sign()
        pace._signs.flush()
    return any(AWAKE in text for _, text in commands)


def count(sale: SeckillVoucher) -> None:
    count_request(sale_id=sale.pk, answer="sold_out")
    flush_request_counts()


def visit(sale: SeckillVoucher) -> None:
    cookie = browser_of(make_buyer()).cookies.output(attrs=[], header="").strip()
    ask("GET", f"/me/?sale={sale.pk}", HTTP_COOKIE=cookie)


SIGNS: dict[str, Sign] = {
    "an order becomes a row": lambda sale: fulfil_sale(sale_id=sale.pk),
    "a buyer is back from a provider": lambda _: confirm_payments(order_id=1),
    "a bulk job takes a step": lambda _: work_at_job(job_id=1),
    "an order request is answered": count,
    "a buyer visits a sale": visit,
    "a form is sent": lambda _: Client().post("/accounts/login/"),
    "a sale is loaded": lambda sale: load_sale(sale_id=sale.pk),
}


@pytest.mark.parametrize("sign", slow_after(1, SIGNS.values()), ids=SIGNS)
def test_sign_of_life_keeps_the_shop_awake(sign: Sign) -> None:
    sale = make_sale()
    assert told(lambda: sign(sale))


def test_page_that_nobody_signed_in_reads_is_no_sign() -> None:
    assert not told(lambda: Client().get("/"))


def test_signs_cost_a_process_one_command_in_ten_seconds(ledger: Redis) -> None:
    with redis_commands() as commands:
        for _ in range(3):
            note_life()
            pace._signs.flush()
    assert [text for _, text in commands] == [f"SET {AWAKE} 1 EX {AWAKE_S}"]
