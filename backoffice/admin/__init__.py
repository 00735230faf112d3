"""The back office in Django's admin: importing a module registers its pages."""

from backoffice.admin import accounts, codes, customers, orders, records, rehearsals, reports, sales

__all__ = ["accounts", "codes", "customers", "orders", "records", "rehearsals", "reports", "sales"]
