"""``manage.py create_sale``."""

from __future__ import annotations

import io

import pytest
from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command
from django.utils import timezone

from tests.support.sales import HOUR
from tests.support.tiers import slow_after
from vouchers.catalogue.audience import Audience, audience_of
from vouchers.inventory.sale_state import snapshot
from vouchers.inventory.waiting_room import RoomTerms
from vouchers.models import Merchant, RoomKind, SaleState, SeckillVoucher, Voucher, Work

YEAR_S = 366 * 86_400
REQUIRED = ("--title", "Noodles", "--stock", "5", "--begins-in", "-60", "--ends-in", "3600")


def create_sale(*extra, required=REQUIRED):
    """Run the command; return the lines that it printed."""
    out = io.StringIO()
    call_command("create_sale", *required, *extra, stdout=out)
    return out.getvalue().splitlines()


@pytest.mark.django_db(transaction=True)
def test_last_line_is_id_of_loaded_sale_without_a_waiting_room():
    lines = create_sale()

    found = snapshot(sale_id=int(lines[-1]))
    assert (found.state, found.terms.total, found.terms.limit) == (SaleState.OPEN, 5, 1)
    assert found.terms.room is None
    sale = SeckillVoucher.objects.get()
    assert (sale.pk, sale.room, sale.room_opened_ms) == (int(lines[-1]), RoomKind.OFF, 0)
    assert sale.voucher.merchant == Merchant.default()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("begins_in", "ends_in"),
    [(-40 * YEAR_S, 60), (-60, 90 * YEAR_S), (-3_000 * YEAR_S, 60), (-(10**15), 60)],
)
def test_sale_in_another_century_is_refused(begins_in, ends_in):
    with pytest.raises(CommandError):
        create_sale("--begins-in", str(begins_in), "--ends-in", str(ends_in))
    assert not SeckillVoucher.objects.exists()


@pytest.mark.django_db
@pytest.mark.usefixtures("english")
@pytest.mark.parametrize("day", ["0001-01-01", "2020-12-31", "9999-12-31"])
def test_odd_last_day_is_refused(day):
    with pytest.raises(CommandError, match=r"^Choose a day from today to 20 years on"):
        create_sale("--valid-until", day)
    assert not Voucher.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_each_option_is_used():
    tea, group = Merchant.objects.create(name="Tea"), Group.objects.create(name="members")
    now = timezone.now()

    create_sale(
        *("--begins-in", "-7200", "--ends-in", "-3600", "--limit", "3", "--work", "usual"),
        *("--price-cents", "1", "--face-value-cents", "2"),
        *("--merchant", "Tea", "--valid-until", "2030-12-31"),
        *("--group", "members", "--account-age-hours", "24", "--needs-code"),
        *("--needs-contact", "--first-order-only"),
    )

    sale = SeckillVoucher.objects.get()
    assert abs((sale.begins_at - now + 2 * HOUR).total_seconds()) < 5
    assert abs((sale.ends_at - now + HOUR).total_seconds()) < 5
    assert (sale.limit, sale.work) == (3, Work.USUAL)
    assert (sale.voucher.price_cents, sale.voucher.face_value_cents) == (1, 2)
    assert (sale.voucher.merchant, str(sale.voucher.valid_until)) == (tea, "2030-12-31")
    assert audience_of(sale) == Audience(
        needs_contact=True,
        account_age_h=24,
        group_id=group.pk,
        needs_code=True,
        first_order_only=True,
    )


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("extra", "terms"),
    [
        (("--room", "busy"), (RoomKind.BUSY, 200, False)),
        (("--room", "busy", "--room-rate", "7"), (RoomKind.BUSY, 7, False)),
        (("--room", "start", "--room-shuffled"), (RoomKind.START, 200, True)),
    ],
)
def test_waiting_room_is_open_in_the_ledger(extra, terms):
    create_sale(*extra)

    sale = SeckillVoucher.objects.get()
    assert (sale.room, sale.room_rate, sale.room_shuffled) == terms
    assert snapshot(sale_id=sale.pk).terms.room == RoomTerms.from_sale(sale)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("extra", "named"),
    slow_after(
        2,
        [
            (("--room", "always"), "--room"),
            (("--room-rate", "7"), "--room-rate needs a waiting room"),
            (("--room", "off", "--room-rate", "7"), "--room-rate needs a waiting room"),
            (("--room-shuffled",), "--room start"),
            (("--room", "busy", "--room-shuffled"), "--room start"),
            (("--room", "busy", "--room-rate", "many"), "--room-rate"),
            (("--stock", "1000001"), "sale_stock_within_bounds"),
            (("--stock", str(10**30)), "stock"),
            (("--ends-in", str(10**30)), ""),
            (("--group", "nobody"), "--group"),
            (("--account-age-hours", str(10**30)), "--account-age-hours"),
            (("--title", ""), "title"),
            (("--draw", "--limit", "2"), ""),
            (("--draw-wait", "60"), ""),
            (("--merchant", "Nobody"), "there is no merchant 'Nobody'"),
        ],
    ),
)
def test_invalid_sale_is_a_one_line_error(extra, named):
    with pytest.raises(CommandError) as refused:
        create_sale(*extra)

    assert named in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not Voucher.objects.exists()


@pytest.mark.parametrize("left_out", ["--title", "--stock", "--begins-in", "--ends-in"])
def test_required_options_are_named(left_out):
    at = REQUIRED.index(left_out)

    with pytest.raises(CommandError, match=left_out):
        create_sale(required=REQUIRED[:at] + REQUIRED[at + 2 :])


@pytest.mark.django_db(transaction=True)
def test_unloaded_sale_is_no_success(redis_gone):
    """The contract says *loaded into Redis*, so the exit status is not 0."""
    with redis_gone(), pytest.raises(CommandError):
        create_sale()


@pytest.mark.django_db(transaction=True)
def test_draw_is_created_with_its_seed():
    create_sale("--draw", "--draw-wait", "60")
    sale = SeckillVoucher.objects.get()
    assert (sale.mode, sale.draw_wait_s) == ("draw", 60)
    assert len(sale.draw.seed) == 64
