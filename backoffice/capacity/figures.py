"""The figures of a plan: the processor time that each piece of work takes on one machine.

``script/bench capacity`` measures them and writes the file, which ``manage.py plan`` reads.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

FORMAT = 1
"""The version of the file. A file of another version is refused: its figures mean something else."""

FILE = Path(".run/capacity.json")
"""Where the figures are, relative to the checkout, unless a command names another file."""

MEASURE = "script/bench capacity"


class NoFigures(Exception):
    """There is no file of figures."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"there are no figures in {path}: run {MEASURE} on a machine like yours")


class BadFigures(Exception):
    """The file cannot be read, or does not hold the figures of this version."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"{path} holds no figures ({reason}): run {MEASURE} again")


class Work(StrEnum):
    """A piece of work; the value is its name in the file."""

    PAGE = "purchase page"
    LIVE = "live/"
    ME = "me/"
    SIGN_IN = "sign-in"
    ORDER_WINS = "order that wins"
    ORDER_REFUSED = "order refused by the ledger"
    ORDER_SOLD_OUT = "order refused from memory"
    RECEIPT_PAGE = "receipt page"
    RECEIPT = "receipt"
    ROW = "order written"


@dataclass(frozen=True)
class Cost:
    """Processor time in microseconds; ``shop_us`` is that of the web server or the worker."""

    shop_us: float
    redis_us: float
    database_us: float

    @property
    def us(self) -> float:
        return self.shop_us + self.redis_us + self.database_us


@dataclass(frozen=True)
class Crowd:
    """What the crowd of a rehearsal spends on a click, in microseconds.

    It signs the tokens and builds the requests of many clicks, and then sends as many as it can.
    """

    sign_us: float
    build_us: float
    send_us: float


@dataclass(frozen=True)
class Figures:
    """All figures of one machine.

    ``lag_s`` is the time from the last accepted order to its row, if the writer keeps up.
    ``unit_bytes`` is the memory of a sold unit in the ledger while its order has just been written,
    ``held_bytes`` later.
    """

    machine: str
    cores: int
    measured_on: str
    versions: Mapping[str, str]
    costs: Mapping[Work, Cost]
    crowd: Crowd
    rows_per_s: float
    lag_s: float
    unit_bytes: float
    held_bytes: float

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Figures:
        """Read the figures of a file.

        :raises ValueError: a figure is no number that makes sense.
        :raises LookupError: a figure is missing.
        :raises TypeError: it is not an object of figures.
        """
        if found["format"] != FORMAT:
            raise ValueError(f"its format is {found['format']!r}, not {FORMAT}")
        costs = {work: _cost(found["costs"][work.value]) for work in Work}
        _positive(costs[Work.ORDER_WINS].redis_us)
        return cls(
            machine=str(found["machine"]),
            cores=int(_positive(found["cores"])),
            measured_on=str(found["measured_on"]),
            versions={str(name): str(of) for name, of in dict(found["versions"]).items()},
            costs=costs,
            crowd=_crowd(found["crowd"]),
            rows_per_s=_positive(found["rows_per_s"]),
            lag_s=_number(found["lag_s"]),
            unit_bytes=_number(found["unit_bytes"]),
            held_bytes=_number(found["held_bytes"]),
        )

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
    except LookupError as error:
        raise BadFigures(path, f"{error} is missing") from error
    except (OSError, TypeError, ValueError) as error:
        raise BadFigures(path, error) from error


def write_figures(path: Path, figures: Figures) -> None:
    """Write a file of figures, and its folder if needed."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(json.dumps(figures.as_json(), indent=2) + "\n", encoding="utf-8")


def _cost(found: Mapping[str, Any]) -> Cost:
    return Cost(
        shop_us=_positive(found["shop_us"]),
        redis_us=_number(found["redis_us"]),
        database_us=_number(found["database_us"]),
    )


def _crowd(found: Mapping[str, Any]) -> Crowd:
    return Crowd(
        sign_us=_number(found["sign_us"]),
        build_us=_number(found["build_us"]),
        send_us=_positive(found["send_us"]),
    )


def _positive(found: object) -> float:
    number = _number(found)
    if not number:
        raise ValueError("a figure is 0 that cannot be")
    return number


def _number(found: object) -> float:
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TypeError(f"{found!r} is no number")
    if not (math.isfinite(found) and found >= 0):
        raise ValueError(f"{found} is no size")
    return float(found)
