"""What owners have set on the page *Settings*, as this process knows it (docs/adr/0040).

A process that needs it asks the database for its revision, at most once in ``FRESH_S``, and for the
rest only if that is another one. Without an answer it goes on with what it knows.
"""

from contextlib import suppress
from typing import Any, NamedTuple

from django.apps import apps
from django.db import Error

from seckill_site.process_memory import Latest

FRESH_S = 5.0
"""A change is in force everywhere after this time, and half a second for pages in memory."""

MAY_LAG_S = 2.0
"""The time for which others go on with what is too old while one caller asks."""


class OwnersSettings(NamedTuple):
    """The row of ``ShopSettings``; without one, nothing was ever set."""

    revision: str | None = None
    values: frozenset[tuple[str, str]] = frozenset()
    logo: bytes = b""


known = Latest(OwnersSettings(), for_s=FRESH_S)


def owners_settings() -> OwnersSettings:
    """Return what is set now, or was a few seconds ago.

    While one caller asks, others wait only in a process that is new or was idle: a silent database
    holds one of them.
    """
    known.refresh(_ask, wait=known.late_by_s > MAY_LAG_S)
    return known.value


def _ask() -> None:
    rows: Any = apps.get_model("seckill_site", "ShopSettings").objects  # not loaded yet here
    found = known.value
    with suppress(Error):  # the database is away, or has no such table yet
        if rows.values_list("revision", flat=True).first() != found.revision:
            row = rows.first()
            read = (row.revision, frozenset(row.values.items()), row.logo) if row else ()
            found = OwnersSettings(*read)
    known.learn(found)
