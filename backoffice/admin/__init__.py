"""The back office in Django's admin: importing a module registers its pages."""

from backoffice.admin import (
    accounts,
    api_tokens,
    codes,
    customers,
    orders,
    records,
    rehearsals,
    reports,
    sales,
    system,
    today,
    webhooks,
    words,
)

__all__ = [
    "accounts",
    "api_tokens",
    "codes",
    "customers",
    "orders",
    "records",
    "rehearsals",
    "reports",
    "sales",
    "system",
    "today",
    "webhooks",
    "words",
]
