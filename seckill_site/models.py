"""The site's own row: which installation this database belongs to."""

from django.db import models


class Installation(models.Model):
    """The identity of this installation, in the only row; see ``installation.py``."""

    identity = models.CharField(max_length=16)

    def __str__(self) -> str:
        return self.identity
