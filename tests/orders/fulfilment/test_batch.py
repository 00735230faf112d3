"""One batch of the back half on MariaDB: its rows, its statements and its guards."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from orders.fulfilment import batch
from orders.fulfilment.batch import (
    BatchOutcome,
    LockLost,
    OrderIdTaken,
    StaleBatchNumber,
    StaleFence,
    write_batch,
)
from orders.models import OrderEvent, OrderStatus, RefusalReason, VoucherOrder
from orders.placing.order_ids import mint_order_ids
from orders.proof.rows import check_rows
from orders.receipts.row_copy import ReceiptRow, read_receipt_row
from seckill_site.clocks.database import database_now
from seckill_site.clocks.machine import epoch_ms
from tests.support.inspection import live_ids, refusals_of, rows, statements
from tests.support.orders import (
    PRICE_CENTS,
    an_entry,
    at_once,
    make_buyer,
    make_buyers,
    make_order,
    make_sale,
    race,
)
from tests.support.patience import GENEROUS_S
from tests.support.tiers import slow_after
from vouchers import chain
from vouchers.catalogue.sales import edit_sale, terms_of
from vouchers.inventory.purchases import further_ids
from vouchers.inventory.reservations import PendingEntry, Release
from vouchers.lock_objects import lock_seckill_voucher
from vouchers.models import SeckillVoucher

pytestmark = pytest.mark.django_db

SALE, ORDERS, USERS = "vouchers_seckillvoucher", "orders_voucherorder", "auth_user"
EVENTS = "orders_orderevent"


class AboveAny(int):
    """A batch number that counts as higher than any other."""

    def __le__(self, other: int) -> bool:
        return False


def write(
    sale: SeckillVoucher,
    entries: Sequence[PendingEntry],
    *,
    fencing_token: int | None = None,
    number: int | None = None,
    lost: Callable[[], bool] = lambda: False,
    refuse_as: RefusalReason | None = None,
) -> BatchOutcome:
    return write_batch(
        sale_id=sale.pk,
        entries=entries,
        fencing_token=sale.fence + 1 if fencing_token is None else fencing_token,
        number=AboveAny(1) if number is None else number,
        lost=lost,
        refuse_as=refuse_as,
    )


def entries_for(sale: SeckillVoucher, count: int, *, first_id: int = 1_001) -> list[PendingEntry]:
    return [
        an_entry(sale, buyer.pk, order_id=first_id + n)
        for n, buyer in enumerate(make_buyers(count))
    ]


# --- Rows ----------------------------------------------------------------------------------------


def test_entry_becomes_live_unpaid_order_with_price_and_time() -> None:
    sale = make_sale()
    entries = entries_for(sale, 3)
    verdict = write(sale, entries)
    assert (verdict.done, verdict.releases) == (entries, [])
    for entry in entries:
        order = VoucherOrder.objects.get(pk=entry.order_id)
        assert ReceiptRow.unpack(verdict.rows[order.pk]) == read_receipt_row(order_id=order.pk)
        assert (order.user_id, order.unit, order.seckill_voucher_id) == (entry.user_id, 1, sale.pk)
        assert (order.status, order.live, order.reason) == ("unpaid", True, "")
        assert order.price_cents == PRICE_CENTS
        assert int(order.accepted_at.timestamp() * 1000) == entry.accepted_at_ms
    sale.refresh_from_db()
    assert sale.sold == 3


def test_writers_fencing_token_is_kept_in_the_row() -> None:
    sale = make_sale()
    token = sale.fence + 5
    write(sale, entries_for(sale, 1), fencing_token=token)
    sale.refresh_from_db()
    assert sale.fence == token


def test_last_entries_are_refused_as_sold_out() -> None:
    sale = make_sale(stock=2)
    entries = entries_for(sale, 4)
    verdict = write(sale, entries)
    assert verdict.done == entries[:2]
    assert verdict.releases == [Release(entry, "sold_out") for entry in entries[2:]]
    assert verdict.sold_out_early
    assert live_ids(sale) == [1_001, 1_002]
    assert refusals_of(sale) == {1_003: "sold_out", 1_004: "sold_out"}
    sale.refresh_from_db()
    assert sale.sold == 2


def test_second_order_is_refused_with_the_first() -> None:
    sale, buyer = make_sale(), make_buyer()
    held = make_order(sale, buyer)
    entry = an_entry(sale, buyer.pk, order_id=1_001)
    verdict = write(sale, [entry])
    assert verdict.releases == [Release(entry, "already_ordered", held.pk)]
    assert not verdict.sold_out_early
    assert refusals_of(sale) == {1_001: "already_ordered"}


def test_two_entries_of_one_unit_make_one_order() -> None:
    sale, buyer = make_sale(), make_buyer()
    first, second = (an_entry(sale, buyer.pk, order_id=order_id) for order_id in (1_001, 1_002))
    verdict = write(sale, [first, second])
    assert verdict.done == [first]
    assert verdict.releases == [Release(second, "already_ordered", 1_001)]


def test_each_unit_of_a_buyer_is_an_order() -> None:
    sale, buyer = make_sale(limit=3), make_buyer()
    entries = [an_entry(sale, buyer.pk, order_id=1_000 + unit, unit=unit) for unit in (1, 2, 3)]
    assert write(sale, entries).done == entries
    assert live_ids(sale) == [1_001, 1_002, 1_003]


def test_closed_account_is_refused() -> None:
    sale, buyer = make_sale(), make_buyer()
    buyer.is_active = False
    buyer.save()
    entry = an_entry(sale, buyer.pk, order_id=1_001)
    assert write(sale, [entry]).releases == [Release(entry, "inactive_buyer")]
    assert refusals_of(sale) == {1_001: "inactive_buyer"}


def test_deleted_account_is_refused_without_a_buyer() -> None:
    sale, buyer = make_sale(), make_buyer()
    entry = an_entry(sale, buyer.pk, order_id=1_001)
    buyer.delete()
    for _ in range(2):  # written, then found written
        assert write(sale, [entry]).releases == [Release(entry, "inactive_buyer")]
    order = VoucherOrder.objects.get(pk=1_001)
    assert (order.user_id, order.reason, order.live) == (None, "inactive_buyer", None)


def test_whole_batch_can_be_refused() -> None:
    sale = make_sale()
    entries = entries_for(sale, 2)
    verdict = write(sale, entries, refuse_as=RefusalReason.FAILED)
    assert verdict.releases == [Release(entry, "failed") for entry in entries]
    sale.refresh_from_db()
    assert sale.sold == 0


# --- Who has had an order ------------------------------------------------------------------------

OVER = [OrderStatus.CANCELLED, OrderStatus.EXPIRED, OrderStatus.REFUNDED]


@pytest.mark.parametrize("status", OVER)
def test_ended_order_bars_another_without_rebuy(status: OrderStatus) -> None:
    sale, (once, new) = make_sale(rebuy=False), make_buyers(2)
    make_order(sale, once, status=status)
    barred, entry = (
        an_entry(sale, buyer.pk, order_id=1_001 + n) for n, buyer in enumerate((once, new))
    )
    verdict = write(sale, [barred, entry])
    assert verdict.releases == [Release(barred, "already_ordered")]
    assert verdict.done == [entry]
    assert refusals_of(sale) == {1_001: "already_ordered"}
    sale.refresh_from_db()
    assert sale.sold == 1


@pytest.mark.parametrize("status", OVER)
def test_ended_order_bars_nobody_with_rebuy(status: OrderStatus) -> None:
    sale, buyer = make_sale(rebuy=True), make_buyer()
    make_order(sale, buyer, status=status)
    entry = an_entry(sale, buyer.pk, order_id=1_001)
    assert write(sale, [entry]).done == [entry]


@pytest.mark.parametrize("reason", slow_after(1, [it.value for it in RefusalReason]))
def test_refused_order_does_not_bar(reason: str) -> None:
    sale, buyer = make_sale(rebuy=False), make_buyer()
    make_order(sale, buyer, status=OrderStatus.REFUSED, reason=reason)
    entry = an_entry(sale, buyer.pk, order_id=1_001)
    assert write(sale, [entry]).done == [entry]


def test_live_or_other_sales_order_does_not_bar() -> None:
    sale, other, buyer = make_sale(rebuy=False, limit=2), make_sale(rebuy=False), make_buyer()
    make_order(other, buyer, status=OrderStatus.CANCELLED)
    make_order(sale, buyer, unit=1)
    entry = an_entry(sale, buyer.pk, order_id=1_001, unit=2)
    assert write(sale, [entry]).done == [entry]


def test_barred_buyer_is_told_the_live_order() -> None:
    sale, buyer = make_sale(rebuy=False), make_buyer()
    make_order(sale, buyer, status=OrderStatus.CANCELLED)
    held = make_order(sale, buyer)
    entry = an_entry(sale, buyer.pk, order_id=1_001)
    assert write(sale, [entry]).releases == [Release(entry, "already_ordered", held.pk)]


def test_order_written_before_an_end_is_reported_done() -> None:
    sale, buyer = make_sale(rebuy=False), make_buyer()
    entry = an_entry(sale, buyer.pk, order_id=1_001)
    write(sale, [entry])
    make_order(sale, buyer, status=OrderStatus.CANCELLED)
    assert write(sale, [entry]).done == [entry]


# --- Time to pay, and history --------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [60, 900, 7 * 24 * 3600])
def test_payment_deadline_counts_from_writing(seconds: int) -> None:
    sale, allowed = make_sale(pay_within_s=seconds), dt.timedelta(seconds=seconds)
    before = timezone.now()
    write(sale, entries_for(sale, 2))
    after = timezone.now()
    for order in VoucherOrder.objects.all():
        assert order.pay_by is not None
        assert before + allowed <= order.pay_by <= after + allowed


def history() -> list[tuple[Any, ...]]:
    """Return every change of every order's state, without its time."""
    columns = ("order_id", "before", "after", "actor_kind", "actor_id", "reason", "notified_at")
    return list(OrderEvent.objects.order_by("order_id", "pk").values_list(*columns))


