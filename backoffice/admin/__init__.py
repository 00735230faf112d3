"""The back office in Django's admin: importing a module registers its pages."""

from backoffice.admin import accounts, jobs, locks, orders, payments, rehearsals, sales

__all__ = ["accounts", "jobs", "locks", "orders", "payments", "rehearsals", "sales"]
