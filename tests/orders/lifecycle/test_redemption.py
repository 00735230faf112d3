"""Redeeming: a code may be typed in any spelling and is accepted once."""

from __future__ import annotations

import datetime as dt
import secrets
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.utils import timezone
from redis import Redis

from orders.lifecycle.guesses import GuessesUnknown, TooManyGuesses, counted_guess
from orders.lifecycle.redemption import (
    GUESSES,
    UNDO_WITHIN,
    NoSuchCode,
    NotRedeemable,
    NotUndoable,
    OtherMerchant,
    PastValidity,
    Redeemable,
    Redeemed,
    find_by_code,
    read_code,
    redeem,
    undo,
    uses_on,
    written_code,
)
from orders.lifecycle.transitions import Actor, Change, change_order
from orders.models import CODE_ALPHABET, CODE_LENGTH, OrderEvent, OrderStatus, Payment, VoucherOrder
from orders.payments.providers import ChargeState, Statement
from orders.payments.refunds import note_standing
from tests.support.inspection import rows
from tests.support.orders import at_once, make_buyer, make_order, make_sale
from tests.support.tiers import slow_after
from vouchers.models import Merchant, SeckillVoucher, Voucher

pytestmark = pytest.mark.django_db

CODE = "AB01CDEF0V1TVWXY"
NOW = dt.datetime(2026, 11, 11, 12, 0, 20, tzinfo=dt.UTC)


def with_code(
    code: str = CODE, status: OrderStatus = OrderStatus.PAID, buyer: User | None = None
) -> VoucherOrder:
    order = make_order(make_sale(loaded=False), buyer or make_buyer(), status=status)
    VoucherOrder.objects.filter(pk=order.pk).update(code=code)
    return order


def clerk(name: str = "clerk") -> User:
    return User.objects.create(username=name, password="!", is_staff=True)


def events(order: VoucherOrder) -> list[tuple[str, str, str, int | None]]:
    found = OrderEvent.objects.filter(order=order)
    return list(found.values_list("before", "after", "actor_kind", "actor"))


# --- Reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "typed",
    slow_after(
        2,
        [
            CODE,
            "AB01-CDEF-0V1T-VWXY",
            "ab01 cdef 0v1t vwxy",
            "  aB01--CdeF 0v1t\tvwxy\n",
            "ABO1-CDEF-OV1T-VWXY",
            "ABOI-CDEF-OVLT-VWXY",
            "aboi cdef oult uwxy",
            "AB01–CDEF—0V1T−VWXY",  # the dashes of phones
            "AB01\u00a0CDEF\u20090V1T\u3000VWXY",  # their spaces
            "ＡＢ０１－ＣＤＥＦ－０Ｖ１Ｔ－ＶＷＸＹ",  # a Chinese keyboard's full width
            "AB01.CDEF.0V1T.VWXY",
            "https://shop.example/staff/redeem/?code=AB01-CDEF-0V1T-VWXY",
            "https://shop.example/staff/redeem/#code=AB01-CDEF-0V1T-VWXY",
        ],
    ),
)
def test_code_may_be_typed_in_any_spelling(typed: str) -> None:
    assert read_code(typed) == CODE
    order = with_code()
    assert find_by_code(code=typed).order == order


def test_displayed_code_can_be_read() -> None:
    for _ in range(50):
        code = "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_LENGTH))
        shown = written_code(code)
        assert [len(group) for group in shown.split("-")] == [4, 4, 4, 4]
        assert read_code(shown) == read_code(shown.lower()) == code


@pytest.mark.parametrize(
    "typed",
    slow_after(
        1,
        ["", " ", "-", "%", "_" * 16, "AB01", CODE[:-1], CODE + "0", "9" * 5000, "\0", "é🙂", "٣"],
    ),
)
def test_malformed_code_is_unknown(typed: str) -> None:
    make_order(make_sale(loaded=False), make_buyer())  # which has no code
    with_code()
    with_code(code="X" * CODE_LENGTH)
    with pytest.raises(NoSuchCode):
        find_by_code(code=typed)
    with pytest.raises(NoSuchCode):
        redeem(code=typed, by=Actor.staff(None), now=timezone.now())


# --- Redeeming -----------------------------------------------------------------------------------