def test_history_starts_with_the_written_state() -> None:
    sale = make_sale(stock=1)
    before = timezone.now()
    write(sale, entries_for(sale, 2))
    assert history() == [
        (1_001, "", "unpaid", "system", None, "", None),
        (1_002, "", "refused", "system", None, "", None),
    ]
    for event in OrderEvent.objects.all():
        assert before <= event.at <= timezone.now()


# --- The batch's number ---------------------------------------------------------------------------


def test_last_batch_number_is_kept_in_the_row() -> None:
    sale = make_sale()
    write(sale, entries_for(sale, 1), number=3)
    sale.refresh_from_db()
    assert sale.batch == 3


@pytest.mark.parametrize("number", [2, 3])
def test_stale_batch_number_writes_nothing(number: int) -> None:
    """A ledger that gives a used number is older than the row."""
    sale = make_sale()
    write(sale, entries_for(sale, 1), number=3)
    before = rows()
    with pytest.raises(StaleBatchNumber):
        write(sale, entries_for(sale, 1, first_id=2_001), number=number)
    assert rows() == before


# --- Replay --------------------------------------------------------------------------------------


def test_repeated_batch_reports_the_same_and_writes_nothing() -> None:
    sale = make_sale(stock=2)
    buyers = make_buyers(3)
    buyers[1].is_active = False
    buyers[1].save()
    entries = [an_entry(sale, buyer.pk, order_id=1_001 + n) for n, buyer in enumerate(buyers)]
    fence = sale.fence + 1
    first = write(sale, entries, fencing_token=fence)
    before = rows()
    again = write(sale, entries, fencing_token=fence)
    assert (again.done, again.releases) == (first.done, first.releases)
    assert again.rows == {}  # by now they may say something else
    assert rows() == before


