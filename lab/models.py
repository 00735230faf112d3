"""The tables of the steps: as in the course, without any constraint that would save a step."""

import datetime as dt

from django.db import models

LONG_AGO, NEVER = (dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (2000, 9000))


class LabSale(models.Model):
    """A sale of a step; ``stock`` is the units left, and goes below zero without a guard.

    ``version`` counts the writes, if every writer raises it. Units are for sale from ``begins_at``
    until ``ends_at``, if anybody looks.
    """

    step = models.CharField(max_length=20)
    offered = models.PositiveIntegerField()
    stock = models.IntegerField()
    version = models.PositiveIntegerField(default=0, db_default=0)
    begins_at = models.DateTimeField(default=LONG_AGO, db_default=LONG_AGO)
    ends_at = models.DateTimeField(default=NEVER, db_default=NEVER)

    def __str__(self) -> str:
        return f"{self.step} {self.pk}"


class LabOrder(models.Model):
    """One unit for one buyer; no unique key rejects a second one."""

    sale = models.ForeignKey(LabSale, on_delete=models.CASCADE, related_name="orders")
    user_id = models.BigIntegerField()

    class Meta:
        indexes = [models.Index(name="lab_order_of_buyer", fields=("sale", "user_id"))]

    def __str__(self) -> str:
        return str(self.pk)


class LabLock(models.Model):
    """A lock in a row: the token of its last holder, and the end of that holder's lease."""

    name = models.CharField(primary_key=True, max_length=64)
    token = models.BigIntegerField()
    expires_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.name
