"""Order ids that were accepted after the point of a restore: ``manage.py after_restore``."""

from django.db import models


class RestoredOrder(models.Model):
    """An order id that the ledger or a provider knew and the restored database did not."""

    class Outcome(models.TextChoices):
        WRITTEN = "written", "written again from the ledger"
        LOST = "lost", "lost: its receipt says so"
        PAID = "paid", "paid without a row: for a human"

    order_id = models.BigIntegerField(primary_key=True)
    sale_id = models.BigIntegerField(null=True)
    outcome = models.CharField(max_length=8, choices=Outcome)
    detail = models.CharField(max_length=200)
    noted_at = models.DateTimeField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.order_id} {self.outcome}"
