"""What a sale's history in the admin says of a change: which entries, before and after, and why."""

from __future__ import annotations

from django.utils.text import capfirst
from django.utils.translation import gettext

from vouchers.models import SaleStage, SeckillVoucher


def published_text() -> str:
    """Return what is said of a draft that was published."""
    label = capfirst(SeckillVoucher._meta.get_field("stage").verbose_name)
    return change_line(label, SaleStage.DRAFT.label, SaleStage.PUBLIC.label)


def change_line(label: object, before: object, after: object) -> str:
    """Return one change as ``Stock: 5 → 9``."""
    words = {"label": label, "before": before, "after": after}
    return gettext("%(label)s: %(before)s → %(after)s") % words


def with_reason(text: str, why: str) -> str:
    """Return a change with the reason that was given for it, if any."""
    if not why:
        return text
    return gettext("%(change)s. Reason: %(why)s") % {"change": text, "why": why}
