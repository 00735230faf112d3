"""Texts for the history of a sale in the admin: before, after and why."""

from __future__ import annotations

from django.utils.translation import gettext


def change_line(label: object, before: object, after: object) -> str:
    """Return one change as ``Stock: 5 → 9``."""
    words = {"label": label, "before": before, "after": after}
    return gettext("%(label)s: %(before)s → %(after)s") % words


def with_reason(text: str, why: str) -> str:
    """Return a change with the reason that was given for it, if any."""
    if not why:
        return text
    return gettext("%(change)s. Reason: %(why)s") % {"change": text, "why": why}
