"""No table: a row in the admin's index, and the permission to look at it."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _


class NoRows(models.Manager[Any]):
    """Keeps ``dumpdata`` and whoever else asks from a table that there is not."""

    def get_queryset(self) -> models.QuerySet[Any]:
        return super().get_queryset().none()


class Lock(models.Model):
    """A lock as the admin knows it; what is held stands in Redis, see ``locks.inspection``."""

    name = models.CharField(max_length=255, primary_key=True)

    objects: ClassVar[NoRows] = NoRows()

    class Meta:
        managed = False
        default_permissions = ("view",)
        verbose_name = _("held lock")
        verbose_name_plural = _("held locks")

    def __str__(self) -> str:
        return self.name