def test_repeated_batch_still_reports_sold_out() -> None:
    """After a crash between commit and release the next pass has to correct the total."""
    sale = make_sale(stock=1)
    entries = entries_for(sale, 2)
    assert write(sale, entries).sold_out_early
    assert write(sale, entries).sold_out_early


def test_repeated_refusal_still_names_the_holder() -> None:
    """After a crash between commit and release the next pass must not free a live order's field."""
    sale, buyer = make_sale(), make_buyer()
    held = make_order(sale, buyer)
    entry = an_entry(sale, buyer.pk, order_id=1_001)
    write(sale, [entry])
    assert write(sale, [entry]).releases == [Release(entry, "already_ordered", held.pk)]


def test_repeated_entry_of_ended_order_is_reported_ended() -> None:
    sale, buyer = make_sale(), make_buyer()
    order = make_order(sale, buyer, status=OrderStatus.CANCELLED)
    entry = an_entry(sale, buyer.pk, order_id=order.pk)
    assert write(sale, [entry]).releases == [Release(entry, "cancelled", had_order=True)]


def test_other_buyers_order_id_raises_and_writes_nothing() -> None:
    sale, (owner, other) = make_sale(), make_buyers(2)
    make_order(sale, owner, order_id=1_001)
    before = rows()
    with pytest.raises(OrderIdTaken):
        write(sale, [*entries_for(sale, 1, first_id=999), an_entry(sale, other.pk, order_id=1_001)])
    assert rows() == before


