"""A model without a table: a row in the admin's index, and the permission to view it."""

from typing import Any, ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _


class NoRows(models.Manager[Any]):
    """A manager that reads no table, so ``dumpdata`` does not look for one."""

    def get_queryset(self) -> models.QuerySet[Any]:
        return super().get_queryset().none()


class Lock(models.Model):
    """A lock as the admin sees it; ``locks.inspection`` reads the held ones from Redis."""

    name = models.CharField(max_length=255, primary_key=True)

    objects: ClassVar[NoRows] = NoRows()

    class Meta:
        managed = False
        default_permissions = ("view",)
        verbose_name = _("held lock")
        verbose_name_plural = _("held locks")

    def __str__(self) -> str:
        return self.name
