"""The shop's settings without a heartbeat to RabbitMQ, for a control."""

from seckill_site.settings import *  # noqa: F403

CELERY_BROKER_HEARTBEAT = 0
