"""The Celery application: ``celery -A seckill_site worker`` and ``celery -A seckill_site beat``."""

import os

from celery import Celery
from celery.signals import setup_logging

from seckill_site.broker import transport
from seckill_site.log_lines import log_as_the_site

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seckill_site.settings")

transport.register()
app = Celery("seckill_site")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
setup_logging.connect(log_as_the_site)
