"""The Celery application: ``celery -A seckill_site worker`` and ``celery -A seckill_site beat``."""

import os

from celery import Celery

from seckill_site.broker import use_our_transport

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "seckill_site.settings")

use_our_transport()
app = Celery("seckill_site")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
