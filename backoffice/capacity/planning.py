"""What an evening needs: the operations of its two busiest moments, and the processors for it.

One moment is the time before the start, in which pages load. The other is the start: everybody
presses, open pages poll, and winners open their receipts. ``docs/capacity.md`` explains each
number.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from backoffice.capacity.figures import Cost, Figures, Operation

TARGET = 0.6
"""The share of a core that is planned to be busy; the rest is for bursts."""

LIVE_PER_PAGE = 11
"""Requests of a page for ``live/`` before the start: one for its state, 2 × 5 for its clock."""

LIVE_EVERY_S = 1.5
"""An open page asks ``live/`` every one to two seconds around the start."""

RECEIPTS = 2
"""Times that a winner's page asks for the receipt until the order is written."""

WORKERS = 2
"""Worker processes: one writes the sale's orders, the other has time for mails and payments."""

MOST_WAIT_S = 30
"""The longest wait for the last row; the shop counts as behind by then (``SECKILL_BEHIND_MS``)."""


@dataclass(frozen=True)
class Evening:
    """A sale and its crowd.

    Pages and sign-ins come within ``before_s`` before the start; all buyers press within
    ``press_s`` after it.
    """

    buyers: int
    units: int
    pages: int
    sign_ins: int
    before_s: int
    press_s: int

    @property
    def sold(self) -> int:
        return min(self.buyers, self.units)


@dataclass(frozen=True)
class Moment:
    """The operations in each second of a span of time."""

    rates: Mapping[Operation, float]
    costs: Mapping[Operation, Cost]

    def cores(self, part: str) -> float:
        """Return the cores that a part of ``Cost`` keeps busy, or ``all`` of them."""
        us: float = sum(
            rate * getattr(self.costs[it], f"{part}_us") for it, rate in self.rates.items()
        )
        return us / 1e6


@dataclass(frozen=True)
class Plan:
    """The needs of an evening on machines of ``cores`` cores like that of the figures."""

    figures: Figures
    evening: Evening
    cores: int

    @cached_property
    def before(self) -> Moment:
        evening = self.evening
        counts = {
            Operation.PAGE: evening.pages,
            Operation.LIVE: LIVE_PER_PAGE * evening.pages,
            Operation.ME: evening.pages,
            Operation.SIGN_IN: evening.sign_ins,
        }
        rates = {it: count / evening.before_s for it, count in counts.items()}
        return Moment(rates, self.figures.costs)

    @cached_property
    def start(self) -> Moment:
        evening = self.evening
        wins_per_s = evening.sold / evening.press_s
        rates = {
            Operation.WIN: wins_per_s,
            Operation.REFUSAL: (evening.buyers - evening.sold) / evening.press_s,
            Operation.LIVE: evening.buyers / LIVE_EVERY_S,
            Operation.RECEIPT_PAGE: wins_per_s,
            Operation.RECEIPT: RECEIPTS * wins_per_s,
        }
        return Moment(rates, self.figures.costs)

    # --- Needs ------------------------------------------------------------------------------------

    @property
    def web_processes(self) -> int:
        """A process computes on one core at a time."""
        return max(1, math.ceil(max(self.before.cores("web"), self.start.cores("web")) / TARGET))

    @property
    def database_cores(self) -> int:
        cores = max(self.before.cores("database"), self.start.cores("database"))
        return max(1, math.ceil(cores / TARGET))

    @property
    def web_machines(self) -> int:
        return math.ceil(self.web_processes / self.cores)

    @property
    def one_machine_is_enough(self) -> bool:
        return max(self.before.cores("all"), self.start.cores("all")) <= self.cores * TARGET

    @property
    def machines(self) -> int:
        """Either one, or those of the web, and one each for workers, ledger, broker, database."""
        return 1 if self.one_machine_is_enough else self.web_machines + 4

    @property
    def ledger_bytes(self) -> float:
        return self.evening.sold * self.figures.unit_bytes

    # --- Limits -----------------------------------------------------------------------------------

    @property
    def redis_load(self) -> float:
        """The share of its only core that Redis uses in the busiest moment."""
        return max(self.before.cores("redis"), self.start.cores("redis"))

    @property
    def one_redis_is_enough(self) -> bool:
        return self.redis_load <= TARGET

    @property
    def redis_times(self) -> float:
        """How many times as large this evening may be with one Redis."""
        return TARGET / self.redis_load

    @property
    def last_row_s(self) -> float:
        """Seconds from the start to the last row; the last unit may go with the last press."""
        return max(self.evening.press_s, self.evening.sold / self.figures.rows_per_s)

    @property
    def one_writer_is_enough(self) -> bool:
        return self.evening.sold <= self.writer_units

    @property
    def writer_units(self) -> int:
        """Units that one writer writes until the last buyer has waited ``MOST_WAIT_S``."""
        return int(self.figures.rows_per_s * (self.evening.press_s + MOST_WAIT_S))
