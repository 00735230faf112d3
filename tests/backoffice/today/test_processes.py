"""Nothing dead is silent: Today and System name workers, beat and tasks that do not run."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable

import pytest
from django.conf import settings
from django.contrib.auth.models import Group, User
from django.test import Client
from django.utils import timezone

from backoffice.today.texts import processes
from orders.models import VoucherOrder
from orders.roles import Role, make_roles
from seckill_site.broker.heartbeats import Heartbeat, State
from seckill_site.process_memory import forget_everything
from seckill_site.redis.ledger_connection import ledger_connection
from tests.support.heartbeats import ORDERS, note, note_all
from tests.support.orders import make_buyers, make_sale, reserved
from tests.support.payments import make_unpaid_order
from tests.support.sales import redis_now_ms
from tests.support.staff import staff_with, words
from tests.support.tiers import slow_after
from vouchers.inventory.keys import LedgerKeys

pytestmark = pytest.mark.django_db

TODAY, SYSTEM = "/admin/", "/admin/system/"
EXPIRE = "task:orders.tasks.expire"


@pytest.fixture
def owner() -> Client:
    note_all()
    return staff_with(name="owner", is_owner=True)


def shown(client: Client, page: str) -> str:
    """Return the words of a page, with servers that were probed anew."""
    forget_everything()
    return words(client.get(page).text)


def test_running_shop_says_that_all_runs(owner: Client) -> None:
    assert "Order workers" not in shown(owner, TODAY)
    page = shown(owner, SYSTEM)
    for name in ("Order workers", "Payment workers", "Webhook workers", "Scheduler (beat)"):
        assert f"{name} Running" in page
    assert "Writing of orders" not in page  # which its workers say


@pytest.mark.parametrize("page", slow_after(1, [TODAY, SYSTEM]))
@pytest.mark.parametrize(
    ("name", "who", "meanwhile"),
    slow_after(
        1,
        [
            (ORDERS, "Order workers", "Accepted orders are safe and wait to be written."),
            ("queue:payments", "Payment workers", "Payments and refunds wait to be checked."),
            ("queue:webhooks", "Webhook workers", "Webhooks wait to be sent."),
            ("beat", "Scheduler (beat)", "Unpaid orders do not expire and keep their stock"),
        ],
    ),
)
def test_silent_process_is_named_at_once(
    page: str, name: str, who: str, meanwhile: str, owner: Client
) -> None:
    said = "no sign of life for 45 s"
    assert said not in shown(owner, page)

    note({name: 45})

    text = shown(owner, page)  # by no cache's leave
    if page == TODAY:
        assert f"{who}: {said}. Last sign: " in text
    else:
        assert f"{who} Last sign: " in text
        assert text.count(said) == 1
    assert re.search(rf"Last sign: [0-9-]{{10}} [0-9:]{{8}} UTC\+8\. {meanwhile}", text)
    note({name: 0})
    assert said not in shown(owner, page)


@pytest.mark.parametrize("page", slow_after(1, [TODAY, SYSTEM]))
def test_late_task_is_named_though_its_worker_runs(page: str, owner: Client) -> None:
    assert "Closing unpaid orders" not in shown(owner, page)

    note({EXPIRE: 45})

    text = shown(owner, page)
    assert "Closing unpaid orders" in text
    assert "last done 45 s ago" in text
    assert re.search(r"Last sign: [0-9-]{10} [0-9:]{8} UTC\+8", text)


@pytest.mark.parametrize("page", slow_after(1, [TODAY, SYSTEM]))
def test_shop_that_never_had_a_worker_says_so(page: str, owner: Client) -> None:
    assert "never started" not in shown(owner, page)

    note_all(without=ORDERS)

    assert shown(owner, page).count("never started") == 1


@pytest.mark.parametrize("page", slow_after(1, [TODAY, SYSTEM]))
def test_without_redis_it_is_unknown_what_runs(
    page: str, owner: Client, lose_ledger: Callable[[], None]
) -> None:
    lose_ledger()
    text = shown(owner, page)
    assert "no sign of life" not in text
    assert "never started" not in text
    told = {
        TODAY: "it is unknown whether workers and regular tasks run.",
        SYSTEM: "Order workers unknown",
    }
    assert told[page] in text


@pytest.mark.slow
def test_orders_that_wait_are_named_on_system(owner: Client) -> None:
    sale = make_sale(stock=50)
    assert "No work waits for a worker." in shown(owner, SYSTEM)
    reserved(sale, make_buyers(30))
    key, long_ago_ms = LedgerKeys(sale.pk).pending, redis_now_ms() - 45_000
    members = ledger_connection().zrange(key, 0, -1)
    ledger_connection().zadd(key, dict.fromkeys(members, long_ago_ms))

    page = shown(owner, SYSTEM)

    assert "Orders are running 45 s late" in page
    assert "No work waits for a worker." not in page


@pytest.mark.slow
def test_overdue_orders_lead_to_the_unpaid_ones(owner: Client) -> None:
    sale = make_sale()
    for _ in range(5):
        make_unpaid_order(sale)
    VoucherOrder.objects.update(pay_by=timezone.now() - dt.timedelta(minutes=6))
    note({"beat": 360})

    page = owner.get(TODAY).text

    assert "5 unpaid orders are past their time to pay and still hold stock" in page
    assert 'href="/admin/orders/voucherorder/?status__exact=unpaid"' in page
    assert "Is a worker running" not in page  # it runs


@pytest.mark.parametrize("role", slow_after(1, [Role.SHOP_STAFF, Role.READ_ONLY]))
def test_all_staff_learn_of_a_silent_process(role: Role) -> None:
    make_roles()
    note_all()
    clerk = staff_with(name="clerk")
    User.objects.get(username="clerk").groups.set([Group.objects.get(name=role)])
    note({"beat": 45})

    page = clerk.get(TODAY).text

    assert "Scheduler (beat): no sign of life for 45 s" in words(page)
    assert ("/admin/system/#processes" in page) is (role is Role.READ_ONLY)
    assert 'href="#processes"' not in page


@pytest.mark.quick
@pytest.mark.parametrize("state", list(State))
def test_everything_that_ought_to_run_has_a_name(state: State) -> None:
    names = [f"queue:{it.name}" for it in settings.CELERY_TASK_QUEUES]
    names += ["beat", *(f"task:{it['task']}" for it in settings.CELERY_BEAT_SCHEDULE.values())]
    for name in names:
        for row in processes([Heartbeat(name, state, 45)], now=timezone.now()):
            assert all(isinstance(str(it), str) for it in row.values())
