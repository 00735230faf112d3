from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class LocksConfig(AppConfig):
    name = "locks.django"
    label = "locks"
    verbose_name = _("Locks")
