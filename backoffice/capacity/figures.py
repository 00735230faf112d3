"""The figures of a plan: the processor time that each operation takes on one machine.

``script/bench capacity`` measures them and writes the file that ``manage.py plan`` reads.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from django.conf import settings

FORMAT = 1
"""The version of the file; the figures of another version mean something else."""

FILE: Path = settings.BASE_DIR / ".run" / "capacity.json"
DOCUMENTED = Path(__file__).with_name("documented.json")
"""The figures that docs/capacity.md shows, for a machine where nothing was measured."""

MEASURE = "script/bench capacity"


class NoFigures(Exception):
    """There is no file of figures."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"no figures in {path}: run {MEASURE} first, on a machine like yours")


class BadFigures(Exception):
    """The file cannot be read, or does not hold the figures of this version."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot use the figures in {path} ({reason}): run {MEASURE} again")


class Operation(StrEnum):
    """Something that the shop does; the value is its name in the file."""

    PAGE = "purchase page"
    LIVE = "live/"
    ME = "me/"
    SIGN_IN = "sign-in"
    WIN = "order that wins, with its row"
    REFUSAL = "order refused by the ledger"
    RECEIPT_PAGE = "receipt page"
    RECEIPT = "receipt"


@dataclass(frozen=True)
class Cost:
    """The processor time of each part, in microseconds."""

    web_us: float
    worker_us: float
    redis_us: float
    database_us: float

    @property
    def all_us(self) -> float:
        return self.web_us + self.worker_us + self.redis_us + self.database_us


@dataclass(frozen=True)
class Figures:
    """The figures of one machine.

    ``wins_per_s`` and ``refusals_per_s`` are the orders that the machine takes together with the
    crowd that sends them, and ``lag_s`` is the time from the last unit sold to its row meanwhile.
    ``rows_per_s`` is what one writer does alone. ``unit_bytes`` is the memory of a sold unit in the
    ledger.
    """

    machine: str
    cores: int
    measured_on: str
    costs: Mapping[Operation, Cost]
    wins_per_s: float
    refusals_per_s: float
    lag_s: float
    rows_per_s: float
    unit_bytes: float

    @classmethod
    def of(cls, content: dict[str, Any]) -> "Figures":
        """Read the figures of a file.

        :raises LookupError: a figure is missing.
        :raises TypeError: a figure is missing or unknown, or is no number.
        :raises ValueError: a number cannot be a figure.
        """
        if content.pop("format") != FORMAT:
            raise ValueError(f"its format is not {FORMAT}")
        costs = {it: Cost(**content["costs"][it.value]) for it in Operation}
        figures = cls(**{**content, "costs": costs})
        rates = (figures.wins_per_s, figures.refusals_per_s, figures.rows_per_s)
        spent = (costs[Operation.WIN].redis_us, *(cost.all_us for cost in costs.values()))
        if not all(0 < it < math.inf for it in (figures.cores, *rates, *spent)):
            raise ValueError("a figure is not above 0")
        return figures

    def as_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}


def read_figures(path: Path) -> Figures:
    """Read a file of figures.

    :raises NoFigures: there is no such file.
    :raises BadFigures: it holds something else.
    """
    try:
        return Figures.of(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise NoFigures(path) from error
    except (AttributeError, LookupError, OSError, TypeError, ValueError) as error:
        raise BadFigures(path, f"{type(error).__name__}: {error}") from error


def write_figures(path: Path, figures: Figures) -> None:
    """Write a file of figures, and its folder if needed."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(json.dumps(figures.as_json(), indent=2) + "\n", encoding="utf-8")
