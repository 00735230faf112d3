"""The lab as an app of its own, with its own tables."""

from django.apps import AppConfig


class LabConfig(AppConfig):
    name = "lab"
