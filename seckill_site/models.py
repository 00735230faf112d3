"""The site's own rows: which installation this is, and what the cache still has to drop."""

from django.db import models


class Installation(models.Model):
    """The identity of this installation, in the only row; see ``installation.py``."""

    identity = models.CharField(max_length=16)

    def __str__(self) -> str:
        return self.identity


class StaleFact(models.Model):
    """A change that the cache has to take: it must drop the fact with this key."""

    name = models.CharField(max_length=100)
    due_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"stale fact {self.pk}"  # the key may be that of a session
