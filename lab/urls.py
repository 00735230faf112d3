"""The pages of the lab."""

from django.urls import path

from lab import views

urlpatterns = [
    path("", views.index, name="lab"),
    path("experiments/<slug:name>/", views.experiment_page, name="lab-experiment"),
    path("<slug:step_name>/<slug:race_name>/", views.race_page, name="lab-race"),
]
