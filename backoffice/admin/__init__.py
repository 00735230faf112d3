"""The back office in Django's admin: importing a module registers its pages."""

from backoffice.admin import (
    accounts,
    api_tokens,
    codes,
    orders,
    records,
    rehearsals,
    sales,
    webhooks,
)

__all__ = [
    "accounts",
    "api_tokens",
    "codes",
    "orders",
    "records",
    "rehearsals",
    "sales",
    "webhooks",
]
