"""JSON answers that are independent of the transport.

The fast path and the Django views render the same :class:`Answer`, so neither repeats the other's
rules.
"""

from __future__ import annotations

from typing import NamedTuple

from django.http import HttpResponse

Headers = tuple[tuple[str, str], ...]


class Answer(NamedTuple):
    """A status, a JSON text, and the headers that depend on them."""

    status: int
    content: str
    headers: Headers


def as_response(answer: Answer) -> HttpResponse:
    """Render an answer for Django, whose middleware adds the headers that every response has."""
    return HttpResponse(
        answer.content,
        status=answer.status,
        content_type="application/json",
        headers=dict(answer.headers),
    )
