"""The stage of a crowd race: open a sale, sell it under a fault, judge and remove it."""

import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.crowd.back_half import BackHalf
from lab.crowd.crowd import Crowd, Lane
from lab.crowd.faults import PAUSE_S, Fault, end_redis, promises_before, wait_for_redis
from lab.crowd.seller import Assignment, sell
from lab.crowd.sheet import FRESH, Sheet, now_us
from lab.engine.fork_server import ForkServer, Process, ProcessEnded
from lab.engine.stage import Stage
from lab.instances import Front
from lab.steps.ours import is_settled, refused_buyers, tokens_for
from lab.steps.step import PROMISES, Step
from lab.verdict import Verdict, judge
from lab.waiting import wait_until
from orders.placing.tokens import PurchaseToken

READY_S = 60.0

SALE_S = 120.0
"""Seconds that a sale may take, in addition to the time for each press."""

PRESS_S = 0.02
SETTLED_S = 60.0
"""Seconds that ours may still be writing after the last answer."""

OBSERVE_US = 20_000
"""Interval of counting rows, to know when the last one was written."""


class SellerDied(Exception):
    """A selling process ended without a strike; the message has the end of its log."""


class CrowdStage(Stage):
    """A sale of one step, sold to a crowd."""

    def __init__(self, step: Step, server: ForkServer, *, crowd: Crowd, fault: Fault) -> None:
        super().__init__(step, server)
        self._crowd = crowd
        self._fault = fault
        self._front = Front.started() if fault is Fault.INSTANCES else None
        self._temporary = TemporaryDirectory(prefix="seckill-race-")
        self._directory = Path(self._temporary.name)
        self._sheet = Sheet(self._directory / "sheet", crowd)
        self._tokens: Sequence[PurchaseToken] = []
        self._sellers: dict[Process, Assignment] = {}
        self._errors: Counter[str] = Counter()
        self._back_half: BackHalf | None = None
        self._fault_is_done = fault is Fault.NONE
        self._sold = self._last_row_us = self._observed_us = 0

    def run(self) -> Verdict:
        """Run the sale and judge it; call this once, within the block.

        :raises SellerDied: a process ended without a strike.
        :raises NotStarted: worker or beat did not start.
        :raises RedisStaysAway: Redis was shut down, and nothing has restarted it.
        """
        if self.step.is_ours and not self._front:
            # While one worker is frozen, another takes over.
            workers = 2 if self._fault is Fault.PAUSE else 1
            self._back_half = BackHalf(self._directory, workers=workers)
            self._back_half.start()
        self.open(units=self._crowd.stock, buyers=self._crowd.buyers)
        if self.step.is_ours:  # one token per press, as in many tabs
            buyers = map(self._crowd.buyer_of, range(self._crowd.presses))
            self._tokens = tokens_for(self.sale_id, [self.user_ids[it] for it in buyers])
        self._start_sellers()
        in_time = self._sell()
        return replace(
            self._judge(),
            struck=bool(self._sheet.flags.struck_us),
            is_quiet=in_time,
            error=next((text for text, _ in self._errors.most_common(1)), ""),
            **(self._front.figures(self.sale_id) if self._front else {}),
        )

    # --- Processes --------------------------------------------------------------------------------

    def _start_sellers(self) -> None:
        lanes = self._crowd.lanes()
        signed = [token.sign() for token in self._tokens]
        for number in range(self._crowd.processes):
            name = f"seller-{number + 1}"
            self._start_seller(
                number,
                Assignment(
                    name=name,
                    step=self.step.name,
                    sale_id=self.sale_id,
                    crowd=self._crowd,
                    lanes=[lane for lane in lanes if lane.process == number],
                    user_ids=self.user_ids,
                    tokens=signed,
                    fault=self._fault,
                    front=self._front,
                    sheet=self._directory / "sheet",
                    log=self._directory / f"{name}.log",
                ),
            )

        def all_ready() -> bool:
            self._check_sellers()
            return all(self._sheet.ready)

        if not wait_until(all_ready, within_s=READY_S):
            raise SellerDied("no seller is ready: the machine is too slow")

    def _start_seller(self, number: int, assignment: Assignment) -> None:
        process = self.fork(partial(sell, assignment=assignment), number)
        self._sellers[process] = assignment

    def _check_sellers(self) -> None:
        """Drop sellers that have finished, and replace the one that was killed.

        The press that it was handling is lost. A successor with another name makes the others.

        :raises SellerDied: a seller ended for another reason.
        """
        for process, assignment in list(self._sellers.items()):
            try:
                message = process.receive()
            except ProcessEnded as end:
                if process.pid != self._sheet.flags.struck_pid:
                    log = assignment.log.read_text(errors="replace")
                    raise SellerDied(f"{assignment.name}: {log[-2000:]}") from end
                self._start_seller(process.number, self._rest_of(assignment))
                if self._back_half:
                    self._back_half.kill_workers()
                message = [{}]
            if message:
                self._errors.update(message[0])
                del self._sellers[process]

    def _rest_of(self, assignment: Assignment) -> Assignment:
        def fresh(lane: Lane) -> Lane:
            presses = [it for it in lane.presses if self._sheet.state(it) == FRESH]
            return replace(lane, beside=(), presses=presses)

        lanes = [fresh(lane) for lane in assignment.lanes]
        return replace(
            assignment, name=f"{assignment.name}-successor", lanes=lanes, fault=Fault.NONE
        )

    # --- The sale ---------------------------------------------------------------------------------

    def _sell(self) -> bool:
        """Let the crowd press and the writers write; return False if they do not finish in time."""

        def all_pressed() -> bool:
            self._sheet.flags.closing = all(self._sheet.done)
            self._apply_fault()
            self._observe()
            self._check_sellers()
            return not self._sellers

        def settled() -> bool:
            self._observe()
            return is_settled(self.sale_id)

        self._sheet.flags.go = 1
        if not wait_until(all_pressed, within_s=SALE_S + PRESS_S * self._crowd.presses):
            return False
        if self._fault is Fault.REDIS_RESTART:
            wait_for_redis()
        is_over = not self.step.is_ours or wait_until(settled, within_s=SETTLED_S)
        self._observed_us = 0
        self._observe()
        return is_over

    def _apply_fault(self) -> None:
        """Do the director's part of the fault when it is due."""
        flags = self._sheet.flags
        if self._fault is Fault.PAUSE and flags.struck_us and not flags.resumed:
            self._resume_if_due()
        if self._fault_is_done:
            return
        if self._fault in (Fault.REDIS_RESTART, Fault.INSTANCES):
            if self._sheet.promises() >= promises_before(self._crowd.stock):
                self._fault_is_done = True
                flags.struck_us = now_us()
                self._front.kill_first() if self._front else end_redis()
        elif flags.struck_us:
            self._fault_is_done = True
            if self._fault is Fault.PAUSE and self._back_half:
                self._back_half.signal_first_worker(signal.SIGSTOP)

    def _resume_if_due(self) -> None:
        flags = self._sheet.flags
        if now_us() - flags.struck_us < PAUSE_S * 1_000_000:
            return
        flags.resumed = 1
        struck = next(process for process in self._sellers if process.pid == flags.struck_pid)
        struck.signal(signal.SIGCONT)
        if self._back_half:
            self._back_half.signal_first_worker(signal.SIGCONT)

    def _observe(self) -> None:
        """Count the rows at intervals."""
        at_us = now_us()
        if at_us - self._observed_us < OBSERVE_US:
            return
        self._observed_us = at_us
        sold = len(self.step.rows(self.sale_id))
        if sold != self._sold:
            self._sold, self._last_row_us = sold, at_us

    def _clear(self) -> None:
        with self._temporary:
            if self._back_half:
                self._back_half.stop()
            super()._clear()

    def _judge(self) -> Verdict:
        faultless = self._fault is Fault.NONE
        answers = self._sheet.answers(self._crowd, self.user_ids, faultless=faultless)
        rows = self.step.rows(self.sale_id)
        without = answers.promised - set(rows)
        promised = (
            token
            for press, token in enumerate(self._tokens)
            if token.user_id in without and self._sheet.state(press) in PROMISES
        )
        return judge(
            step=self.step.name,
            buyers=self._crowd.buyers,
            offered=self.offered,
            rows=rows,
            answers=answers,
            told_lost=refused_buyers(promised),
            barred=self.step.barred_buyers(self.sale_id),
            last_row_us=self._last_row_us,
        )
