"""The site as an app of its own: it has the start-up checks."""

from celery.signals import celeryd_after_setup
from django.apps import AppConfig
from django.urls import register_converter

from seckill_site.checks.configuration import log_at_start, register_checks
from seckill_site.web.url_converters import IdConverter


class SiteConfig(AppConfig):
    """Makes the checks known, and how ids are written in URLs."""

    name = "seckill_site"

    def ready(self) -> None:
        """Register all that, and have a worker log the checks before it forks its children."""
        register_checks()
        register_converter(IdConverter, "id")
        celeryd_after_setup.connect(log_at_start)
