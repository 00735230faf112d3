"""What all ledger calls share: codes, a ledger that is not whole, and a Redis that is gone."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.site import RedisGone
from tests.fixtures.vouchers import Dump
from tests.support.sales import change_state, open_ledger, reserve
from tests.support.tiers import slow_after
from vouchers.inventory import keys as keys_module
from vouchers.inventory.batch_journal import (
    back_off,
    clear_batch,
    collect_suspects,
    count_failure,
    record_batch,
    set_aside,
)
from vouchers.inventory.draw_entries import CloseCode, GiveCode, WithdrawCode
from vouchers.inventory.entering import EnterCode
from vouchers.inventory.holdings import (
    Holding,
    add_buyers,
    check_holdings,
    held_order_ids,
    make_pending,
    read_buyer_holdings,
    read_buyers,
    read_pending,
    restore_buyers,
)
from vouchers.inventory.keys import (
    CONTENTS,
    STATE,
    LedgerKeys,
    LedgerUnavailable,
    NotLoaded,
    ledger_script,
    send,
    send_many,
)
from vouchers.inventory.rebuild import LoadCode, current_run_id
from vouchers.inventory.receipt_cache import LookupCode, cache_row, look_up_receipt_call
from vouchers.inventory.reservations import (
    PendingEntry,
    Release,
    ReserveCode,
    RetakeCode,
    acknowledge_kick,
    claim_due_sweeps,
    clear_kick,
    confirm,
    ended_reason,
    entries_set_aside,
    pending_entries,
    release,
    retake,
    set_kick,
)
from vouchers.inventory.restart_watch import is_same_ledger
from vouchers.inventory.sale_state import (
    LedgerTerms,
    WriteCode,
    snapshot,
    snapshots,
    write_terms,
)
from vouchers.inventory.waiting_list import (
    JoinCode,
    clear_waiting_list,
    join_waiting,
    leave_waiting,
    waiting_order_ids,
    waiting_position,
)

HOLDING = Holding(501, 7, 1)
ENTRY = PendingEntry(501, 7, 1, accepted_at_ms=1)
TERMS = LedgerTerms(total=9, begins_at_ms=1_000, ends_at_ms=2_000, limit=2, paused=True, rebuy=True)


# --- codes ----------------------------------------------------------------------------------------

CODES: dict[str, type[StrEnum]] = {
    "retake": RetakeCode,
    "close_entries": CloseCode,
    "enter": EnterCode,
    "give_to_winners": GiveCode,
    "join_waiting": JoinCode,
    "load": LoadCode,
    "look_up_receipt": LookupCode,
    "reserve": ReserveCode,
    "withdraw_entry": WithdrawCode,
    "write_terms": WriteCode,
}
_RETURNED_CODE = re.compile(r"return \{?'([A-Z_]+)'")


@pytest.mark.parametrize("name", CODES)
def test_enum_header_and_returns_of_script_agree(name: str) -> None:
    source = ledger_script(name).source

    assert set(_RETURNED_CODE.findall(source)) == set(CODES[name])
    assert set(re.findall(r"^--   ([A-Z_]+)  ", source, re.MULTILINE)) == set(CODES[name])


def test_every_script_that_returns_codes_has_an_enum() -> None:
    folder = Path(keys_module.__file__).parent / "lua"
    names = [path.stem for path in folder.glob("*.lua")]

    assert {it for it in names if _RETURNED_CODE.search(ledger_script(it).source)} == set(CODES)


# --- a ledger that is not whole -------------------------------------------------------------------

NEED_LEDGER: dict[str, Callable[[], object]] = {
    "reserve": lambda: reserve(sale_id=1, order_id=502, user_id=8),
    "retake": lambda: retake(sale_id=1, holdings=[HOLDING]),
    "snapshot": lambda: snapshot(sale_id=1),
    "write_terms": lambda: write_terms(sale_id=1, terms=TERMS),
    "join_waiting": lambda: join_waiting(sale_id=1, order_id=501, user_id=7, joined_at_ms=1),
    "record_batch": lambda: record_batch(sale_id=1, entries=[ENTRY]),
}
WORDS = (
    *("epoch", "identity", "total", "begins_at_ms", "ends_at_ms", "limit", "paused", "rebuy"),
    *("plain", "loaded_at_ms", "batch"),
)


def delete_key(name: str) -> Callable[[Any, LedgerKeys], None]:
    return lambda ledger, keys: ledger.delete(getattr(keys, name))


def delete_field(key: str, field: str) -> Callable[[Any, LedgerKeys], None]:
    return lambda ledger, keys: ledger.hdel(getattr(keys, key), field)


def change_word(name: str, value: str) -> Callable[[Any, LedgerKeys], None]:
    return lambda ledger, keys: change_state(keys.sale_id, **{name: value})


def write_older_form(ledger: Any, keys: LedgerKeys) -> None:
    """Write the sale as releases did that kept its state apart from the buyers."""
    state = ledger.hget(keys.buyers, STATE)
    ledger.hdel(keys.buyers, STATE)
    ledger.hset(keys.buyers, "epoch", "1:0")
    ledger.hset(keys.sale, STATE, state)


def replace_by_string(name: str) -> Callable[[Any, LedgerKeys], None]:
    return lambda ledger, keys: ledger.set(getattr(keys, name), "of a wrong type")


BREAKS = {
    "buyers lost": delete_key("buyers"),
    **{f"{name} of a wrong type": replace_by_string(name) for name in CONTENTS},
    "state lost": delete_field("buyers", STATE),
    "state of an older release": write_older_form,
    **{f"{name} lost": change_word(name, "") for name in WORDS},
    **{f"{name} is no number": change_word(name, "1e3") for name in (*WORDS, "sold_out_at_ms")},
}


@pytest.mark.parametrize("call", slow_after(2, NEED_LEDGER))
@pytest.mark.parametrize("broken", slow_after(2, BREAKS))
def test_broken_ledger_is_not_loaded_and_nothing_is_written(
    ledger: Any, dump: Dump, call: str, broken: str
) -> None:
    """All scripts must agree, or a sale would be closed and never built again."""
    keys = open_ledger(1, plain=0)
    reserve(sale_id=1, order_id=501, user_id=7)
    BREAKS[broken](ledger, keys)
    before = dump()

    with pytest.raises(NotLoaded, match="sale 1 is not loaded"):
        NEED_LEDGER[call]()

    assert dump() == before


# --- Redis gone -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        *NEED_LEDGER.values(),
        lambda: read_buyers(sale_id=1),
        lambda: read_pending(sale_id=1),
        lambda: check_holdings(sale_id=1, holdings=[HOLDING]),
        lambda: make_pending(sale_id=1, holdings=[HOLDING]),
        lambda: restore_buyers(sale_id=1, holdings=[HOLDING]),
        lambda: add_buyers(sale_id=1, holdings=[HOLDING]),
        lambda: clear_batch(sale_id=1),
        lambda: collect_suspects(sale_id=1),
        lambda: count_failure(sale_id=1, order_id=501),
        lambda: set_aside(sale_id=1, entries=[ENTRY]),
        lambda: entries_set_aside(sale_id=1),
        lambda: back_off(sale_id=1, error=ValueError()),
        lambda: read_buyer_holdings(sale_id=1, user_id=7),
        lambda: send(look_up_receipt_call(sale_id=1, order_id=501, user_id=7)),
        lambda: cache_row(sale_id=1, order_id=501, row="row"),
        lambda: held_order_ids(sale_id=1, user_id=7),
        lambda: ended_reason(sale_id=1, order_id=501, user_id=7),
        lambda: pending_entries(sale_id=1, skip=0, count=1),
        lambda: confirm(sale_id=1, entries=[ENTRY]),
        lambda: release(sale_id=1, releases=[Release(ENTRY, "sold_out")]),
        lambda: set_kick(sale_id=1),
        lambda: acknowledge_kick(sale_id=1),
        lambda: clear_kick(sale_id=1),
        lambda: claim_due_sweeps(sale_ids=[1]),
        lambda: snapshots(sale_ids=[1]),
        lambda: is_same_ledger(sale_id=1, loaded_at_ms=1),
        lambda: leave_waiting(sale_id=1, order_id=501, user_id=7),
        lambda: waiting_position(sale_id=1, order_id=501, user_id=7),
        lambda: waiting_order_ids(sale_id=1),
        lambda: clear_waiting_list(sale_id=1),
        current_run_id,
    ],
)
def test_call_without_redis_is_unavailable(
    redis_gone: RedisGone, call: Callable[[], object]
) -> None:
    with redis_gone(), pytest.raises(LedgerUnavailable, match=r"."):
        call()


def test_sending_no_calls_costs_no_round_trip(ledger_trips: list[int]) -> None:
    assert send_many([]) == []
    assert ledger_trips == []
