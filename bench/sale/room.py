"""Row o: a crowd in the waiting room, at rest and through an evening.

At rest, everybody holds a place far behind the head and polls at the server's pace. Through an
evening, half of the visitors come before the start and half after it, wait for their turn, and
order. The second evening restarts Redis in the middle.
"""

import atexit
import json
import os
import random
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path

from servers import wait_for

from bench.processes import cpu_spent
from bench.sale.buyers import ME, ORDER, ROOM, wait_and_order
from bench.sale.data import in_line, open_sale, sign_in, users
from bench.sale.generator import Crowd, Hits, Step, Visit, room_request
from bench.sale.plan import SALE_CONNECTIONS
from bench.sale.report import Line, Target
from bench.sale.run import Run, back_half, expect_status
from bench.sale.whole_sales import UNAVAILABLE, expect_exact
from lab.verdict import percentile
from orders.lifecycle.room_visits import store_visits
from orders.models import RoomVisit
from orders.receipts.place_in_line import POLL_MS
from seckill_site.clocks.database import database_now
from seckill_site.redis.ledger_connection import ledger_connection
from vouchers.inventory.keys import LedgerUnavailable
from vouchers.inventory.sale_state import snapshots
from vouchers.inventory.waiting_room import RoomTerms

CORES = 2
MOST_SHARE = 0.15
SAMPLE_S = 0.5
RESTART_S = 1.0


def measure(run: Run) -> list[Line]:
    lines = [_at_rest(run)]
    with back_half(run.site):
        for restarts in run.steps([False, True], what="o evenings with a waiting room"):
            lines += _Evening(run, restarts=restarts).lines()
    return lines


# --- At rest --------------------------------------------------------------------------------------


def _at_rest(run: Run) -> Line:
    plan = run.plan
    sale = open_sale(room_rate=plan.let_in_per_s)
    visits = partial(_resting, sale.pk, in_line(sale, count=plan.in_line), plan.in_line_s)
    began = time.monotonic()
    with cpu_spent(*run.parts(run.web)) as spent_s:
        hits = run.start(Crowd(run.web.port, visits, SALE_CONNECTIONS)).result()
    available_s = CORES * plan.in_line_s
    expect_status(hits, 200)
    note = (
        f"{len(hits.answers):,} polls in {time.monotonic() - began:.0f} s, "
        f"p99 {hits.latency_ms(99):.1f} ms; let in {plan.let_in_per_s} a second"
    )
    name, most = f"{plan.in_line:,} people in line: share of two cores", 100 * MOST_SHARE
    percent = 100 * sum(spent_s) / available_s
    return Line("o", name, "–", Target.most(most, " %"), [percent], "%", note=note)


def _resting(sale_id: int, cookies: Sequence[str], seconds: int) -> list[Visit]:
    chance = random.Random(7)
    return [_rest(sale_id, cookie, chance.random(), seconds) for cookie in cookies]


def _rest(sale_id: int, cookie: str, phase: float, seconds: int) -> Visit:
    """Poll until it is this visitor's turn or time is up; the first polls take a whole period."""
    due_s = POLL_MS[1] / 1000 * phase
    while due_s < seconds:
        reply = yield Step(ROOM, room_request(sale_id, cookie), due_s)
        answer = json.loads(reply.body)
        if answer["turn"] == "in":
            return
        due_s = reply.at_s + answer["poll_after_ms"] / 1000 * (0.95 + 0.05 * phase)


# --- An evening -----------------------------------------------------------------------------------


def _visits(sale_id: int, cookies: Sequence[str], opens_at: float, come_s: int) -> list[Visit]:
    """Let visitors come at random times around the start."""
    opens_s, chance = opens_at - time.time(), random.Random(7)
    return [
        wait_and_order(sale_id, cookie, opens_s + come_s * (chance.random() - 0.5))
        for cookie in cookies
    ]


