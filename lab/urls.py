"""The pages of the lab."""

from django.urls import path

from lab import views

urlpatterns = [
    path("", views.index, name="lab"),
    path("<slug:step_name>/<slug:race_name>/", views.race_page, name="lab-race"),
]
