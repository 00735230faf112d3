"""What an evening needs: the work of its two busiest moments, and the processors for it.

One moment is the time before the start, in which pages load. The other is the start: everybody
presses, the open pages poll, and the winners open their receipts. ``docs/capacity.md`` explains
each formula.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from backoffice.capacity.figures import Figures, Work

LIVE_PER_PAGE = 6
"""Requests for ``live/`` of a page that loads: the state of the sale, and five for its clock."""

LIVE_EVERY_S = 1.5
"""An open page asks ``live/`` every one to two seconds around the start."""

RECEIPTS = 2
"""Times that a winner's page asks for the receipt until the order is written."""

WORKERS = 2
"""Worker processes: one writes a sale, the other has time for mails and payments."""


@dataclass(frozen=True)
class Evening:
    """A sale and its crowd: ``pages`` and ``sign_ins`` come within ``before_s`` before the start.

    All buyers press within ``press_s``.
    """

    buyers: int
    units: int
    pages: int
    sign_ins: int
    before_s: float
    press_s: float

    @property
    def sold(self) -> int:
        return min(self.buyers, self.units)


@dataclass(frozen=True)
class Moment:
    """A span of time, and how much of each piece of work falls into it."""

    seconds: float
    counts: Mapping[Work, float]

    def rate(self, work: Work) -> float:
        return self.counts.get(work, 0.0) / self.seconds


@dataclass(frozen=True)
class Plan:
    """The needs of an evening, by figures of one machine.

    Loads are in cores: 0.5 is half of one. ``target`` is the share of a core that is planned to be
    busy; the rest is for uneven arrivals and all that is not counted. ``cores`` is the number of
    cores of each machine. No order is accepted while the writer is more than ``behind_s`` behind.
    """

    figures: Figures
    evening: Evening
    target: float
    cores: int
    behind_s: float

    @cached_property
    def before(self) -> Moment:
        evening = self.evening
        counts = {
            Work.PAGE: evening.pages,
            Work.LIVE: LIVE_PER_PAGE * evening.pages,
            Work.ME: evening.pages,
            Work.SIGN_IN: evening.sign_ins,
        }
        return Moment(evening.before_s, counts)

    @cached_property
    def start(self) -> Moment:
        evening, seconds = self.evening, self.evening.press_s
        counts = {
            Work.ORDER_WINS: evening.sold,
            Work.ORDER_SOLD_OUT: evening.buyers - evening.sold,
            Work.LIVE: evening.buyers * seconds / LIVE_EVERY_S,
            Work.RECEIPT_PAGE: evening.sold,
            Work.RECEIPT: RECEIPTS * evening.sold,
            Work.ROW: min(evening.sold, self.figures.rows_per_s * seconds),
        }
        return Moment(seconds, counts)

    # --- Loads ------------------------------------------------------------------------------------

    def web_cores(self, moment: Moment) -> float:
        return sum(self._load(moment, it, "shop_us") for it in Work if it != Work.ROW)

    def worker_cores(self, moment: Moment) -> float:
        return self._load(moment, Work.ROW, "shop_us")

    def redis_cores(self, moment: Moment) -> float:
        return sum(self._load(moment, it, "redis_us") for it in Work)

    def database_cores(self, moment: Moment) -> float:
        return sum(self._load(moment, it, "database_us") for it in Work)

    def _load(self, moment: Moment, work: Work, part: str) -> float:
        us: float = getattr(self.figures.costs[work], part)
        return moment.rate(work) * us / 1e6

    def all_cores(self, moment: Moment) -> float:
        parts = (self.web_cores, self.worker_cores, self.redis_cores, self.database_cores)
        return sum(part(moment) for part in parts)

    # --- Needs ------------------------------------------------------------------------------------

    @property
    def web_processes(self) -> int:
        """A process computes on one core at a time, so there are as many as cores are needed."""
        cores = max(self.web_cores(self.before), self.web_cores(self.start))
        return max(1, math.ceil(cores / self.target))

    @property
    def web_machines(self) -> int:
        return math.ceil(self.web_processes / self.cores)

    @property
    def one_machine_does(self) -> bool:
        """Whether everything fits on one machine."""
        cores = max(self.all_cores(self.before), self.all_cores(self.start))
        return cores <= self.cores * self.target

    @property
    def last_row_s(self) -> float:
        """Seconds from the first order to the last row."""
        evening, figures = self.evening, self.figures
        pressed_s = evening.press_s * evening.sold / evening.buyers
        return max(pressed_s, evening.sold / figures.rows_per_s) + figures.lag_s

    @property
    def ledger_bytes(self) -> float:
        return self.evening.sold * self.figures.unit_bytes

    # --- Limits -----------------------------------------------------------------------------------

    @property
    def redis_share(self) -> float:
        """The busiest moment's share of the one core that a Redis has."""
        return max(self.redis_cores(self.before), self.redis_cores(self.start))

    @property
    def redis_is_enough(self) -> bool:
        return self.redis_share <= self.target

    @property
    def writer_is_enough(self) -> bool:
        return self.last_row_s <= self.behind_s

    @property
    def redis_orders_per_s(self) -> float:
        """Winning orders a second, with all that follows them, that fill the core of a Redis."""
        costs = self.figures.costs
        receipts = costs[Work.RECEIPT_PAGE].redis_us + RECEIPTS * costs[Work.RECEIPT].redis_us
        return 1e6 / (costs[Work.ORDER_WINS].redis_us + costs[Work.ROW].redis_us + receipts)

    @property
    def redis_times(self) -> float:
        """How many times as large this evening may be before the core of a Redis is full."""
        return 1 / self.redis_share

    @property
    def writer_units(self) -> int:
        """Units that one writer writes before the shop has to stop accepting orders."""
        return int(self.figures.rows_per_s * self.behind_s)
