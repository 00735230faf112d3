"""The back office in Django's admin: importing a module registers its pages."""

from backoffice.admin import accounts, orders, records, rehearsals, sales

__all__ = ["accounts", "orders", "records", "rehearsals", "sales"]
