"""Messages through Redis: Celery's transport, its consumer and its schedule, made to last."""
