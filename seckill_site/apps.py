"""The site as an app, for its start-up checks (registered on import) and URL converters."""

from celery.signals import celeryd_after_setup
from django.apps import AppConfig
from django.urls import register_converter

from seckill_site.checks import face, keys  # noqa: F401  they register their checks
from seckill_site.checks.configuration import log_at_start
from seckill_site.web.url_converters import IdConverter


def _watch_users() -> None:
    # Django's engines and models exist only once all apps are loaded.
    from django.contrib.auth.models import User
    from django.db.models.signals import post_delete, post_save, pre_delete, pre_save

    from seckill_site.sessions import after_change, before_change

    for signal in (pre_save, pre_delete):
        signal.connect(before_change, sender=User)
    for signal in (post_save, post_delete):
        signal.connect(after_change, sender=User)


class SiteConfig(AppConfig):
    """The app of the site itself."""

    name = "seckill_site"

    def ready(self) -> None:
        """Register the converters; a worker logs the checks before it forks."""
        register_converter(IdConverter, "id")
        _watch_users()
        celeryd_after_setup.connect(log_at_start)