def test_redeeming_is_recorded_with_actor_and_time() -> None:
    order, staff, before = with_code(), clerk(), timezone.now()
    assert find_by_code(code=CODE).may_be_used
    found, repeated = redeem(code=CODE, by=Actor.staff(staff.pk), now=timezone.now())
    assert not repeated
    assert found.order.status == OrderStatus.USED
    assert not found.may_be_used
    assert found.last_event
    assert found.last_event.actor == staff
    assert before <= found.last_event.at <= timezone.now()
    assert events(order) == [("paid", "used", "staff", staff.pk)]


@pytest.mark.parametrize(
    "status", slow_after(1, sorted(set(OrderStatus.values) - {"paid", "refused"}))
)
def test_only_paid_vouchers_are_redeemed(status: str) -> None:
    with_code(status=OrderStatus(status))
    before = rows()
    with pytest.raises(NotRedeemable) as refused:
        redeem(code=CODE, by=Actor.staff(clerk().pk), now=timezone.now())
    assert refused.value.redeemable.order.status == status
    assert rows() == before


@pytest.mark.parametrize("settles", [True, False])
def test_dispute_blocks_the_code_that_it_paid_for(settles: bool) -> None:
    """The other payment came late, and went back."""
    order = with_code()
    Payment.objects.create(
        order=order, reference="disputed", amount_cents=1, status="disputed", settles=settles
    )
    assert find_by_code(code=CODE).may_be_used is not settles
    if settles:
        with pytest.raises(NotRedeemable):
            redeem(code=CODE, by=Actor.staff(None), now=NOW)
    else:
        assert redeem(code=CODE, by=Actor.staff(None), now=NOW).redeemable.order.status == "used"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("row_locks")
