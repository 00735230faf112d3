"""The rows of the site itself: its identity, settings, activity, and what the cache has to drop."""

from django.db import models
from django.utils.translation import gettext_lazy as _

from seckill_site.clocks.database import database_now

ONLY_ROW = 1


class Installation(models.Model):
    """The identity of this installation, in the only row; see ``installation.py``.

    ``restored_at`` without ``repaired_at`` marks a restored database, ``restored_point`` is the
    last change in it. ``deploy/restore`` sets them, ``deploy/backup`` sets ``backed_up_at``.
    """

    identity = models.CharField(max_length=16)
    restored_at = models.DateTimeField(null=True)
    restored_point = models.DateTimeField(null=True)
    repaired_at = models.DateTimeField(null=True)
    backed_up_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.identity


class StaleFact(models.Model):
    """A change that the cache has to take: it must drop the fact with this key."""

    name = models.CharField(max_length=100)
    due_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return f"stale fact {self.pk}"  # the key may be that of a session


class SentForm(models.Model):
    """A form that has created something, and what: see ``web/form_keys.py``."""

    digest = models.CharField(max_length=64, primary_key=True)
    made = models.CharField(max_length=2_000)
    sent_at = models.DateTimeField(default=database_now, db_index=True)

    def __str__(self) -> str:
        return self.digest


class ShopSettings(models.Model):
    """What owners set on a page, in the only row: texts by field, and the logo.

    Another ``revision`` tells all processes to read the row again.
    """

    id = models.PositiveSmallIntegerField(primary_key=True, default=ONLY_ROW, editable=False)
    revision = models.CharField(max_length=16, editable=False)
    values = models.JSONField(default=dict, editable=False)
    logo = models.BinaryField(default=b"")

    class Meta:
        verbose_name = verbose_name_plural = _("settings")
        default_permissions = ()
        constraints = [
            models.CheckConstraint(name="shop_settings_one_row", condition=models.Q(id=ONLY_ROW))
        ]

    def __str__(self) -> str:
        return str(_("Settings"))


class Activity(models.Model):
    """What a member of staff did or saw (``backoffice/activity.py``): ids, so no erased name.

    Nothing changes or deletes a row, except that retention empties its address.
    """

    at = models.DateTimeField(default=database_now, db_index=True)
    kind = models.CharField(max_length=20, db_index=True)
    user_id = models.BigIntegerField(db_index=True)
    address = models.CharField(max_length=45, blank=True, db_index=True)
    about = models.CharField(max_length=40, blank=True)  # a word and an id, such as order:81

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.about}"