def test_other_sales_order_id_raises() -> None:
    sale, other, buyer = make_sale(), make_sale(), make_buyer()
    make_order(other, buyer, order_id=1_001)
    with pytest.raises(OrderIdTaken):
        write(sale, [an_entry(sale, buyer.pk, order_id=1_001)])


# --- Fence and lock ------------------------------------------------------------------------------


def test_stale_fencing_token_writes_nothing() -> None:
    sale = make_sale()
    entries = entries_for(sale, 2)
    before = rows()
    with pytest.raises(StaleFence) as caught:
        write(sale, entries, fencing_token=sale.fence - 1)
    assert caught.value.stored == sale.fence
    assert rows() == before


def test_last_fencing_token_may_write_again() -> None:
    sale = make_sale()
    fence = sale.fence + 3
    write(sale, entries_for(sale, 1), fencing_token=fence)
    write(sale, entries_for(sale, 1, first_id=2_001), fencing_token=fence)
    with pytest.raises(StaleFence):
        write(sale, entries_for(sale, 1, first_id=3_001), fencing_token=fence - 1)
    assert live_ids(sale) == [1_001, 2_001]


def test_lock_lost_before_commit_rolls_back() -> None:
    sale = make_sale(stock=1)
    entries = entries_for(sale, 2)
    before = rows()
    seen = []

    def lost() -> bool:
        seen.append(VoucherOrder.objects.count())  # asked last, after everything is written
        return True

    with pytest.raises(LockLost):
        write(sale, entries, lost=lost)
    assert seen == [2]
    assert rows() == before


def test_batch_of_missing_sale_raises_by_name() -> None:
    sale = make_sale()
    entries = entries_for(sale, 1)
    missing = SeckillVoucher(pk=sale.pk + 1)
    with pytest.raises(SeckillVoucher.DoesNotExist):
        write(missing, entries)


# --- Statements ----------------------------------------------------------------------------------

THE_STATEMENTS = [
    f"SELECT {SALE} FOR UPDATE",
    f"SELECT {ORDERS}",  # by id: what is done already
    f"SELECT {ORDERS}",  # live: who has ordered
    f"SELECT {USERS}",  # who is active
    "INSERT vouchers_chainlink",  # the head over the batch
    "SELECT vouchers_voucher",  # the price
    f"INSERT {ORDERS}",
    f"INSERT {EVENTS}",  # the history of each begins
    f"UPDATE {SALE}",
]


