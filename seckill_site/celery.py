"""The Celery application: ``celery -A seckill_site worker`` and ``celery -A seckill_site beat``."""

import os

from celery import Celery

from seckill_site.broker import transport

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seckill_site.settings")

transport.register()
app = Celery("seckill_site")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
