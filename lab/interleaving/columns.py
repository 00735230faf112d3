"""A timeline as text: a column for each actor, a row for each event, in order."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from lab.interleaving.timeline import Event, Kind, Timeline

NARROWEST_COLUMN = 16
GAP = 2
_NUMBER, _TIME = 3, 5
_MARGIN = _NUMBER + GAP + _TIME + GAP


def side_by_side(timeline: Timeline, events: Sequence[Event], *, width: int) -> str:
    """Return these events of a timeline, as wide as the terminal."""
    count = len(timeline.columns)
    column = max(NARROWEST_COLUMN, (width - _MARGIN - GAP * (count - 1)) // count)
    whole = count * column + (count - 1) * GAP
    heads = [f"{it.name}: {it.part}" for it in timeline.columns]
    lines = [f"{'#':>{_NUMBER}}{'ms':>{GAP + _TIME}}{' ' * GAP}{_row(heads, column)}"]
    lines.append("-" * (_MARGIN + whole))
    for event in events:
        margin = f"{event.number:>{_NUMBER}}{event.at_ms:>{GAP + _TIME}}{' ' * GAP}"
        for line in _lines(timeline, event, column, whole):
            lines.append(f"{margin}{line}".rstrip())
            margin = " " * _MARGIN
    return "\n".join(lines)


def _lines(timeline: Timeline, event: Event, column: int, whole: int) -> Iterator[str]:
    if not event.actors:
        yield f" {event.words} ".center(whole, "-")
        return
    cell = list(_cell(event, column))
    names = [it.name for it in timeline.columns]
    for line in cell:
        yield _row([line if name in event.actors else "" for name in names], column)


def _cell(event: Event, width: int) -> Iterator[str]:
    """Return an event as lines of one column; what came back stands below, set in."""
    yield from textwrap.wrap(_shown(event), width, subsequent_indent="  ")
    if event.reply:
        yield from textwrap.wrap(
            f"-> {event.reply}", width, initial_indent="  ", subsequent_indent="     "
        )


def _shown(event: Event) -> str:
    if event.kind is Kind.POINT:
        return f"[{event.words}]"
    if event.kind is Kind.ANSWER:
        return f"= {event.words}"
    if event.kind is Kind.FAILS:
        return f"! {event.words}"
    if event.kind is Kind.LOG:
        return f'says "{event.words}"'
    if event.kind in (Kind.STATEMENT, Kind.COMMAND):
        return event.words
    return f"* {event.words}"


def _row(cells: Sequence[str], column: int) -> str:
    return (" " * GAP).join(f"{cell:<{column}}" for cell in cells).rstrip()
