"""The site as an app, for its start-up checks (registered on import) and URL converters."""

from celery.signals import celeryd_after_setup
from django.apps import AppConfig
from django.urls import register_converter

from seckill_site.checks import keys  # noqa: F401  it registers its checks
from seckill_site.checks.configuration import log_at_start
from seckill_site.web.url_converters import IdConverter


class SiteConfig(AppConfig):
    """The app of the site itself."""

    name = "seckill_site"

    def ready(self) -> None:
        """Register the converters; a worker logs the checks before it forks."""
        register_converter(IdConverter, "id")
        celeryd_after_setup.connect(log_at_start)
