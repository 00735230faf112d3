"""Wiring of the site. Imports no app."""

from seckill_site.celery import app as celery_app

__all__ = ["celery_app"]
