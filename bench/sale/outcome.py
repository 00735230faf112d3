"""The outcome of one whole sale: whether it was sold exactly, and a picture of its course.

The picture shows throughput and latency of both designs over time, as SVG. Dashes and names tell
the two apart, not colour alone.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from django.template import Context, Engine

from lab.verdict import percentile

OURS, CLASSIC = "ours", "classic"
EXACT = "sold exactly, no buyer twice"


@dataclass(frozen=True)
class Outcome:
    """One whole sale; ``answers`` are pairs of time (seconds after the start) and latency.

    ``accepted_s`` are the latencies of the winners alone.
    """

    design: str
    to_last_row_s: float
    to_last_answer_s: float
    answers: Sequence[tuple[float, float]]
    accepted_s: Sequence[float]
    verdict: str

    @property
    def all_s(self) -> float:
        return max(self.to_last_row_s, self.to_last_answer_s)

    def latency_ms(self, percent: int) -> float:
        return percentile([latency_s for _, latency_s in self.answers], percent) * 1000

    def accepted_ms(self, percent: int) -> float:
        return percentile(self.accepted_s, percent) * 1000

    def as_json(self) -> dict[str, Any]:
        return {
            "design": self.design,
            "verdict": self.verdict,
            "to_last_row_s": self.to_last_row_s,
            "to_last_answer_s": self.to_last_answer_s,
            "latency_ms": {f"p{percent}": self.latency_ms(percent) for percent in (50, 90, 99)},
            "accepted_ms": {f"p{percent}": self.accepted_ms(percent) for percent in (50, 90, 99)},
        }


def verdict_on(
    *, units: int, winners: set[int], rows: Sequence[int], books_agree: bool, others: set[int]
) -> str:
    """Return the verdict: sold exactly, or the first fault.

    ``winners`` are the buyers who were told that they won, ``rows`` the buyers in the table.
    """
    if others:
        return f"answers with status {sorted(others)}"
    if len(rows) != units:
        return f"{len(rows)} rows for {units} units"
    if len(set(rows)) != len(rows):
        return f"{len(rows) - len(set(rows))} buyers have two"
    if set(rows) != winners:
        return f"{len(set(rows) ^ winners)} buyers were told otherwise than the rows"
    return EXACT if books_agree else "the stock does not fit the rows"


# --- The picture ----------------------------------------------------------------------------------

PICTURE = Path(__file__).with_name("whole_sale.svg")
WIDE, HIGH, PANELS_Y = 640, 200, (50, 310)
SLICES = 60
TICKS = 4
STYLES = {OURS: ("#0b6e4f", ""), CLASSIC: ("#b3401f", "7 4")}
NICE = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)


class Curve(NamedTuple):
    name: str
    points: Sequence[tuple[float, float]]
    colour: str
    dashes: str
    width: float = 2.4


def draw(outcomes: Sequence[Outcome]) -> str:
    """Return the last sale of each design as a picture."""
    last = {it.design: it for it in outcomes}
    longest_s = max(it.to_last_answer_s for it in last.values())
    slice_s = longest_s / SLICES
    rates, latencies = [], []
    for of, it in last.items():
        slices = _slices(it, slice_s)
        rates.append(Curve(of, [(at_s, len(them) / slice_s) for at_s, them in slices], *STYLES[of]))
        for percent, width in ((50, 1.2), (99, 2.4)):
            points = [(at_s, percentile(them, percent) * 1000) for at_s, them in slices]
            latencies.append(Curve(f"{of}, p{percent}", points, *STYLES[of], width))
    figures = {"answers per second": rates, "latency, ms": latencies}
    panels = [
        {"y": y, "title": title, **_panel(curves, longest_s)}
        for y, (title, curves) in zip(PANELS_Y, figures.items(), strict=True)
    ]
    return picture(PICTURE, panels=panels, wide=WIDE, high=HIGH)


def nice_top(value: float) -> float:
    """Return the round number at or above a value, for the end of an axis."""
    size = 1.0
    while size * 10 <= value:
        size *= 10
    return next((step * size for step in NICE if step * size >= value), value)


def _slices(outcome: Outcome, slice_s: float) -> list[tuple[float, list[float]]]:
    """Return the latencies of the answers in each slice of time."""
    slices: defaultdict[int, list[float]] = defaultdict(list)
    for at_s, latency_s in outcome.answers:
        slices[int(at_s / slice_s)].append(latency_s)
    return [((number + 0.5) * slice_s, them) for number, them in sorted(slices.items())]


def _panel(curves: Sequence[Curve], longest_s: float) -> dict[str, Any]:
    """Return where the ticks of the axes and the curves are."""
    top = nice_top(max(value for curve in curves for _, value in curve.points))
    right = nice_top(longest_s)

    def path(curve: Curve) -> str:
        places = ((at_s / right * WIDE, HIGH * (1 - value / top)) for at_s, value in curve.points)
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)

    ticks = [
        {
            "level": HIGH * (1 - share),
            "x": WIDE * share,
            "value": f"{top * share:,.10g}",
            "at_s": f"{right * share:.10g}",
        }
        for share in (tick / TICKS for tick in range(TICKS + 1))
    ]
    return {"ticks": ticks, "curves": [(it, path(it), 14 + 22 * n) for n, it in enumerate(curves)]}


def picture(template: Path, **values: Any) -> str:
    """Return an SVG file, from a template of it."""
    return str(Engine().from_string(template.read_text()).render(Context(values, use_l10n=False)))
