"""Which names are the same: the collations of the columns that tell names apart.

The server's own may take 李𬭎 for 李𬬭, Günter for Gunter and 🍜 for 🍕. SQLite compares bytes,
and the case of usernames by an index of its own.
"""

from typing import Any

from django.db.models import CharField, Transform

OF_ACCOUNTS = "utf8mb4_uca1400_as_ci"
"""The case of letters makes no difference, as in a username."""

EXACT = "utf8mb4_uca1400_as_cs"

COLLATIONS = {
    ("auth.User", "username"): OF_ACCOUNTS,
    ("auth.User", "email"): OF_ACCOUNTS,
    ("account.EmailAddress", "email"): OF_ACCOUNTS,
    ("accounts.Invitation", "email"): OF_ACCOUNTS,
    ("auth.Group", "name"): EXACT,
    ("vouchers.Merchant", "name"): EXACT,
    ("api.ApiToken", "prefix"): EXACT,
}
"""The collation of each field that finds a row by a name."""


@CharField.register_lookup
class AnyCase(Transform):
    """A name whose case makes no difference to a search, as ``name__any_case__icontains``."""

    lookup_name = "any_case"
    template = "%(expressions)s"

    def as_mysql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        template = f"%(expressions)s COLLATE {OF_ACCOUNTS}"
        return self.as_sql(compiler, connection, template=template, **context)
