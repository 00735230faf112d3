"""Places in line: the arithmetic of a waiting room, and the script that gives places."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from seckill_site.clocks.ledger import learn_ledger_time
from seckill_site.process_memory import forget_everything
from seckill_site.redis.ledger_connection import ledger_connection
from tests.fixtures.vouchers import DropGuard, Dump
from tests.support.rooms import (
    HALF,
    OPENED_MS,
    change_room,
    open_room,
    place_at,
    signed,
    visit,
)
from tests.support.sales import change_state, make_sale, open_ledger, redis_now_ms, reserve
from vouchers.inventory import holdings
from vouchers.inventory.holdings import Holding, add_buyers
from vouchers.inventory.keys import LedgerKeys, LedgerUnavailable
from vouchers.inventory.sale_state import snapshot
from vouchers.inventory.waiting_room import (
    PLACE_KEPT_MS,
    Line,
    Place,
    PlaceState,
    RoomTerms,
    SignedPlace,
    Visitor,
    read_line,
    read_place,
    recall_line,
    remember_line,
    slower,
    visit_args,
)
from vouchers.models import RoomKind

quick = pytest.mark.quick
SLOW = RoomTerms(OPENED_MS, rate=10, base=100, since_ms=50_000)
DAY_MS = 24 * 3600 * 1000
LARGEST_DRAW = 2**32 - 1


# --- arithmetic -----------------------------------------------------------------------------------


@quick
@pytest.mark.parametrize(
    ("now_ms", "passed", "head"),
    [(0, 100, 100), (49_999, 100, 100), (50_000, 100, 110), (50_099, 100, 110), (50_100, 101, 111)],
)
def test_head_moves_by_the_rate_from_since_on(now_ms: int, passed: int, head: int) -> None:
    assert (SLOW.passed(now_ms), SLOW.head(now_ms)) == (passed, head)


@quick
def test_paused_room_stands_still_and_names_no_wait() -> None:
    paused = replace(SLOW, rate=0)

    assert {paused.passed(it) for it in (0, 50_000, DAY_MS)} == {100}
    assert {paused.head(it) for it in (0, 50_000, DAY_MS)} == {100}
    assert (paused.wait_ms(101, 60_000), paused.wait_ms(100, 60_000)) == (None, 0)


@quick
@pytest.mark.parametrize("number", [1, 110, 111, 115, 120, 1_000, 123_456])
@pytest.mark.parametrize("now_ms", [0, 49_000, 50_000, 50_700, 61_234])
def test_wait_is_exactly_until_the_head_arrives(number: int, now_ms: int) -> None:
    wait_ms = SLOW.wait_ms(number, now_ms)

    assert wait_ms is not None
    assert number <= SLOW.head(now_ms + wait_ms)
    assert wait_ms == 0 or number > SLOW.head(now_ms + wait_ms - 1)


@quick
@pytest.mark.parametrize(
    "terms", [SLOW, replace(SLOW, shuffled=True), replace(SLOW, rate=0), RoomTerms(1, 2, 3, 4)]
)
def test_terms_survive_as_one_word(terms: RoomTerms) -> None:
    assert RoomTerms.parse(terms.word()) == terms


@quick
@pytest.mark.parametrize(
    "word", ["", "1:2:3:4", "1:2:3:4:x", "1:2:3:4:a ", "1:-2:3:4:a", "١:2:3:4:a"]
)
def test_other_words_are_no_terms(word: str) -> None:
    assert RoomTerms.parse(word) is None


@quick
@pytest.mark.django_db
def test_closed_room_has_no_terms() -> None:
    assert RoomTerms.from_sale(make_sale(room=RoomKind.START)) is None


@quick
@pytest.mark.django_db
@pytest.mark.parametrize("state", [{"paused": True}, {"stage": "draft"}])
def test_sale_that_nobody_can_buy_lets_nobody_in(state: dict[str, Any]) -> None:
    sale = make_sale(room=RoomKind.BUSY, room_opened_ms=1, room_since_ms=5, room_rate=70, **state)

    assert RoomTerms.from_sale(sale) == RoomTerms(1, 0, 0, 5)
    sale.paused, sale.stage = False, "public"
    assert RoomTerms.from_sale(sale) == RoomTerms(1, 70, 0, 5)


@quick
@pytest.mark.django_db
def test_only_a_room_for_the_start_waits_and_shuffles() -> None:
    sale = make_sale(room=RoomKind.START, room_opened_ms=1, room_since_ms=5, room_shuffled=True)
    terms = RoomTerms.from_sale(sale)

    assert terms is not None
    assert (terms.since_ms, terms.shuffled) == (int(sale.begins_at.timestamp() * 1000), True)
    sale.room = RoomKind.BUSY
    assert RoomTerms.from_sale(sale) == RoomTerms(1, 200, 0, 5)


@quick
def test_slower_room_wins_and_any_room_beats_none() -> None:
    faster = replace(SLOW, rate=11)

    assert slower(SLOW, faster) == slower(faster, SLOW) == SLOW
    assert slower(None, SLOW) == slower(SLOW, None) == SLOW
    assert slower(None, None) is None


# --- the draw -------------------------------------------------------------------------------------


@quick
def test_drawn_numbers_are_uniform_over_early_visitors() -> None:
    line = Line(replace(SLOW, shuffled=True), tail=9, early=4)
    draws = range(0, 2**32, 2**20)

    numbers = [line.number_of(1, draw) for draw in draws]

    assert {number: numbers.count(number) for number in set(numbers)} == {
        number: len(draws) // 4 for number in range(1, 5)
    }


@quick
@pytest.mark.parametrize("early", [1, 2, 7, 100_000])
def test_every_drawn_number_is_one_of_the_early(early: int) -> None:
    line = Line(replace(SLOW, shuffled=True), tail=early, early=early)

    assert line.number_of(early, 0) == 1
    assert line.number_of(1, LARGEST_DRAW) == early


@quick
@pytest.mark.parametrize(
    ("shuffled", "early", "given"), [(False, 4, 3), (True, 4, 5), (True, 0, 3)]
)
def test_number_given_counts_where_nothing_is_drawn(
    shuffled: bool, early: int | None, given: int
) -> None:
    line = Line(replace(SLOW, shuffled=shuffled), tail=9, early=early)

    assert line.number_of(given, LARGEST_DRAW) == given


@quick
def test_until_the_draw_everybody_counts_as_early() -> None:
    line = Line(replace(SLOW, shuffled=True), tail=9, early=None)

    assert (line.number_of(3, 0), line.number_of(3, LARGEST_DRAW)) == (1, 9)


# --- what a process remembers ---------------------------------------------------------------------


@quick
def test_number_that_redis_lost_is_not_forgotten() -> None:
    remember_line(read_line(SLOW, 70, "40"), sale_id=1)

    line = remember_line(read_line(SLOW, "3", "1"), sale_id=1)

    assert (line.tail, line.early) == (70, 40)
    assert recall_line(sale_id=1) == line


@quick
@pytest.mark.parametrize(("last", "reply", "known"), [("4", "9", 9), ("", "9", 9), ("", "", None)])
def test_most_early_visitors_count(last: str, reply: str, known: int | None) -> None:
    remember_line(read_line(SLOW, 70, last), sale_id=1)

    assert remember_line(read_line(SLOW, 70, reply), sale_id=1).early == known


@quick
def test_other_opening_begins_with_a_new_line() -> None:
    remember_line(read_line(SLOW, 70, "40"), sale_id=1)

    line = remember_line(read_line(replace(SLOW, opened_ms=9), 3, ""), sale_id=1)

    assert (line.tail, line.early) == (3, None)


@quick
def test_place_of_an_older_opening_is_not_sent() -> None:
    remember_line(read_line(SLOW, 70, "40"), sale_id=1)
    visitor = Visitor(5, SignedPlace(OPENED_MS - 1, 7, 7))

    assert visit_args(sale_id=1, visitor=visitor)[3:7] == ["", OPENED_MS, 70, 40]


@quick
def test_line_of_an_older_opening_is_not_sent() -> None:
    remember_line(read_line(SLOW, 70, "40"), sale_id=1)
    visitor = Visitor(5, SignedPlace(OPENED_MS + 1, 7, 8))

    assert visit_args(sale_id=1, visitor=visitor)[3:7] == ["7:8", OPENED_MS + 1, 0, ""]


@quick
def test_unknown_words_of_a_place_are_an_error() -> None:
    with pytest.raises(ValueError, match="not the terms"):
        read_place("junk 1 2 3 IN 4 ")


# --- joining --------------------------------------------------------------------------------------


def test_sale_without_a_room_has_no_line(ledger: Any) -> None:
    keys = open_ledger(1)

    assert visit(1, 7) is None
    assert ledger.exists(keys.room, keys.visits) == 0


def test_first_come_first_served() -> None:
    open_room(1)

    places = [place_at(1, user_id) for user_id in (7, 5, 9)]

    assert [it.number for it in places] == [1, 2, 3]
    assert {it.state for it in places} == {PlaceState.WAITING}
    assert places[-1].line.tail == 3


def test_visitor_who_comes_back_keeps_the_place(dump: Dump) -> None:
    open_room(1)
    first = place_at(1, 7)
    place_at(1, 8)
    before = dump()

    again = place_at(1, 7)

    assert (again.given, again.joined_ms) == (first.given, first.joined_ms)
    assert dump() == before


def test_number_is_let_in_when_the_head_has_come() -> None:
    open_room(1)
    places = [place_at(1, user_id) for user_id in (7, 8, 9)]
    change_room(1, base=2)

    assert [place_at(1, user_id).state for user_id in (7, 8, 9)] == ["IN", "IN", "WAITING"]
    assert not any(it.is_in for it in places)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_idle_line_saves_nothing_up(guarded: bool, drop_guard: DropGuard) -> None:
    """The number after the head goes to the next visitor: without it a crowd gets in at once."""
    if not guarded:
        guard = "tail = math.max(tail, passed(now_ms)) + 1"
        drop_guard(holdings, "_READ_BUYER", guard, "tail = tail + 1")
    open_room(1, rate=2, since_ms=-200_000)

    states = [place_at(1, user_id).state for user_id in range(1, 41)]

    assert (states[0], states[-1] == "IN") == ("IN", not guarded)


def test_nobody_is_let_in_before_the_start() -> None:
    open_room(1, rate=1_000, since_ms=30_000)

    assert place_at(1, 7).state == "WAITING"


def test_everybody_let_in_stays_in_whatever_the_rate(dump: Dump) -> None:
    open_room(1)
    let_in(7)
    change_room(1, base=0)
    before = dump()

    assert place_at(1, 7).is_in
    assert dump() == before


def test_moment_of_being_let_in_is_kept(ledger: Any) -> None:
    keys = open_room(1)
    before_ms = redis_now_ms()

    place = let_in(7)

    given, joined_ms, let_in_ms = ledger.hget(keys.room, "7").split(":")
    assert (int(given), int(joined_ms)) == (place.given, place.joined_ms)
    assert before_ms <= int(let_in_ms) <= redis_now_ms()
    assert ledger.hget(keys.visits, "7") == f"{OPENED_MS}:{given}:{joined_ms}:{let_in_ms}"


def let_in(user_id: int) -> Place:
    """Let a visitor join, and everybody in line in."""
    place = place_at(1, user_id)
    change_room(1, base=place.line.tail)
    place = place_at(1, user_id)
    assert place.is_in
    return place


@pytest.mark.parametrize("name", ["room", "visits"])
def test_line_expires_after_the_sale(ledger: Any, name: str) -> None:
    keys = open_room(1)
    place_at(1, 7)

    assert 3_600_000 < ledger.pttl(getattr(keys, name)) <= 3_660_000


def test_line_expires_even_if_nobody_joined(ledger: Any) -> None:
    keys = open_room(1)
    reserve(sale_id=1, order_id=501, user_id=7)

    assert place_at(1, 7).state == "NONE"
    assert 3_600_000 < ledger.pttl(keys.room) <= 3_660_000


# --- who joins ------------------------------------------------------------------------------------


def test_holder_of_the_limit_does_not_join(ledger: Any) -> None:
    keys = open_room(1)
    reserve(sale_id=1, order_id=501, user_id=7)

    place = place_at(1, 7)

    assert (place.state, place.given, place.is_in) == ("NONE", 0, False)
    assert ledger.hexists(keys.room, "7") is False
    assert ledger.exists(keys.visits) == 0


def test_buyer_below_the_limit_joins() -> None:
    open_room(1, state={"limit": 2})
    reserve(sale_id=1, order_id=501, user_id=7)

    assert place_at(1, 7).state == "WAITING"


def test_number_beyond_fourteen_digits_stays_whole() -> None:
    """Lua writes such a number with an exponent, unless it is told otherwise."""
    huge = 12 * 10**13
    open_room(1, base=huge)

    assert place_at(1, 7).number == huge + 1
    add_buyers(sale_id=1, holdings=[Holding(order_id=501, user_id=8, unit=1)])
    assert place_at(1, 8).line.tail == huge + 1


def test_holder_who_loses_the_unit_joins_at_the_end(ledger: Any) -> None:
    keys = open_room(1)
    add_buyers(sale_id=1, holdings=[Holding(order_id=501, user_id=7, unit=1)])
    assert place_at(1, 7).state == "NONE"
    place_at(1, 8)
    ledger.hdel(keys.buyers, "7:1")

    assert place_at(1, 7).number == 2


def test_winner_who_was_let_in_stays_in() -> None:
    open_room(1)
    let_in(7)
    reserve(sale_id=1, order_id=501, user_id=7)

    assert place_at(1, 7).is_in


def test_nobody_joins_a_sale_that_is_over(ledger: Any) -> None:
    keys = open_room(1, state={"ends_at_ms": redis_now_ms() - 1})

    assert visit(1, 7) is None
    assert ledger.exists(keys.room, keys.visits) == 0


# --- early visitors -------------------------------------------------------------------------------


def test_early_visitors_are_shuffled_at_the_start() -> None:
    open_room(1, since_ms=30_000, shuffled=True)
    for user_id in (1, 2, 3, 4):
        place_at(1, user_id, draw=0)
    change_room(1, shuffled=True)

    drawn = [place_at(1, user_id, draw=(4 - user_id) * 2**30).number for user_id in (1, 2, 3, 4)]

    assert drawn == [4, 3, 2, 1]


def test_number_of_early_visitors_is_fixed_at_the_start() -> None:
    open_room(1, since_ms=30_000, shuffled=True)
    for user_id in (1, 2):
        place_at(1, user_id)
    assert snapshot(sale_id=1).line == Line(terms_of(1), tail=2, early=None)
    change_room(1, shuffled=True)

    late = [place_at(1, user_id, draw=0) for user_id in (3, 4)]

    assert [it.number for it in late] == [3, 4]
    assert {it.line.early for it in late} == {2}
    assert place_at(1, 2, draw=LARGEST_DRAW).number == 2


def test_nobody_is_shuffled_if_nobody_came_early() -> None:
    open_room(1, shuffled=True)

    places = [place_at(1, user_id, draw=0) for user_id in (1, 2, 3)]

    assert [it.number for it in places] == [1, 2, 3]
    assert snapshot(sale_id=1).line == Line(terms_of(1), tail=3, early=0)


def test_order_of_arrival_before_the_start_is_kept() -> None:
    open_room(1, since_ms=30_000)
    for user_id in (1, 2, 3):
        place_at(1, user_id)
    change_room(1)

    assert [place_at(1, user_id, draw=0).number for user_id in (3, 2, 1)] == [3, 2, 1]


def test_room_that_turns_into_one_for_the_start_draws() -> None:
    """A room for busy times draws nobody, and leaves the draw to the start."""
    open_room(1)
    place_at(1, 1)
    change_room(1, since_ms=30_000, shuffled=True)
    place_at(1, 2)
    change_room(1, shuffled=True)

    assert place_at(1, 2, draw=0).number == 1


def terms_of(sale_id: int) -> RoomTerms:
    found = snapshot(sale_id=sale_id).terms.room
    assert found
    return found


# --- expired places -------------------------------------------------------------------------------


def test_place_expires_five_minutes_after_its_turn() -> None:
    open_room(1)
    place_at(1, 7)
    change_room(1, base=1, since_ms=1_000 - PLACE_KEPT_MS)
    assert place_at(1, 8).state == "WAITING"
    change_room(1, base=1, since_ms=-PLACE_KEPT_MS)

    assert place_at(1, 7).state == "EXPIRED"


@pytest.mark.parametrize("was_set", [False, True])
def test_place_stays_while_the_clock_of_redis_was_set(*, was_set: bool) -> None:
    """The time of Redis is an hour ahead of what this process expects."""
    open_room(1)
    place_at(1, 7)
    change_room(1, base=1, since_ms=-3_600_000)
    if was_set:
        forget_everything()
        seconds, micros = ledger_connection().time()
        learn_ledger_time((seconds - 3_600, micros))

    assert place_at(1, 7).state == ("IN" if was_set else "EXPIRED")


def test_place_is_good_until_it_expires() -> None:
    open_room(1)
    place_at(1, 7)
    change_room(1, base=1, since_ms=5_000 - PLACE_KEPT_MS)

    assert place_at(1, 7).is_in


def test_expired_visitor_stays_out_without_joining_again(dump: Dump) -> None:
    expired_visitor()
    before = dump()

    assert place_at(1, 7).state == "EXPIRED"
    assert dump() == before


def expired_visitor() -> LedgerKeys:
    """Let the turn of visitor 7 pass; visitor 8 waits."""
    keys = open_room(1)
    place_at(1, 7)
    place_at(1, 8)
    change_room(1, base=1, since_ms=-PLACE_KEPT_MS)
    return keys


@pytest.mark.parametrize("base", [0, 1])
def test_joining_again_with_a_good_place_changes_nothing(base: int, dump: Dump) -> None:
    open_room(1)
    for user_id in (7, 8):
        place_at(1, user_id)
    change_room(1, base=base)
    place = place_at(1, 7)
    before = dump()

    again = place_at(1, 7, again=True)

    assert (again.given, again.state) == (place.given, place.state)
    assert dump() == before


def test_shuffled_visitor_who_joins_again_is_not_drawn_again() -> None:
    open_room(1, since_ms=30_000, shuffled=True)
    for user_id in (7, 8):
        place_at(1, user_id)
    change_room(1, shuffled=True, base=1, since_ms=-PLACE_KEPT_MS)

    assert place_at(1, 7, draw=0).state == "EXPIRED"
    assert place_at(1, 7, draw=0, again=True).number == 3


# --- a lost line ----------------------------------------------------------------------------------


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_newcomers_stay_behind_a_line_that_redis_lost(guarded: bool, ledger: Any) -> None:
    """Each process knows the last number: one that does not gives an earlier one."""
    keys = open_room(1)
    for user_id in (1, 2, 3):
        place_at(1, user_id)
    ledger.delete(keys.room)
    if not guarded:
        forget_everything()

    assert place_at(1, 9).number == (4 if guarded else 1)


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_signed_places_restore_a_lost_line_in_order(guarded: bool, ledger: Any) -> None:
    keys = open_room(1)
    places = {user_id: place_at(1, user_id) for user_id in (1, 2, 3)}
    ledger.delete(keys.room)
    forget_everything()

    def number_of(user_id: int) -> int:
        held = signed(places[user_id]) if guarded else None
        return place_at(1, user_id, signed=held).number

    numbers = [number_of(user_id) for user_id in (3, 1, 2)]

    assert numbers == ([3, 1, 2] if guarded else [1, 2, 3])
    assert place_at(1, 9).number == 4


def test_lost_line_keeps_the_early_visitors_drawn(ledger: Any) -> None:
    keys = open_room(1, since_ms=30_000, shuffled=True)
    places = {user_id: place_at(1, user_id) for user_id in (1, 2)}
    change_room(1, shuffled=True)
    place_at(1, 3)
    ledger.delete(keys.room)

    again = place_at(1, 1, draw=LARGEST_DRAW, signed=signed(places[1]))

    assert (again.number, again.line.early) == (2, 2)
    assert place_at(1, 9, draw=0).number == 4


def test_older_copy_of_the_line_hands_no_number_out_twice(ledger: Any) -> None:
    """A Redis that was restarted has lost the last second."""
    keys = open_room(1)
    for user_id in (1, 2, 3):
        place_at(1, user_id)
    ledger.hdel(keys.room, "2", "3")
    ledger.hset(keys.room, "tail", 1)

    assert place_at(1, 9).number == 4


def test_signed_place_beats_a_later_one_given_after_a_loss(ledger: Any) -> None:
    """The account came from another browser first, which held no place."""
    keys = open_room(1)
    first = place_at(1, 7)
    place_at(1, 8)
    ledger.delete(keys.room)
    assert place_at(1, 7).number == 3

    assert place_at(1, 7, signed=signed(first)).number == 1
    assert place_at(1, 7).number == 1


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_signed_place_beats_an_expired_one_of_an_older_copy(
    guarded: bool, ledger: Any, drop_guard: DropGuard
) -> None:
    """Redis has forgotten that the account joined again."""
    if not guarded:
        drop_guard(holdings, "_READ_BUYER", " or has_expired(number_in_line(given))")
    keys = expired_visitor()
    before = ledger.hget(keys.room, "7")
    second = place_at(1, 7, again=True)
    ledger.hset(keys.room, "7", before)

    place = place_at(1, 7, signed=signed(second))

    assert (place.number, place.state) == ((3, "WAITING") if guarded else (1, "EXPIRED"))


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "control"])
def test_draw_goes_by_all_who_are_known_to_be_early(
    guarded: bool, ledger: Any, drop_guard: DropGuard
) -> None:
    """A build knew fewer: without the comparison, page and token disagree on whose turn it is."""
    if not guarded:
        guard = "if known_early and tonumber(drawn) < tonumber(known_early) then"
        drop_guard(holdings, "_READ_BUYER", guard, "if false then")
    keys = open_room(1, since_ms=30_000, shuffled=True)
    for user_id in (1, 2, 3, 4):
        place_at(1, user_id)
    change_room(1, shuffled=True)
    assert place_at(1, 4, draw=0).number == 1
    ledger.hset(keys.room, "early", 2)

    place = place_at(1, 4, draw=0)

    assert place.line.number_of(4, 0) == 1
    assert place.number == (1 if guarded else 4)


def test_expired_signed_place_does_not_replace_a_later_one() -> None:
    expired_visitor()
    old = SignedPlace(OPENED_MS, 1, 1)
    assert place_at(1, 7, again=True).number == 3

    place = place_at(1, 7, signed=old)

    assert (place.number, place.state) == (3, "WAITING")


@pytest.mark.parametrize("later_ms", [1, -1], ids=["later", "after the clock was set back"])
def test_place_of_another_opening_is_void(later_ms: int) -> None:
    open_room(1)
    first = place_at(1, 7)
    place_at(1, 8)
    change_room(1, opened_ms=OPENED_MS + later_ms)

    assert place_at(1, 8).number == 1
    assert place_at(1, 7, signed=signed(first)).number == 2


@pytest.mark.parametrize("name", ["room", "visits"])
def test_key_of_a_wrong_type_is_replaced(ledger: Any, name: str) -> None:
    keys = open_room(1)
    places = [place_at(1, user_id) for user_id in (7, 8)]
    ledger.delete(getattr(keys, name))
    ledger.rpush(getattr(keys, name), "a mistyped command")

    assert snapshot(sale_id=1).line
    assert place_at(1, 7, signed=signed(places[0])).number == 1
    assert place_at(1, 9).number == 3
    assert ledger.type(getattr(keys, name)) == "hash"


def test_junk_in_the_state_answers_unavailable() -> None:
    open_ledger(1, mode_terms="1:2:a")

    with pytest.raises(LedgerUnavailable):
        visit(1, 7)


@pytest.mark.parametrize(("field", "junk"), [("tail", "junk"), ("early", "junk"), ("7", "junk")])
def test_junk_in_the_line_counts_as_lost(ledger: Any, field: str, junk: str) -> None:
    keys = open_room(1, shuffled=True)
    places = [place_at(1, user_id) for user_id in (7, 8)]
    ledger.hset(keys.room, field, junk)

    assert snapshot(sale_id=1).line
    assert place_at(1, 7, signed=signed(places[0])).number == 1
    assert place_at(1, 9).number == 3


# --- large numbers --------------------------------------------------------------------------------


@pytest.mark.parametrize("draw", [0, 1, HALF - 1, HALF, LARGEST_DRAW])
def test_script_and_process_agree_on_the_number(draw: int) -> None:
    open_room(1, since_ms=30_000, shuffled=True)
    for user_id in range(1, 8):
        place_at(1, user_id)
    change_room(1, shuffled=True)

    place = place_at(1, 3, draw=draw)

    assert place.number == place.line.number_of(place.given, draw)


def test_script_and_process_agree_on_the_head() -> None:
    open_room(1, rate=7, since_ms=-12_345)
    for user_id in range(1, 30):
        before_ms = redis_now_ms()
        place = place_at(1, user_id)
        after_ms = redis_now_ms()

        assert place.is_in >= (place.number <= terms_of(1).head(before_ms))
        assert place.is_in <= (place.number <= terms_of(1).head(after_ms))


def test_keys_of_the_room_move_with_the_sale() -> None:
    keys = LedgerKeys(1)

    assert {keys.room, keys.visits} <= set(keys.movable)


def test_length_counts_the_numbers_behind_the_head() -> None:
    open_room(1)
    for user_id in (1, 2, 3):
        place_at(1, user_id)
    change_room(1, base=1)

    found = snapshot(sale_id=1)

    assert found.line
    assert found.line.length(found.now_ms) == 2
    change_state(1, mode_terms="")
    assert snapshot(sale_id=1).line is None
