"""The commands of the contract: demo, create_buyers, reconcile, retry_orders."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from redis import Redis

from orders.fulfilment.worker import fulfil_sale
from orders.models import OrderStatus, VoucherOrder
from orders.placing.order_ids import mint_order_ids
from orders.placing.tokens import read_token
from tests.support.inspection import assert_conserved, ledger_contents, live_ids, pending_ids, rows
from tests.support.orders import make_buyer, make_buyers, make_order, make_sale, reserved
from tests.support.sales import change_state
from tests.support.tiers import slow_after
from vouchers.inventory.sale_state import snapshot
from vouchers.models import SeckillVoucher, Voucher

pytestmark = pytest.mark.django_db


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def refusal_of(*arguments: str) -> CommandError:
    """Return the one-line error of a command that prints nothing else."""
    out = io.StringIO()
    with pytest.raises(CommandError) as caught:
        call_command(*arguments, stdout=out)
    message = str(caught.value)
    assert message
    assert "\n" not in message
    assert "Traceback" not in message
    assert out.getvalue() == ""
    assert caught.value.returncode != 0
    return caught.value


@pytest.mark.parametrize(
    "command",
    ["demo", "create_buyers", "reconcile", "retry_orders", "rehearse", "plan", "export_orders"],
)
def test_each_command_has_its_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        call_command(command, "--help")
    assert caught.value.code == 0
    assert "usage:" in capsys.readouterr().out


# --- demo ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_demo_makes_sales_and_accounts_and_prints_passwords() -> None:
    text = run("demo")
    assert User.objects.count() == 3
    for user in User.objects.all():
        (line,) = (line for line in text.splitlines() if line.split()[:1] == [user.username])
        assert user.check_password(line.split()[1])
        assert user.is_superuser == user.is_staff == (user.username == "admin")
    sales = SeckillVoucher.objects.order_by("pk")
    assert [snapshot(sale_id=sale.pk).state for sale in sales] == ["open", "scheduled", "ended"]
    assert all(f"/vouchers/{sale.pk}/" in text for sale in sales)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_second_demo_changes_nothing_and_prints_no_password() -> None:
    run("demo")
    before = rows(), ledger_contents(), list(User.objects.order_by("pk").values_list())
    again = run("demo")
    assert (rows(), ledger_contents(), list(User.objects.order_by("pk").values_list())) == before
    assert Voucher.objects.count() == 3
    assert not any(name in again for name in ("alice", "bob", "admin "))


# --- create_buyers -------------------------------------------------------------------------------


def test_create_buyers_prints_usable_tokens(client: Client) -> None:
    sale = make_sale(stock=5)
    lines = run("create_buyers", "--count", "3", "--tokens-for", str(sale.pk)).splitlines()
    assert len(lines) == len(set(lines)) == 3
    for text in lines:
        answer = client.post(f"/vouchers/{sale.pk}/orders/", {"token": text})
        assert answer.status_code == 202
    assert len(pending_ids(sale)) == 3
    fulfil_sale(sale_id=sale.pk)
    assert_conserved(sale)


def test_created_buyers_cannot_log_in() -> None:
    sale = make_sale(begins_in_s=600)
    lines = run("create_buyers", "--count", "501", "--tokens-for", str(sale.pk)).splitlines()
    now_ms = time.time_ns() // 1_000_000
    tokens = [read_token(text, sale_id=sale.pk, now_ms=now_ms) for text in lines]
    assert {token.user_id for token in tokens} == set(User.objects.values_list("pk", flat=True))
    assert len({token.order_id for token in tokens}) == len(tokens) == 501
    assert not any(user.has_usable_password() for user in User.objects.all())
    assert User.objects.filter(is_active=True, is_staff=False).count() == 501


def test_second_crowd_has_other_buyers() -> None:
    sale = make_sale()
    for _ in range(2):
        run("create_buyers", "--count", "2", "--tokens-for", str(sale.pk))
    assert User.objects.count() == 4


@pytest.mark.parametrize("count", slow_after(1, ["0", "-1", "x", "1.5", ""]))
def test_wrong_count_is_one_line(count: str) -> None:
    refusal = refusal_of("create_buyers", f"--count={count}", f"--tokens-for={make_sale().pk}")
    assert "count" in str(refusal)
    assert not User.objects.exists()


def test_create_buyers_for_missing_sale_is_one_line() -> None:
    unknown = make_sale().pk + 1
    refusal = refusal_of("create_buyers", "--count=3", f"--tokens-for={unknown}")
    assert str(unknown) in str(refusal)
    assert not User.objects.exists()


def test_create_buyers_without_redis_makes_none(lose_ledger: Callable[[], None]) -> None:
    sale = make_sale()
    lose_ledger()
    refusal_of("create_buyers", "--count=3", f"--tokens-for={sale.pk}")


# --- reconcile -----------------------------------------------------------------------------------

KEYS = [
    "voucher_id",
    "total",
    "sold",
    "live_orders",
    "buyers",
    "pending",
    "remaining",
    "difference",
]


def reconcile_json(*arguments: str, status: int = 0) -> list[dict[str, Any]]:
    """Run ``reconcile --json``, check its exit status and return its list."""
    out = io.StringIO()
    try:
        call_command("reconcile", "--json", *arguments, stdout=out)
        left = 0
    except SystemExit as error:
        left = int(error.code or 0)
    assert left == status
    return list(json.loads(out.getvalue()))


def test_reconcile_json_has_one_object_per_sale() -> None:
    sale, other = make_sale(stock=9), make_sale(loaded=False)
    reserved(sale, make_buyers(2))
    fulfil_sale(sale_id=sale.pk)
    reserved(sale, make_buyers(1))
    found = reconcile_json()
    assert [list(entry) for entry in found] == [KEYS, KEYS]
    assert [list(entry.values())[1:] for entry in found] == [
        [9, 2, 2, 3, 1, 6, 0],
        [10, 0, 0, 0, 0, None, 0],
    ]
    assert [str(entry["voucher_id"]) for entry in found] == [str(sale.pk), str(other.pk)]


def test_reconcile_json_without_sales_is_empty() -> None:
    assert reconcile_json() == []


def test_reconcile_exits_1_until_repaired(ledger: Redis) -> None:
    sale, good = make_sale(), make_sale()
    change_state(sale.pk, total=13)
    assert [entry["difference"] for entry in reconcile_json(status=1)] == [3, 0]
    assert reconcile_json(str(good.pk))[0]["difference"] == 0
    assert reconcile_json(str(sale.pk), status=1)[0]["difference"] == 3
    assert [entry["difference"] for entry in reconcile_json("--repair")] == [0, 0]
    assert [entry["difference"] for entry in reconcile_json()] == [0, 0]


def test_reconcile_table_matches_the_json() -> None:
    sale = make_sale(stock=9)
    head, row = run("reconcile", str(sale.pk)).splitlines()
    assert head.split() == KEYS
    assert row.split() == [str(sale.pk), "9", "0", "0", "0", "0", "9", "0"]


def test_reconciling_a_missing_sale_repairs_nothing(ledger: Redis) -> None:
    sale = make_sale()
    change_state(sale.pk, total=13)
    before = ledger_contents()
    refusal = refusal_of("reconcile", "--repair", str(sale.pk), str(sale.pk + 1))
    assert str(sale.pk + 1) in str(refusal)
    assert ledger_contents() == before


def test_reconcile_command_without_redis_is_one_line(lose_ledger: Callable[[], None]) -> None:
    make_sale()
    lose_ledger()
    refusal_of("reconcile", "--json")


def test_minting_and_commands_share_one_sequence() -> None:
    sale = make_sale()
    (before,) = mint_order_ids(count=1)
    text = run("create_buyers", "--count", "1", "--tokens-for", str(sale.pk)).strip()
    assert int(text.split("-")[0]) > before


# --- retry_orders --------------------------------------------------------------------------------


def set_aside(sale: SeckillVoucher) -> VoucherOrder:
    return make_order(sale, make_buyer(), status=OrderStatus.REFUSED, reason="failed")


def retry_orders(*arguments: str, status: int = 0) -> list[str]:
    """Run ``retry_orders``, check its exit status and return its lines."""
    out = io.StringIO()
    try:
        call_command("retry_orders", *arguments, stdout=out, stderr=io.StringIO())
        left = 0
    except SystemExit as error:
        left = int(error.code or 0)
    assert left == status
    return out.getvalue().splitlines()


def test_set_aside_orders_are_listed_without_a_change() -> None:
    sale = make_sale()
    order = set_aside(sale)
    nobodys = make_order(sale, None, status=OrderStatus.REFUSED, reason="failed")
    make_order(sale, make_buyer())
    make_order(sale, make_buyer(), status=OrderStatus.REFUSED, reason="sold_out")
    before = ledger_contents(), rows()
    lines = retry_orders("--list")
    assert (ledger_contents(), rows()) == before
    assert [line.split()[0] for line in lines] == [str(order.pk), str(nobodys.pk)]
    assert order.user
    assert order.user.username in lines[0]
    assert all(str(sale) in line for line in lines)


def test_named_orders_are_retried() -> None:
    sale = make_sale()
    first, second, third = (set_aside(sale) for _ in range(3))
    assert retry_orders(str(third.pk), str(first.pk)) == [
        f"{third.pk}  live, to be paid",
        f"{first.pk}  live, to be paid",
    ]
    assert live_ids(sale) == [first.pk, third.pk]
    assert VoucherOrder.objects.get(pk=second.pk).reason == "failed"
    assert_conserved(sale)


def test_all_set_aside_orders_are_retried() -> None:
    sales = make_sale(), make_sale()
    orders = [set_aside(sale) for sale in (*sales, *sales)]
    assert retry_orders("--all") == [f"{order.pk}  live, to be paid" for order in orders]
    for sale in sales:
        assert_conserved(sale)
    assert retry_orders("--all") == retry_orders("--list") == []


def test_refused_retry_prints_reason_and_exits_1() -> None:
    sale = make_sale(stock=1)
    first, second = set_aside(sale), set_aside(sale)
    assert retry_orders(str(first.pk), str(second.pk), "404", str(first.pk), status=1) == [
        f"{first.pk}  live, to be paid",
        f"{second.pk}  not retried: no vouchers are left",
        "404  not retried: the order does not exist",
        f"{first.pk}  not retried: the order is not waiting for a retry",
    ]
    assert retry_orders("--all", status=1) == [f"{second.pk}  not retried: no vouchers are left"]


@pytest.mark.parametrize(
    "arguments", slow_after(1, [[], ["--all", "--list"], ["--all", "7"], ["--list", "7"]])
)
def test_retry_command_needs_exactly_one_selection(arguments: list[str]) -> None:
    order = set_aside(make_sale())
    assert "--all" in str(refusal_of("retry_orders", *arguments))
    assert VoucherOrder.objects.get(pk=order.pk).live is None


def test_retry_command_without_redis_is_one_line(lose_ledger: Callable[[], None]) -> None:
    order = set_aside(make_sale())
    before = rows()
    lose_ledger()
    assert refusal_of("retry_orders", str(order.pk)).returncode == 2
    assert rows() == before
