"""The pages of the lab."""

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
