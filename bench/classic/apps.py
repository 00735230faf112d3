"""The classic design as an app of its own, with its own tables."""

from django.apps import AppConfig


class ClassicConfig(AppConfig):
    name = "bench.classic"
    label = "classic"
    default_auto_field = "django.db.models.BigAutoField"
