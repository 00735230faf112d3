"""A sale of one step to a crowd: opened, sold, struck by its fault, judged, and removed again."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from django.db import connection

from lab.answers import PROMISES
from lab.crowds.back_half import BackHalf
from lab.crowds.books import held_buyers, is_ours, is_settled, refused_with_word, tokens_for
from lab.crowds.crowd import Crowd
from lab.crowds.faults import Fault, end_redis, promises_before, strike_of, wait_for_redis
from lab.crowds.seller import Shift
from lab.crowds.sheet import Sheet, now_us
from lab.crowds.staff import Staff
from lab.crowds.told import Told, read_sheet
from lab.steps.step import Step
from lab.verdict import Verdict, judge
from orders.placing.tokens import PurchaseToken

SALE_S = 120.0
"""So long a sale may take, besides the time for each press."""

PRESS_S = 0.02
SETTLED_S = 60.0
"""So long after the last answer ours may still be writing."""

GLANCE_S = 0.002
LOOK_US = 20_000
"""How often rows are counted, which says when the last one was written."""


@dataclass(frozen=True)
class Progress:
    """How far a sale is."""

    step: str
    answered: int
    presses: int
    sold: int


Watch = Callable[[Progress], None]


class Sale:
    """One sale; what it opened is removed at the end of the block."""

    def __init__(self, step: Step, *, crowd: Crowd, fault: Fault, directory: Path) -> None:
        self.step = step
        self.crowd = crowd
        self.fault = fault
        self.directory = directory
        self.sheet = Sheet.of(presses=crowd.presses, lanes=crowd.processes * crowd.threads)
        self._is_befallen = fault is Fault.NONE
        self._sold = 0
        self._last_row_us = 0
        self._looked_us = 0

    def run(self, watch: Watch) -> Verdict:
        """Sell, and say what came of it.

        :raises SellerDied: a process ended that was not to.
        :raises NotStarted: worker or beat did not come up.
        :raises RedisStaysAway: Redis was ended, and nothing has started it again.
        """
        user_ids = self.step.buyers(self.crowd.buyers)
        with ExitStack() as stack:
            back_half = self._back_half(stack)
            sale_id = self.step.open(self.crowd.stock)
            stack.callback(self._clear, sale_id, back_half)
            tokens = self._tokens(sale_id, user_ids)
            with Staff(self._shifts(sale_id, user_ids, tokens), self.sheet) as staff:
                in_time = self._sell(staff, back_half, sale_id, watch)
            return self._judged(sale_id, user_ids, tokens, staff.errors, in_time)

    def _back_half(self, stack: ExitStack) -> BackHalf | None:
        if not is_ours(self.step):
            return None
        # Where one stands still there is to be another, who takes over.
        workers = 2 if self.fault is Fault.PAUSE else 1
        return stack.enter_context(BackHalf(self.directory, workers=workers))

    def _clear(self, sale_id: int, back_half: BackHalf | None) -> None:
        if back_half:
            back_half.stop()
        connection.close()  # Ctrl-C may have come in the middle of a reply: nothing more fits it
        self.step.clear(sale_id)

    def _tokens(self, sale_id: int, user_ids: Sequence[int]) -> list[PurchaseToken]:
        """Return one a press, as many tabs have; none where the step has no such thing."""
        if not is_ours(self.step):
            return []
        buyers = map(self.crowd.buyer_of, range(self.crowd.presses))
        return tokens_for(sale_id, [user_ids[buyer] for buyer in buyers])

    def _shifts(
        self, sale_id: int, user_ids: Sequence[int], tokens: Sequence[PurchaseToken]
    ) -> list[Shift]:
        lanes = self.crowd.lanes()
        signed = [token.sign() for token in tokens]
        strike = strike_of(self.fault, stock=self.crowd.stock, has_points=not tokens)
        return [
            Shift(
                name=f"seller-{number + 1}",
                step=self.step.name,
                sale_id=sale_id,
                lanes=[lane for lane in lanes if lane.process == number],
                user_ids=user_ids,
                clicks=self.crowd.clicks,
                tokens=signed,
                sheet=self.sheet,
                strike=strike,
                database=str(connection.settings_dict["NAME"]),
                log=str(self.directory / f"seller-{number + 1}.log"),
            )
            for number in range(self.crowd.processes)
        ]

    # --- Selling ----------------------------------------------------------------------------------

    def _sell(self, staff: Staff, back_half: BackHalf | None, sale_id: int, watch: Watch) -> bool:
        """Let the crowd press and the writers write; False where that does not end in time."""
        until = time.monotonic() + SALE_S + PRESS_S * self.crowd.presses
        self.sheet.go.value = 1
        while not staff.is_over():
            if time.monotonic() > until:
                return False
            if staff.has_pressed_all():
                self.sheet.closing.value = 1
            self._befall(staff, back_half)
            self._look(sale_id, watch)
            time.sleep(GLANCE_S)
        if self.fault is Fault.REDIS_RESTART:
            wait_for_redis()
        if back_half:
            return self._settle(sale_id, watch)
        self._look(sale_id, watch, now=True)
        return True

    def _settle(self, sale_id: int, watch: Watch) -> bool:
        until = time.monotonic() + SETTLED_S
        while not is_settled(sale_id):
            if time.monotonic() > until:
                return False
            self._look(sale_id, watch)
            time.sleep(GLANCE_S)
        self._look(sale_id, watch, now=True)
        return True

    def _befall(self, staff: Staff, back_half: BackHalf | None) -> None:
        """Do the race's part of the fault when its time has come."""
        if self.fault is Fault.KILL and staff.replace_killed() and back_half:
            back_half.kill_workers()
        if self.fault is Fault.PAUSE and staff.resume_paused() and back_half:
            back_half.continue_first_worker()
        if self._is_befallen or not self._is_due():
            return
        self._is_befallen = True
        if self.fault is Fault.REDIS_RESTART:
            self.sheet.struck_us.value = now_us()
            end_redis()
        elif self.fault is Fault.PAUSE and back_half:
            back_half.stop_first_worker()

    def _is_due(self) -> bool:
        if self.fault is Fault.REDIS_RESTART:
            return self.sheet.promised_presses() >= promises_before(self.crowd.stock)
        return bool(self.sheet.struck_us.value)

    def _look(self, sale_id: int, watch: Watch, *, now: bool = False) -> None:
        """Count the rows, now and then, and tell how far the sale is."""
        at_us = now_us()
        if not now and at_us - self._looked_us < LOOK_US:
            return
        self._looked_us = at_us
        sold = len(self.step.rows(sale_id))
        if sold != self._sold:
            self._sold, self._last_row_us = sold, at_us
        watch(Progress(self.step.name, self.sheet.answered(), self.crowd.presses, sold))

    # --- Judging ----------------------------------------------------------------------------------

    def _judged(
        self,
        sale_id: int,
        user_ids: Sequence[int],
        tokens: Sequence[PurchaseToken],
        errors: Counter[str],
        in_time: bool,
    ) -> Verdict:
        faultless = self.fault is Fault.NONE
        told = read_sheet(self.sheet, crowd=self.crowd, user_ids=user_ids, faultless=faultless)
        rows = self.step.rows(sale_id)
        verdict = judge(
            step=self.step.name,
            buyers=self.crowd.buyers,
            offered=self.crowd.stock,
            rows=rows,
            told=told,
            with_word=self._with_word(told, rows, tokens),
            held=set() if tokens else held_buyers(sale_id),
            last_row_us=self._last_row_us,
        )
        return replace(
            verdict,
            struck=bool(self.sheet.struck_us.value),
            is_quiet=in_time,
            error=next((text for text, _ in errors.most_common(1)), ""),
        )

    def _with_word(
        self, told: Told, rows: Sequence[int], tokens: Sequence[PurchaseToken]
    ) -> set[int]:
        """Return who was promised a unit, has none, and can read why in the receipt."""
        without = told.promised - set(rows)
        promised = (
            token
            for press, token in enumerate(tokens)
            if token.user_id in without and self.sheet.state(press) in PROMISES
        )
        return refused_with_word(promised)
