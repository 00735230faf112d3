"""The back office in Django's admin: importing a module registers its pages."""

from backoffice.admin import (
    accounts,
    codes,
    orders,
    records,
    rehearsals,
    sales,
    system,
    today,
    words,
)

__all__ = [
    "accounts",
    "codes",
    "orders",
    "records",
    "rehearsals",
    "sales",
    "system",
    "today",
    "words",
]
