from collections.abc import Iterable
from typing import Any

from django.apps import AppConfig
from django.contrib.admin import apps as django_admin
from django.core.checks import CheckMessage, register
from django.utils.module_loading import import_string

from seckill_site.checks.services import SERVICES


class BackofficeConfig(AppConfig):
    name = "backoffice"
    default = True

    def ready(self) -> None:
        register(_check_queues, SERVICES, deploy=True)


def _check_queues(**options: Any) -> Iterable[CheckMessage]:
    """Check the queues, with a module that the web servers do not load."""
    check = import_string("backoffice.today.queues.check_queues")
    return list(check(**options))


class BackOfficeAdminConfig(django_admin.AdminConfig):
    """Django's admin with the shop's navigation and home page."""

    default = False
    default_site = "backoffice.site.BackOffice"
