"""Texts for the history of a sale in the admin: before, after and why."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils.translation import gettext, pgettext


def change_line(label: object, before: object, after: object) -> str:
    """Return one change as ``Stock: 5 → 9``."""
    words = {"label": label, "before": before, "after": after}
    return gettext("%(label)s: %(before)s → %(after)s") % words


def join_changes(changes: Iterable[str]) -> str:
    """Return several changes as one text."""
    return pgettext("between changes", "; ").join(changes)


def with_reason(text: str, why: str) -> str:
    """Return a change with its reason, if one was given."""
    if not why:
        return text
    return gettext("%(change)s. Reason: %(why)s") % {"change": text, "why": why}
