"""What tests ask of a timeline."""

from __future__ import annotations

from lab.interleaving.timeline import Kind, Timeline


def answers(timeline: Timeline, actor: str) -> list[str]:
    """Return the answers to an actor, in order."""
    events = [event for event in timeline.events if event.kind is Kind.ANSWER]
    return [event.what for event in events if event.actors == (actor,)]


def outline(timeline: Timeline) -> list[tuple[tuple[str, ...], Kind, str]]:
    """Return what is the same each time that the race is played: no ids, no times."""
    timeless = (Kind.POINT, Kind.ANSWER)
    return [
        (event.actors, event.kind, event.what if event.kind in timeless else "")
        for event in timeline.events
    ]
