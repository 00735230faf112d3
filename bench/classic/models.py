"""The classic tables: a stock that counts down, and one order per buyer."""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from django.db import models
from django.db.models import Q


class ClassicSale(models.Model):
    """A sale; ``stock`` is the number of units left."""

    stock = models.PositiveIntegerField()

    objects: ClassVar[models.Manager[Any]] = models.Manager()  # the type checker's settings lack it

    class Meta:
        constraints = [
            models.CheckConstraint(name="classic_stock_left", condition=Q(stock__gte=0)),
        ]

    def __str__(self) -> str:
        return str(self.pk)


class ClassicOrder(models.Model):
    """One unit for one buyer."""

    id = models.BigIntegerField(primary_key=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    sale = models.ForeignKey(ClassicSale, on_delete=models.PROTECT, related_name="orders")
    status = models.PositiveSmallIntegerField(default=1)
    created_at = models.DateTimeField(auto_now_add=True)

    objects: ClassVar[models.Manager[Any]] = models.Manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(name="classic_one_a_buyer", fields=("user", "sale")),
        ]

    def __str__(self) -> str:
        return str(self.pk)
