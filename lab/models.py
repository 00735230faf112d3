"""The tables of the steps: as in the course, with no rule of their own that would save a step."""

from __future__ import annotations

from django.db import models


class LabSale(models.Model):
    """What a step sells; ``stock`` is what is left, and goes below zero where nothing minds."""

    step = models.CharField(max_length=20)
    offered = models.PositiveIntegerField()
    stock = models.IntegerField()

    def __str__(self) -> str:
        return f"{self.step} {self.pk}"


class LabOrder(models.Model):
    """One unit for one buyer, as often as a step writes it: no key keeps a second one out."""

    sale = models.ForeignKey(LabSale, on_delete=models.CASCADE, related_name="orders")
    user_id = models.BigIntegerField()

    class Meta:
        indexes = [models.Index(name="lab_order_of_buyer", fields=("sale", "user_id"))]

    def __str__(self) -> str:
        return str(self.pk)