class _Evening:
    """One evening with a waiting room, with a restart of Redis in the middle or without."""

    def __init__(self, run: Run, *, restarts: bool) -> None:
        plan = run.plan
        self.plan, self.restarts = plan, restarts
        user_ids = users(count=plan.visitors)
        cookies = sign_in(user_ids=user_ids)
        lead_s = plan.visitors_come_s // 2 + 2
        self.sale = open_sale(
            stock=plan.sale_units, begins_in_s=lead_s, room_rate=plan.let_in_per_s
        )
        opens_at = self.sale.begins_at.timestamp()
        visits = partial(_visits, self.sale.pk, cookies, opens_at, plan.visitors_come_s)
        began = time.monotonic()
        with cpu_spent(run.web.pids) as spent_s:
            future = run.start(Crowd(run.web.port, visits, SALE_CONNECTIONS))
            turns_s = plan.visitors / plan.let_in_per_s
            self.lengths = self._watch(future, restart_at=opens_at + turns_s / 2)
            self.hits: Hits = future.result()
        self.seconds = time.monotonic() - began
        (self.web_s,) = spent_s
        expect_exact(self.sale, self.hits.of(ORDER), user_ids)
        while RoomVisit.objects.filter(seckill_voucher=self.sale).count() < plan.visitors:
            store_visits(now=database_now())

    def _watch(self, future: "Future[Hits]", *, restart_at: float) -> list[int]:
        """Sample the length of the line until the evening is over."""
        lengths, restarted = [], not self.restarts
        while not future.done():
            if not restarted and time.time() >= restart_at:
                _restart_redis()
                restarted = True
            with suppress(LedgerUnavailable):
                ledger = snapshots(sale_ids=[self.sale.pk])[self.sale.pk]
                if ledger and ledger.line:
                    lengths.append(ledger.line.length(ledger.now_ms))
            time.sleep(SAMPLE_S)
        return lengths

    def lines(self) -> list[Line]:
        plan, waits = self.plan, self._waits_s()
        of = "the same, Redis restarted" if self.restarts else f"{plan.visitors:,} visitors"
        jumps, late = self._order()
        note = (
            f"line at most {max(self.lengths):,}; waited {percentile(waits, 50):.0f} s median, "
            f"{max(waits):.0f} s longest; web {self.web_s:.0f} s of processor time in "
            f"{self.seconds:.0f} s; {len(self.hits.answers):,} answers, "
            f"{self.hits.statuses()[UNAVAILABLE]:,} with 503; sold exactly"
        )
        name = (
            f"{of}, {plan.sale_units:,} units, {plan.let_in_per_s} let in a second: "
            "let in before somebody ahead in line could be"
        )
        return [
            Line("o", name, "–", Target.most(0, ""), [jumps], note=note),
            Line("o", "let in after the turn had come, p95", "–", None, [late], "s"),
        ]

    def _waits_s(self) -> list[float]:
        """Return how long each visitor waited after joining: until the order was due."""
        times: defaultdict[int, list[float]] = defaultdict(list)
        for answer in self.hits.answers:
            if answer.name == ME:
                times[answer.number].append(answer.at)
        return [max(it) - min(it) for it in times.values()]

    def _order(self) -> tuple[int, float]:
        """Return how many were let in too early for their number, and how late others, p95."""
        terms = RoomTerms.from_sale(self.sale)
        assert terms is not None
        too_early, late_s = 0, []
        for given, let_in in RoomVisit.objects.filter(
            seckill_voucher=self.sale, let_in_at__isnull=False
        ).values_list("given", "let_in_at"):
            at_ms = round(let_in.timestamp() * 1000)  # type: ignore[union-attr]
            too_early += given > terms.head(at_ms)
            due_ms = terms.since_ms + max(0, given - terms.rate) * 1000 / terms.rate
            late_s.append(max(0.0, at_ms - due_ms) / 1000)
        return too_early, percentile(late_s, 95)


def _restart_redis() -> None:
    info = ledger_connection().info("server")
    pid = int(info["process_id"])
    program, directory = Path(f"/proc/{pid}/exe").resolve(), Path(f"/proc/{pid}/cwd").resolve()
    os.kill(pid, signal.SIGKILL)
    time.sleep(RESTART_S)
    with (directory / "restarted.log").open("wb") as log:
        # Debian has one program for server and tools, which goes by its name.
        command = ["redis-server", str(info["config_file"])]
        again = subprocess.Popen(command, executable=program, cwd=directory, stdout=log, stderr=log)
    atexit.register(again.kill)  # the first one ends with the run, and this one with us
    wait_for(os.environ["REDIS_URL"], seconds=30)