def statements_of(work: Callable[[], Any]) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        work()
    return statements(captured.captured_queries)


@pytest.mark.parametrize(("size", "stock"), [(1, 1), (200, 200), (1, 0), (200, 100)])
def test_statements_grow_neither_with_the_batch_nor_with_refusals(size: int, stock: int) -> None:
    sale = make_sale(stock=stock)
    entries = entries_for(sale, size)
    assert statements_of(lambda: write(sale, entries)) == THE_STATEMENTS


@pytest.mark.parametrize("size", [2, 200])
def test_barring_takes_as_many_statements(size: int) -> None:
    sale = make_sale(stock=size, rebuy=False)
    entries = entries_for(sale, size)
    for entry in entries[::2]:
        make_order(sale, User.objects.get(pk=entry.user_id), status=OrderStatus.CANCELLED)
    assert statements_of(lambda: write(sale, entries)) == THE_STATEMENTS
    assert len(live_ids(sale)) == size // 2


def test_written_batch_inserts_nothing() -> None:
    sale = make_sale()
    entries = entries_for(sale, 10)
    write(sale, entries)
    expected = [*THE_STATEMENTS[:4], THE_STATEMENTS[-1]]
    assert statements_of(lambda: write(sale, entries)) == expected


@pytest.mark.django_db(transaction=True)
def test_sale_row_is_locked_first_in_one_transaction() -> None:
    sale = make_sale()
    entries = entries_for(sale, 2)
    with CaptureQueriesContext(connection) as captured:
        write(sale, entries)
    own = [query["sql"] for query in captured.captured_queries]
    first = next(sql for sql in own if sql.split(" ")[0] not in ("BEGIN", "SET"))
    assert first.startswith("SELECT")
    assert "FOR UPDATE" in first
    assert f"`{SALE}`" in first
    assert own[-1] == "COMMIT"
    assert own.count("COMMIT") == 1
    assert not any(sql.startswith("SAVEPOINT") for sql in own)


@pytest.mark.django_db(transaction=True)
def test_batch_inside_a_transaction_is_refused() -> None:
    sale = make_sale()
    entries = entries_for(sale, 1)
    with pytest.raises(RuntimeError), transaction.atomic():
        write(sale, entries)


# --- Guards and their controls -------------------------------------------------------------------