def test_concurrent_redeems_succeed_once() -> None:
    staff = [clerk("anna"), clerk("ben")]
    for _ in range(20):
        code = "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_LENGTH))
        order = with_code(code=code)
        tries = [partial(redeem, code=code, by=Actor.staff(it.pk), now=NOW) for it in staff]
        outcomes = at_once(*tries)
        winners = [it for it, what in zip(staff, outcomes, strict=True) if _won(what)]
        assert len(winners) == 1
        (loss,) = (what for what in outcomes if not _won(what))
        assert isinstance(loss, NotRedeemable)
        assert loss.redeemable.last_event
        assert loss.redeemable.last_event.actor == winners[0]
        assert events(order) == [("paid", "used", "staff", winners[0].pk)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("row_locks")
def test_control_read_then_save_redeems_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the condition in the statement both succeed."""
    meet = threading.Barrier(2, timeout=10)

    def read_then_save(change: Change, *, order_id: int, **kwargs: Any) -> None:
        order = VoucherOrder.objects.get(pk=order_id)
        meet.wait()
        assert order.status == OrderStatus.PAID
        order.status = change.to
        order.save()

    monkeypatch.setattr("orders.lifecycle.redemption.change_order", read_then_save)
    with_code()
    tries = [
        partial(redeem, code=CODE, by=Actor.staff(clerk(name).pk), now=NOW) for name in ("a", "b")
    ]
    assert all(_won(it) for it in at_once(*tries))


def _won(outcome: object) -> bool:
    return isinstance(outcome, Redeemed)


# --- One key, one use ----------------------------------------------------------------------------


def use(key: str = "", *, by: User | None = None, now: dt.datetime = NOW) -> Redeemed:
    return redeem(code=CODE, by=Actor.staff((by or clerk()).pk), now=now, key=key)


def take_back(redeemed: Redeemed, by: User, *, later: dt.timedelta = dt.timedelta()) -> Redeemable:
    event = redeemed.redeemable.use
    assert event
    return undo(event_id=event.pk, by=Actor.staff(by.pk), now=NOW + later)


def test_same_key_is_told_apart_from_a_second_use() -> None:
    order, anna, ben = with_code(), clerk("anna"), clerk("ben")
    assert not use("k1", by=anna).repeated
    assert use("k1", by=anna).repeated
    for key, by in (("k2", anna), ("", anna), ("k1", ben)):
        with pytest.raises(NotRedeemable):
            use(key, by=by)
    assert events(order) == [("paid", "used", "staff", anna.pk)]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("row_locks")
def test_same_key_at_once_uses_once() -> None:
    order, anna = with_code(), clerk()
    outcomes = at_once(*[partial(use, "k1", by=anna)] * 3)
    assert sorted(it.repeated for it in outcomes) == [False, True, True]
    assert len(events(order)) == 1


def test_key_is_spent_after_its_use_was_undone() -> None:
    order, anna = with_code(), clerk()
    take_back(use("k1", by=anna), anna)
    before = rows()
    with pytest.raises(NotRedeemable) as refused:
        use("k1", by=anna)
    assert refused.value.redeemable.may_be_used
    assert rows() == before
    assert not use("k2", by=anna).repeated
    with pytest.raises(NotRedeemable):
        use("k1", by=anna)
    assert [after for _, after, *_ in events(order)] == ["used", "paid", "used"]


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("row_locks")
def test_late_request_with_a_spent_key_uses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It looked at the voucher before the repeat redeemed it, which was then undone."""
    order, anna = with_code(), clerk()
    looked, go_on = threading.Event(), threading.Event()
    name = "orders.lifecycle.redemption.change_order"

    def wait_first(*args: Any, **options: Any) -> None:
        looked.set()
        assert go_on.wait(30)
        change_order(*args, **options)

    def overtake() -> None:
        assert looked.wait(30)
        monkeypatch.setattr(name, change_order)
        take_back(use("k1", by=anna), anna)
        go_on.set()

    monkeypatch.setattr(name, wait_first)
    late, _ = at_once(partial(use, "k1", by=anna), overtake)
    assert isinstance(late, NotRedeemable)
    assert [after for _, after, *_ in events(order)] == ["used", "paid"]


def operate(
    redeemed: Redeemed,
    by: User,
    *,
    why: str = "wrong table",
    later: dt.timedelta = dt.timedelta(),
) -> Redeemable:
    """Undo a use as an operator."""
    event = redeemed.redeemable.use
    assert event
    who, now = Actor.staff(by.pk), NOW + later
    return undo(event_id=event.pk, by=who, now=now, why=why, is_operator=True)


# --- Undoing -------------------------------------------------------------------------------------


def test_undo_is_an_event_and_makes_the_voucher_usable() -> None:
    order, anna = with_code(), clerk()
    found = take_back(use(by=anna), anna)
    assert found.may_be_used
    assert events(order)[1:] == [("used", "paid", "staff", anna.pk)]
    order.refresh_from_db()
    assert (order.status, order.live) == ("paid", True)


def test_undo_needs_an_operator_after_five_minutes() -> None:
    with_code()
    anna, ben = clerk("anna"), clerk("ben")
    used = use(by=anna)
    assert used.redeemable.use
    with pytest.raises(NotUndoable):
        take_back(used, ben)
    with pytest.raises(NotUndoable):
        take_back(used, anna, later=UNDO_WITHIN + dt.timedelta(seconds=1))
    with pytest.raises(NotUndoable):
        operate(used, ben, why="")
    operate(used, ben, later=dt.timedelta(days=9))
    event = OrderEvent.objects.latest("pk")
    assert (event.before, event.after, event.reason) == ("used", "paid", "wrong table")


def test_repeated_undo_changes_nothing() -> None:
    order, anna, ben = with_code(), clerk("anna"), clerk("ben")
    used = use(by=anna)
    take_back(used, anna)
    assert take_back(used, anna).may_be_used
    assert used.redeemable.use
    with pytest.raises(NotUndoable):
        operate(used, ben)
    assert len(events(order)) == 2


def test_undo_of_an_earlier_use_leaves_the_later_one() -> None:
    order, anna = with_code(), clerk()
    first = use(by=anna)
    take_back(first, anna)
    use(by=anna)
    before = rows()
    with pytest.raises(NotUndoable) as refused:
        take_back(first, anna)
    assert refused.value.redeemable.use
    assert rows() == before
    order.refresh_from_db()
    assert order.status == OrderStatus.USED


@pytest.mark.parametrize("status", slow_after(1, ["refunding", "refunded", "refund_failed"]))
def test_use_stays_once_its_money_went_back(status: str) -> None:
    order, anna = with_code(), clerk()
    used = use(by=anna)
    Payment.objects.create(
        order=order, reference="gone", amount_cents=1, status=status, settles=True
    )
    before = rows()
    with pytest.raises(NotUndoable):
        take_back(used, anna)
    assert rows() == before


@pytest.mark.parametrize("status", ["refunding", "refunded"])
def test_refunded_order_has_no_use_to_undo(status: str) -> None:
    order, anna = with_code(), clerk()
    used = use(by=anna)
    take_back(used, anna)
    live = True if status == "refunding" else None
    VoucherOrder.objects.filter(pk=order.pk).update(status=status, live=live)
    OrderEvent.objects.create(order=order, before="paid", after=status, at=NOW, actor_kind="system")
    with pytest.raises(NotUndoable):
        take_back(used, anna)


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("row_locks")
def test_concurrent_undos_undo_once() -> None:
    for _ in range(10):
        order, anna = with_code(), clerk()
        used = use(by=anna)
        at_once(*[partial(take_back, used, anna)] * 3)
        assert [after for _, after, *_ in events(order)] == ["used", "paid"]
        VoucherOrder.objects.filter(pk=order.pk).update(code=None)
        User.objects.filter(pk=anna.pk).update(username=f"was-{order.pk}")


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("row_locks")
def test_undo_and_refund_at_the_provider_meet_in_order() -> None:
    """Either the use stays and is not given back, or the order ends: never both for the buyer."""
    for number in range(10):
        order, anna = with_code(), clerk(f"anna{number}")
        payment = Payment.objects.create(
            order=order, reference=f"p{number}", amount_cents=8, status="paid", settles=True
        )
        used = use(by=anna)
        gone = Statement(payment.reference, ChargeState.PAID, 8, refunded_cents=8)
        at_once(partial(take_back, used, anna), partial(note_standing, payment, gone, now=NOW))
        order.refresh_from_db()
        assert order.status in (OrderStatus.USED, OrderStatus.REFUNDING)
        VoucherOrder.objects.filter(pk=order.pk).update(code=None)


# --- Merchants -----------------------------------------------------------------------------------


def test_voucher_of_another_merchant_is_refused_by_its_name() -> None:
    order = with_code()
    ours, theirs = (Merchant.objects.create(name=it) for it in ("Ours", "Theirs"))
    Voucher.objects.filter(sales=order.seckill_voucher_id).update(merchant=theirs)
    anna, only = clerk(), frozenset({ours.pk})
    used = use(by=anna)
    assert used.redeemable.use
    attempts: list[Callable[[], object]] = [
        partial(find_by_code, code=CODE, merchants=only),
        partial(redeem, code=CODE, by=Actor.staff(anna.pk), now=NOW, merchants=only),
        partial(
            undo,
            event_id=used.redeemable.use.pk,
            by=Actor.staff(anna.pk),
            now=NOW,
            merchants=only,
        ),
    ]
    before = rows()
    for attempt in attempts:
        with pytest.raises(OtherMerchant) as refused:
            attempt()
        assert refused.value.merchant == theirs
    assert rows() == before
    assert find_by_code(code=CODE, merchants=only | {theirs.pk}).order == order


def test_voucher_without_merchant_is_the_default_ones() -> None:
    order = with_code()
    Voucher.objects.filter(sales=order.seckill_voucher_id).update(merchant=None)
    first = Merchant.default()
    other = Merchant.objects.create(name="Other")
    assert find_by_code(code=CODE, merchants=frozenset({first.pk})).order == order
    with pytest.raises(OtherMerchant):
        find_by_code(code=CODE, merchants=frozenset({other.pk}))


# --- A day at the counter ------------------------------------------------------------------------


def test_day_lists_uses_with_those_undone(in_shanghai: None) -> None:
    anna, ben = clerk("anna"), clerk("ben")
    midnight = dt.datetime(2026, 11, 10, 16, tzinfo=dt.UTC)
    second = dt.timedelta(seconds=1)
    for code, by, at in (
        ("A" * 16, anna, midnight - second),
        ("B" * 16, anna, midnight),
        ("C" * 16, ben, midnight),
        ("D" * 16, anna, midnight + dt.timedelta(days=1) - second),
    ):
        with_code(code)
        used = redeem(code=code, by=Actor.staff(by.pk), now=at)
    last = used.redeemable.use
    assert last
    undo(event_id=last.pk, by=Actor.staff(anna.pk), now=last.at)
    day = dt.date(2026, 11, 11)
    listed = [(it.order.code, it.actor_id, it.undone) for it in uses_on(day)]
    assert listed == [
        ("D" * 16, anna.pk, True),
        ("C" * 16, ben.pk, False),
        ("B" * 16, anna.pk, False),
    ]


# --- Guessing ------------------------------------------------------------------------------------


def guess(user_id: int = 1, *, now: dt.datetime = NOW, right: bool = False) -> None:
    with counted_guess(GUESSES, user_id=user_id, now=now):
        if not right:
            raise NoSuchCode


def wrong(count: int, **options: Any) -> None:
    for _ in range(count):
        with pytest.raises(NoSuchCode):
            guess(**options)


def test_wrong_codes_are_limited_per_minute() -> None:
    wrong(GUESSES.most)
    with pytest.raises(TooManyGuesses) as refused:
        guess(right=True)
    assert refused.value.retry_after_s == 40
    guess(now=NOW + dt.timedelta(seconds=40), right=True)


def test_valid_codes_do_not_count() -> None:
    for _ in range(2 * GUESSES.most):
        guess(right=True)
    wrong(GUESSES.most)


def test_unredeemable_valid_code_does_not_count() -> None:
    for _ in range(GUESSES.most + 5):
        with pytest.raises(ZeroDivisionError), counted_guess(GUESSES, user_id=1, now=NOW):
            raise ZeroDivisionError


def test_guesses_are_counted_per_account() -> None:
    wrong(GUESSES.most, user_id=1)
    guess(2, right=True)


def test_concurrent_guesses_are_limited_too() -> None:
    outcomes = at_once(*[guess] * (GUESSES.most + 10))
    kinds = [type(it) for it in outcomes]
    assert kinds.count(NoSuchCode) == GUESSES.most
    assert kinds.count(TooManyGuesses) == 10


@pytest.mark.slow
def test_guess_count_expires(redis_databases: list[Redis]) -> None:
    wrong(1)
    _, cached, _ = redis_databases
    (key,) = cached.keys("*redeem-wrong*")
    assert 0 < cached.ttl(key) <= 2 * GUESSES.window_s


@pytest.mark.slow
def test_without_cache_no_code_is_checked(lose_cache: Callable[[], None]) -> None:
    lose_cache()
    with pytest.raises(GuessesUnknown):
        guess(right=True)


def test_cache_loss_during_a_guess_is_harmless() -> None:
    with counted_guess(GUESSES, user_id=1, now=NOW):
        cache.clear()
    wrong(GUESSES.most)


@pytest.fixture
def lose_cache(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function that takes the cache away."""
    return partial(lose_the_cache, monkeypatch)


def lose_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = cache.client  # type: ignore[attr-defined]
    nowhere = Redis(port=1)
    monkeypatch.setattr(type(client), "get_client", lambda self, *args, **options: nowhere)


# --- Past the last day ---------------------------------------------------------------------------


def past_its_day(*, last_day: dt.date, refund_unused: bool = False) -> VoucherOrder:
    order = with_code()
    SeckillVoucher.objects.update(refund_unused=refund_unused)
    Voucher.objects.filter(sales=order.seckill_voucher_id).update(valid_until=last_day)
    return order


def test_voucher_is_valid_until_the_end_of_its_last_day(in_shanghai: None) -> None:
    order = past_its_day(last_day=dt.date(2026, 11, 11))
    just_before_midnight = dt.datetime(2026, 11, 11, 15, 59, 59, tzinfo=dt.UTC)
    assert not find_by_code(code=CODE).is_past(just_before_midnight)
    assert find_by_code(code=CODE).is_past(just_before_midnight + dt.timedelta(seconds=1))
    redeem(code=CODE, by=Actor.staff(clerk().pk), now=just_before_midnight)
    order.refresh_from_db()
    assert order.status == OrderStatus.USED


def test_past_voucher_is_not_redeemed_without_a_reason() -> None:
    past_its_day(last_day=dt.date(2026, 11, 10))
    before = rows()
    with pytest.raises(PastValidity):
        redeem(code=CODE, by=Actor.staff(clerk().pk), now=NOW)
    assert rows() == before


def test_exception_for_a_past_voucher_keeps_its_reason() -> None:
    order = past_its_day(last_day=dt.date(2026, 11, 10))
    redeem(code=CODE, by=Actor.staff(clerk().pk), now=NOW, why="train was late")
    event = OrderEvent.objects.get(order=order)
    assert (event.after, event.reason) == (OrderStatus.USED, "train was late")


@pytest.mark.parametrize("why", ["", "train was late"])
def test_voucher_that_is_refunded_by_itself_has_no_exception(why: str) -> None:
    past_its_day(last_day=dt.date(2026, 11, 10), refund_unused=True)
    before = rows()
    with pytest.raises(PastValidity):
        redeem(code=CODE, by=Actor.staff(clerk().pk), now=NOW, why=why)
    assert rows() == before


def test_past_and_used_voucher_was_used_before() -> None:
    order = past_its_day(last_day=dt.date(2026, 11, 10))
    VoucherOrder.objects.filter(pk=order.pk).update(status=OrderStatus.USED)
    with pytest.raises(NotRedeemable):
        redeem(code=CODE, by=Actor.staff(clerk().pk), now=NOW)
