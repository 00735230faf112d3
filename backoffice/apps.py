from importlib import import_module

from django.apps import AppConfig
from django.contrib.admin import apps as django_admin


class BackofficeConfig(AppConfig):
    name = "backoffice"
    default = True

    def ready(self) -> None:
        import_module("backoffice.today.queues")  # registers a check


class BackOfficeAdminConfig(django_admin.AdminConfig):
    """Django's admin with the shop's navigation and home page."""

    default = False
    default_site = "backoffice.site.BackOffice"
