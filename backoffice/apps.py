from django.apps import AppConfig
from django.contrib.admin import apps as django_admin
from django.core.checks import register
from django.utils.module_loading import import_string

from seckill_site.checks.services import SERVICES


class BackofficeConfig(AppConfig):
    name = "backoffice"
    default = True

    def ready(self) -> None:
        """Check the queues, with a module that the web servers do not load."""
        check = "backoffice.today.queues.check_queues"
        register(lambda **options: import_string(check)(**options), SERVICES, deploy=True)


class BackOfficeAdminConfig(django_admin.AdminConfig):
    """Django's admin with the shop's navigation and home page."""

    default = False
    default_site = "backoffice.site.BackOffice"