class MeetingPoint:
    """Where two writers wait for each other after a step, and then write one after the other.

    If a guard keeps the second one away, the first continues alone after ``patience_s``. A control,
    in which both must meet, is given more than enough.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._barrier = threading.Barrier(2)
        self._order = iter((1, 2))
        self._guard = threading.Lock()
        self._first_is_done = threading.Event()
        self._mine = threading.local()

    def meet(self) -> None:
        try:
            self._barrier.wait(timeout=self._patience_s)
        except threading.BrokenBarrierError:
            return
        with self._guard:
            self._mine.turn = next(self._order)
        if self._mine.turn == 2:
            assert self._first_is_done.wait(timeout=GENEROUS_S)

    def leave(self) -> None:
        if getattr(self._mine, "turn", None) == 1:
            self._first_is_done.set()


def two_writers(
    sale: SeckillVoucher, batches: Sequence[Sequence[PendingEntry]], meeting: MeetingPoint
) -> list[Any]:
    def writer(entries: Sequence[PendingEntry]) -> Callable[[], BatchOutcome]:
        def run() -> BatchOutcome:
            try:
                return write(sale, entries)
            finally:
                meeting.leave()

        return run

    return at_once(*map(writer, batches))


def with_meeting(step: Callable[..., Any], meeting: MeetingPoint) -> Callable[..., Any]:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = step(*args, **kwargs)
        meeting.meet()
        return result

    return wrapped


def plain_read(*, sale_id: int) -> SeckillVoucher:
    """Read the sale as ``lock_seckill_voucher`` does, without the lock."""
    sale = SeckillVoucher.objects.get(pk=sale_id)
    sale.locked_at = database_now()
    return sale


@race
def test_two_writers_sell_the_last_unit_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sale, meeting = make_sale(stock=1), MeetingPoint(patience_s=0.5)
    monkeypatch.setattr(batch, "lock_seckill_voucher", with_meeting(lock_seckill_voucher, meeting))
    batches = [entries_for(sale, 1, first_id=1_001), entries_for(sale, 1, first_id=2_001)]
    verdicts = two_writers(sale, batches, meeting)
    assert sorted(len(verdict.done) for verdict in verdicts) == [0, 1]
    assert len(live_ids(sale)) == 1
    assert list(refusals_of(sale).values()) == ["sold_out"]


@race
def test_control_without_row_lock_last_unit_sells_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    sale, meeting = make_sale(stock=1), MeetingPoint(patience_s=GENEROUS_S)
    monkeypatch.setattr(chain, "has_chain", lambda _: False)  # its numbers are a guard, too
    monkeypatch.setattr(batch, "lock_seckill_voucher", with_meeting(plain_read, meeting))
    batches = [entries_for(sale, 1, first_id=1_001), entries_for(sale, 1, first_id=2_001)]
    verdicts = two_writers(sale, batches, meeting)
    assert [len(verdict.done) for verdict in verdicts] == [1, 1]
    assert live_ids(sale) == [1_001, 2_001], "the control did not show the race"
    sale.refresh_from_db()
    assert (sale.sold, sale.stock) == (1, 1)


@race
def test_without_row_lock_unique_key_refuses_second_order(monkeypatch: pytest.MonkeyPatch) -> None:
    sale, buyer, meeting = make_sale(), make_buyer(), MeetingPoint(patience_s=GENEROUS_S)
    monkeypatch.setattr(chain, "has_chain", lambda _: False)  # its numbers are a guard, too
    monkeypatch.setattr(batch, "lock_seckill_voucher", plain_read)
    monkeypatch.setattr(batch, "_read", with_meeting(batch._read, meeting))
    batches = [[an_entry(sale, buyer.pk, order_id=order_id)] for order_id in (1_001, 1_002)]
    outcomes = two_writers(sale, batches, meeting)
    (refused,) = (outcome for outcome in outcomes if not isinstance(outcome, BatchOutcome))
    assert isinstance(refused, IntegrityError)
    assert "order_one_live_per_buyer_unit" in str(refused)
    assert len(live_ids(sale)) == 1


# --- The first sell-out ---------------------------------------------------------------------------


def sold_out_ms(sale: SeckillVoucher) -> int | None:
    sale.refresh_from_db()
    return epoch_ms(sale.sold_out_at) if sale.sold_out_at else None


def taken_at(sale: SeckillVoucher, count: int, *, first_id: int, ms: int) -> BatchOutcome:
    """Write entries that were accepted from this time on, one each millisecond."""
    entries = [
        replace(it, accepted_at_ms=ms + n)
        for n, it in enumerate(entries_for(sale, count, first_id=first_id))
    ]
    return write(sale, entries)


def test_first_sell_out_is_when_the_last_unit_was_accepted() -> None:
    sale, ms = make_sale(stock=3), 1_790_000_000_000
    taken_at(sale, 2, first_id=1, ms=ms)
    assert sold_out_ms(sale) is None
    taken_at(sale, 4, first_id=11, ms=ms + 500)
    assert sold_out_ms(sale) == ms + 500, "the refused ones came later"


def test_first_sell_out_stays_when_stock_is_added() -> None:
    sale, ms = make_sale(stock=2), 1_790_000_000_000
    taken_at(sale, 2, first_id=1, ms=ms)
    first = sold_out_ms(sale)
    edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), stock=4))
    assert sold_out_ms(sale) == first
    taken_at(sale, 2, first_id=11, ms=ms + 60_000)
    assert sold_out_ms(sale) == first == ms + 1


def test_stock_lowered_to_what_is_sold_sells_out_now() -> None:
    sale = make_sale(stock=5)
    taken_at(sale, 2, first_id=1, ms=1_790_000_000_000)
    before = database_now()
    edit_sale(sale_id=sale.pk, terms=replace(terms_of(sale), stock=2))
    sale.refresh_from_db()
    assert sale.sold_out_at
    assert before <= sale.sold_out_at <= database_now()


def test_all_or_none_holds_for_units_apart() -> None:
    sale = make_sale(stock=2, limit=4)
    first = mint_order_ids(count=1, blocks=True)[0]
    buyer, other = make_buyers(2)
    ids = [first, *further_ids(first, quantity=3, all_or_none=True)]
    units = [an_entry(sale, buyer.pk, order_id=it, unit=n) for n, it in enumerate(ids, start=1)]
    between = an_entry(sale, other.pk, order_id=1_001)
    write(sale, [*units[:2], between, units[2]])
    assert live_ids(sale) == [between.order_id]
    assert refusals_of(sale) == dict.fromkeys(ids, "sold_out")


# --- The chain ------------------------------------------------------------------------------------


def checked(sale: SeckillVoucher, *old_heads: str) -> int:
    """Return the number of orders in a chain that is right."""
    sale.refresh_from_db()
    chain, problems = check_rows(sale)
    assert [*problems, *chain.problems(old_heads=old_heads)] == []
    return chain.entries


def chain_of(sale: SeckillVoucher) -> tuple[str, int, int]:
    sale.refresh_from_db()
    return sale.chain_head, sale.chain_links, sale.chain_entries


def test_repeated_batch_adds_nothing_to_the_chain() -> None:
    sale = make_sale()
    entries = entries_for(sale, 3)
    write(sale, entries[:2])
    before = chain_of(sale)
    write(sale, entries[:2])
    assert chain_of(sale) == before
    write(sale, entries)
    assert chain_of(sale)[2] == 3
    assert checked(sale, before[0]) == 3


def test_control_write_adds_nothing_to_the_chain() -> None:
    sale = make_sale()
    write(sale, entries_for(sale, 2))
    before = chain_of(sale)
    batch.write_control(
        sale_id=sale.pk, fencing_token=sale.fence + 1, number=AboveAny(1), lost=lambda: False
    )
    assert chain_of(sale) == before
    assert checked(sale) == 2


@pytest.mark.django_db(transaction=True)
def test_link_is_written_with_its_batch_or_not_at_all() -> None:
    sale = make_sale()
    before = chain_of(sale)
    with pytest.raises(LockLost):
        write(sale, entries_for(sale, 2), lost=lambda: True)
    assert chain_of(sale) == before
    assert sale.links.count() == before[1]


@race
def test_batches_at_once_make_one_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    sale, meeting = make_sale(), MeetingPoint(patience_s=0.5)
    monkeypatch.setattr(batch, "lock_seckill_voucher", with_meeting(lock_seckill_voucher, meeting))
    two_writers(sale, [entries_for(sale, 2), entries_for(sale, 2, first_id=2_001)], meeting)
    assert checked(sale) == 4


@race
def test_control_without_row_lock_the_chain_would_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    sale, meeting = make_sale(), MeetingPoint(patience_s=GENEROUS_S)
    monkeypatch.setattr(batch, "lock_seckill_voucher", with_meeting(plain_read, meeting))
    batches = [entries_for(sale, 2), entries_for(sale, 2, first_id=2_001)]
    (refused,) = (it for it in two_writers(sale, batches, meeting) if isinstance(it, Exception))
    assert isinstance(refused, IntegrityError)
    assert "chain_one_link_per_number" in str(refused)
