"""The outcome of one whole sale: whether it was sold exactly, and a picture of its course.

The picture shows throughput and latency of both designs over time, as SVG. Dashes and names tell
the two apart, not colour alone.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from bench.tables import percentile

OURS, CLASSIC = "ours", "classic"
EXACT = "sold exactly, no buyer twice"


@dataclass(frozen=True)
class Outcome:
    """One whole sale; ``answers`` are pairs of time (seconds after the start) and latency."""

    design: str
    to_last_row_s: float
    to_last_answer_s: float
    answers: Sequence[tuple[float, float]]
    verdict: str

    @property
    def all_s(self) -> float:
        return max(self.to_last_row_s, self.to_last_answer_s)

    def latency_ms(self, share: float) -> float:
        return percentile([latency_s for _, latency_s in self.answers], share) * 1000

    def as_json(self) -> dict[str, Any]:
        return {
            "design": self.design,
            "verdict": self.verdict,
            "to_last_row_s": self.to_last_row_s,
            "to_last_answer_s": self.to_last_answer_s,
            "latency_ms": {f"p{share}": self.latency_ms(share / 100) for share in (50, 90, 99)},
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

WIDTH, PANEL, LEFT, RIGHT, TOP, GAP = 880, 200, 70, 170, 50, 60
SLICES = 60
TICKS = 4
STYLES = {OURS: ("#0b6e4f", ""), CLASSIC: ("#b3401f", "7 4")}
NICE = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Curve:
    """A line of a panel."""

    design: str
    name: str
    points: Points
    thin: bool = False


def draw(outcomes: Sequence[Outcome]) -> str:
    """Return the last sale of each design as a picture."""
    last = {it.design: it for it in outcomes}
    longest_s = max(it.to_last_answer_s for it in last.values())
    slice_s = longest_s / SLICES
    rates, latencies = [], []
    for of, it in last.items():
        slices = _slices(it, slice_s)
        rates.append(Curve(of, of, [(at_s, len(them) / slice_s) for at_s, them in slices]))
        for share in (50, 99):
            points = [(at_s, percentile(them, share / 100) * 1000) for at_s, them in slices]
            latencies.append(Curve(of, f"{of}, p{share}", points, thin=share == 50))
    height = TOP + 2 * PANEL + 2 * GAP
    return picture(
        height,
        text_at(LEFT, 24, "A whole sale over HTTP, 256 connections", size=16),
        *_panel(rates, longest_s, y=TOP, title="answers per second"),
        *_panel(latencies, longest_s, y=TOP + PANEL + GAP, title="latency, ms"),
        text_at(LEFT, height - 12, "seconds since the first request"),
    )


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


def _panel(curves: Sequence[Curve], longest_s: float, *, y: int, title: str) -> list[str]:
    top = nice_top(max(value for curve in curves for _, value in curve.points))
    right = nice_top(longest_s)
    wide = WIDTH - LEFT - RIGHT

    def place(point: tuple[float, float]) -> tuple[float, float]:
        return LEFT + point[0] / right * wide, y + PANEL * (1 - point[1] / top)

    parts = [text_at(LEFT, y - 8, title)]
    for tick in range(TICKS + 1):
        value, at_s = top * tick / TICKS, right * tick / TICKS
        (x, _), (_, level) = place((at_s, 0)), place((0, value))
        parts.append(
            f'<line x1="{LEFT}" x2="{LEFT + wide}" y1="{level:.1f}" y2="{level:.1f}" '
            'stroke="#ddd"/>'
        )
        parts.append(text_at(LEFT - 8, level + 4, f"{value:,.10g}", anchor="end"))
        parts.append(text_at(x, y + PANEL + 18, f"{at_s:.10g}", anchor="middle"))
    for number, curve in enumerate(curves):
        path = " ".join("{:.1f},{:.1f}".format(*place(point)) for point in curve.points)
        parts.append(f'<polyline points="{path}" fill="none" {_stroke(curve)}/>')
        x, level = LEFT + wide + 12, y + 14 + 22 * number
        parts.append(f'<line x1="{x}" x2="{x + 34}" y1="{level}" y2="{level}" {_stroke(curve)}/>')
        parts.append(text_at(x + 42, level + 4, curve.name))
    return parts


def _stroke(curve: Curve) -> str:
    colour, dashes = STYLES[curve.design]
    width = 1.2 if curve.thin else 2.4
    return f'stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dashes}"'


def picture(height: int, *parts: str) -> str:
    """Return an SVG file of ``WIDTH`` with these parts."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="13">'
    )
    ground = f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
    return "\n".join([head, ground, *parts, "</svg>\n"])


def text_at(x: float, y: float, text: str, *, anchor: str = "start", size: int = 13) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'fill="#222">{escape(text)}</text>'
    )
