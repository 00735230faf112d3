"""The shop's settings, with the lines that Celery's loggers write for each task at INFO."""

from seckill_site.settings import *  # noqa: F403
from seckill_site.settings import LOGGING

LOGGING = {**LOGGING, "loggers": {}}
