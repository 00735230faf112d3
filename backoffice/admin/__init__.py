"""The back office in Django's admin: importing a module registers its pages."""

from backoffice.admin import (
    accounts,
    codes,
    customers,
    orders,
    records,
    rehearsals,
    reports,
    sales,
    system,
    today,
    words,
)

__all__ = [
    "accounts",
    "codes",
    "customers",
    "orders",
    "records",
    "rehearsals",
    "reports",
    "sales",
    "system",
    "today",
    "words",
]
