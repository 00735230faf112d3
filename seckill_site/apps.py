"""The site as an app of its own: it has the start-up checks."""

from celery.signals import celeryd_after_setup
from django.apps import AppConfig

from seckill_site.checks import log_at_start, register_checks


class SiteConfig(AppConfig):
    """Makes the checks known: to ``manage.py check``, and to a worker as it starts."""

    name = "seckill_site"

    def ready(self) -> None:
        """Register the checks, and have a worker log them before it forks its children."""
        register_checks()
        celeryd_after_setup.connect(log_at_start)
